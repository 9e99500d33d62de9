/* The first byte chooses the reader and where the rest is cut; what is read lies within the bytes, and is the same
 * however they come. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "http/http_chunked.h"
#include "http/http_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void read_head(const char *bytes, size_t n_bytes, size_t cut, bool is_reply) {
    struct http_head head;
    const char *why = NULL;
    size_t n_first = http_head_end(bytes, cut, 0), n_head = http_head_end(bytes, n_bytes, n_first ? 0 : cut);
    REQUIRE(n_first == 0 || n_first == n_head);
    REQUIRE(n_head == http_head_end(bytes, n_bytes, 0));
    if (!n_head) return;
    char *text = mem_alloc(n_head + 1);
    memcpy(text, bytes, n_head);
    int code = is_reply ? http_head_parse_reply(&head, text, n_head) : http_head_parse(&head, text, n_head, &why);
    REQUIRE(is_reply || (code != 0) == (why != NULL));
    REQUIRE(head.n_headers >= 0 && head.n_headers <= HTTP_HEAD_MAX_HEADERS);
    for (int i = 0; i < head.n_headers; i++) {
        REQUIRE(head.headers[i].name >= text && head.headers[i].value + strlen(head.headers[i].value) < text + n_head);
        REQUIRE(!strpbrk(head.headers[i].value, "\r\n"));
        REQUIRE(http_head_count(&head, head.headers[i].name) >= 1);
    }
    if (!is_reply && code == 0) {
        REQUIRE(head.method[0] && (head.path[0] == '/' || strcmp(head.path, "*") == 0));
        REQUIRE(head.minor_version == 0 || http_head_count(&head, "Host") == 1);
        REQUIRE((head.body == HTTP_BODY_LENGTH) == (head.n_body_bytes > 0));
    }
    mem_free(text);
}

/* Sum of the body's bytes, and how it ended. */
static uint64_t read_chunks(const char *bytes, size_t n_bytes, size_t cut) {
    struct http_chunked chunked = {0};
    uint64_t sum = 0;
    size_t at = 0, limit = cut;
    while (chunked.state != HTTP_CHUNKED_DONE && chunked.state != HTTP_CHUNKED_BAD && at < n_bytes) {
        const char *piece;
        size_t n_piece, n_used = http_chunked_push(&chunked, bytes + at, limit - at, &piece, &n_piece);
        REQUIRE(n_used <= limit - at && (n_used > 0 || at == limit));
        REQUIRE(n_piece == 0 || (piece >= bytes + at && piece + n_piece <= bytes + at + n_used));
        for (size_t i = 0; i < n_piece; i++) sum = sum * 31 + (uint8_t)piece[i];
        at += n_used;
        if (at == limit) limit = n_bytes;
    }
    return sum * 16 + (uint64_t)chunked.state;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    if (n_bytes == 0) return 0;
    const char *bytes = (const char *)data + 1;
    size_t n = n_bytes - 1, cut = n ? (size_t)(data[0] >> 2) % n : 0;
    switch (data[0] & 3) {
    case 0:
    case 1: read_head(bytes, n, cut, data[0] & 1); break;
    default: REQUIRE(read_chunks(bytes, n, cut) == read_chunks(bytes, n, n)); break;
    }
    REQUIRE(mem_n_live() == 0);
    return 0;
}
