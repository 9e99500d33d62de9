/* utf8: strict UTF-8 (no surrogates, no overlong forms, at most U+10FFFF).   Source: RFC 3629. */
#ifndef KVICK_BASE_UTF8_H
#define KVICK_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_MAX_BYTES 4 /* of one character */

/* Bytes of the character at text (1..4), its code point in *out_code_point; 0 if the bytes there are not a whole valid
 * character (or n_bytes is 0). out_code_point may be NULL. */
int utf8_decode(const char *text, size_t n_bytes, uint32_t *out_code_point);

/* Writes 1..4 bytes and returns how many; 0 for surrogates and values past U+10FFFF. */
int utf8_encode(uint32_t code_point, char out[UTF8_MAX_BYTES]);

/* Offset of the first byte that does not belong to a valid character; n_bytes if all do. */
size_t utf8_valid_prefix(const char *text, size_t n_bytes);

/* How many bytes at the end (0..3) are the start of a character that more bytes could complete. */
int utf8_open_tail(const char *text, size_t n_bytes);

#endif
