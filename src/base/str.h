/* str: a byte string that grows up to a bound given at init.
 *
 * Thread: one owner.   Invariant: ptr[n_bytes] == 0, n_bytes <= max_bytes. Bytes may contain NUL. */
#ifndef KVICK_BASE_STR_H
#define KVICK_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct str {
    char *ptr; /* never NULL: an empty str points to a static NUL */
    size_t n_bytes;
    size_t max_bytes;
    size_t cap_bytes; /* 0 while nothing is allocated */
};

/* Cannot fail: memory is taken on first append. */
void str_init(struct str *str, size_t max_bytes);
void str_deinit(struct str *str);

/* All leave str unchanged on failure. Errors: STATUS_LIMIT past max_bytes, STATUS_NOMEM. */
WARN_UNUSED enum status str_append(struct str *str, const char *bytes, size_t n_bytes);
WARN_UNUSED enum status str_append_text(struct str *str, const char *text);
WARN_UNUSED enum status str_append_fmt(struct str *str, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Forgets the content, keeps the memory. */
void str_clear(struct str *str);

/* The content as heap memory of the caller (mem_free); str is empty afterwards. NULL: out of memory, nothing changed.
 */
WARN_UNUSED char *str_take(struct str *str);

/* A text of decimal digits and nothing else as a number; false: it is something else, or above max. */
bool str_read_count(const char *text, int64_t max, int64_t *out);

#endif
