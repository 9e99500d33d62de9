#include "http/http_chunked.h"

#include "http/http_head.h"

#define MAX_DIGITS 12
#define MAX_BESIDE_BYTES ((size_t)16 << 10)

static enum http_chunked_state on_size(struct http_chunked *chunked, char c) {
    int digit = http_head_hex(c);
    if (digit >= 0) {
        if (++chunked->n_digits > MAX_DIGITS) return HTTP_CHUNKED_BAD;
        chunked->n_left = chunked->n_left * 16 + (uint64_t)digit;
        return HTTP_CHUNKED_SIZE;
    }
    if (chunked->n_digits == 0) return HTTP_CHUNKED_BAD;
    if (c == '\r') return HTTP_CHUNKED_SIZE_FEED;
    return c == ';' || c == ' ' || c == '\t' ? HTTP_CHUNKED_EXTENSION : HTTP_CHUNKED_BAD;
}

/* Of what nobody reads there is a bound, and no line feed may stand in it. */
static enum http_chunked_state on_beside(struct http_chunked *chunked, char c, enum http_chunked_state same,
                                         enum http_chunked_state after) {
    if (c == '\r') return after;
    return c == '\n' || c == 0 || ++chunked->n_beside > MAX_BESIDE_BYTES ? HTTP_CHUNKED_BAD : same;
}

static enum http_chunked_state on_byte(struct http_chunked *chunked, char c) {
    switch (chunked->state) {
    case HTTP_CHUNKED_SIZE: return on_size(chunked, c);
    case HTTP_CHUNKED_EXTENSION: return on_beside(chunked, c, HTTP_CHUNKED_EXTENSION, HTTP_CHUNKED_SIZE_FEED);
    case HTTP_CHUNKED_SIZE_FEED:
        chunked->n_digits = 0;
        if (c != '\n') return HTTP_CHUNKED_BAD;
        return chunked->n_left ? HTTP_CHUNKED_BYTES : HTTP_CHUNKED_TRAILER;
    case HTTP_CHUNKED_BYTES_RETURN: return c == '\r' ? HTTP_CHUNKED_BYTES_FEED : HTTP_CHUNKED_BAD;
    case HTTP_CHUNKED_BYTES_FEED: return c == '\n' ? HTTP_CHUNKED_SIZE : HTTP_CHUNKED_BAD;
    case HTTP_CHUNKED_TRAILER:
        if (c == '\r') return HTTP_CHUNKED_LAST_FEED;
        return on_beside(chunked, c, HTTP_CHUNKED_TRAILER_LINE, HTTP_CHUNKED_BAD);
    case HTTP_CHUNKED_TRAILER_LINE: return on_beside(chunked, c, HTTP_CHUNKED_TRAILER_LINE, HTTP_CHUNKED_TRAILER_FEED);
    case HTTP_CHUNKED_TRAILER_FEED: return c == '\n' ? HTTP_CHUNKED_TRAILER : HTTP_CHUNKED_BAD;
    case HTTP_CHUNKED_LAST_FEED: return c == '\n' ? HTTP_CHUNKED_DONE : HTTP_CHUNKED_BAD;
    case HTTP_CHUNKED_BYTES:
    case HTTP_CHUNKED_DONE:
    case HTTP_CHUNKED_BAD: break;
    }
    return HTTP_CHUNKED_BAD;
}

size_t http_chunked_push(struct http_chunked *chunked, const char *bytes, size_t n_bytes, const char **out_piece,
                         size_t *out_n_piece) {
    size_t i = 0;
    *out_piece = bytes;
    *out_n_piece = 0;
    while (i < n_bytes && chunked->state != HTTP_CHUNKED_DONE && chunked->state != HTTP_CHUNKED_BAD) {
        if (chunked->state != HTTP_CHUNKED_BYTES) {
            chunked->state = on_byte(chunked, bytes[i++]);
            continue;
        }
        size_t n = n_bytes - i < chunked->n_left ? n_bytes - i : (size_t)chunked->n_left;
        *out_piece = bytes + i;
        *out_n_piece = n;
        chunked->n_left -= n;
        if (chunked->n_left == 0) chunked->state = HTTP_CHUNKED_BYTES_RETURN;
        return i + n;
    }
    return i;
}
