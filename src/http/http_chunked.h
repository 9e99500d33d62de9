/* http_chunked: a body in chunks, as its bytes come in.
 *
 * Thread: any.   Memory: none; the body's pieces lie in the bytes given.   Source: RFC 9112, 7.1. */
#ifndef KVICK_HTTP_HTTP_CHUNKED_H
#define KVICK_HTTP_HTTP_CHUNKED_H

#include <stddef.h>
#include <stdint.h>

enum http_chunked_state {
    HTTP_CHUNKED_SIZE,
    HTTP_CHUNKED_EXTENSION,
    HTTP_CHUNKED_SIZE_FEED,
    HTTP_CHUNKED_BYTES,
    HTTP_CHUNKED_BYTES_RETURN,
    HTTP_CHUNKED_BYTES_FEED,
    HTTP_CHUNKED_TRAILER,
    HTTP_CHUNKED_TRAILER_LINE,
    HTTP_CHUNKED_TRAILER_FEED,
    HTTP_CHUNKED_LAST_FEED,
    HTTP_CHUNKED_DONE,
    HTTP_CHUNKED_BAD
};

struct http_chunked {
    enum http_chunked_state state; /* begins as zero */
    uint64_t n_left;               /* of the chunk */
    int n_digits;
    size_t n_beside; /* bytes of extensions and trailers, which nobody reads */
};

/* Reads on from bytes and returns how many it took: up to the end of a piece of the body, which is then told, or all,
 * or up to the body's end (DONE) or a fault (BAD). [*out_piece, + *out_n_piece): in bytes; 0: none. */
size_t http_chunked_push(struct http_chunked *chunked, const char *bytes, size_t n_bytes, const char **out_piece,
                         size_t *out_n_piece);

#endif
