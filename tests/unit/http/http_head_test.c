/* http_head and http_chunked: bytes to fields, whole and in pieces. */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "http/http_chunked.h"
#include "http/http_head.h"

/* 0 or the code; text lives in buffer, which must outlast head. */
static int parse(struct http_head *head, char *buffer, const char *text, size_t n_bytes) {
    const char *why = NULL;
    memcpy(buffer, text, n_bytes);
    buffer[n_bytes] = 0;
    int code = http_head_parse(head, buffer, n_bytes, &why);
    assert_int_equal(code != 0, why != NULL);
    return code;
}

static int parse_text(struct http_head *head, char *buffer, const char *text) {
    assert_int_equal(http_head_end(text, strlen(text), 0), strlen(text));
    return parse(head, buffer, text, strlen(text));
}

static void a_head_is_read(void **state) {
    struct http_head head;
    char buffer[1000];
    (void)state;
    assert_int_equal(parse_text(&head, buffer,
                                "POST /v1/%41b?q=a%20b HTTP/1.1\r\nHost: x\r\nX-A:  one two \r\nx-a:\r\n"
                                "CONTENT-LENGTH: 007\r\nExpect: 100-Continue\r\n\r\n"),
                     0);
    assert_string_equal(head.method, "POST");
    assert_string_equal(head.path, "/v1/Ab");
    assert_string_equal(head.query, "q=a%20b");
    assert_string_equal(http_head_find(&head, "x-A"), "one two");
    assert_int_equal(http_head_count(&head, "X-a"), 2);
    assert_null(http_head_find(&head, "X-B"));
    assert_int_equal(head.body, HTTP_BODY_LENGTH);
    assert_int_equal(head.n_body_bytes, 7);
    assert_true(head.keeps_alive && head.expects_continue);
}

static void who_keeps_the_connection(void **state) {
    static const struct {
        const char *text;
        bool keeps_alive;
    } cases[] = {{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", true},
                 {"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, Close\r\n\r\n", false},
                 {"GET / HTTP/1.1\r\nHost: x\r\nConnection: closed\r\n\r\n", true},
                 {"GET / HTTP/1.0\r\n\r\n", false},
                 {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true}};
    struct http_head head;
    char buffer[1000];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse_text(&head, buffer, cases[i].text), 0);
        assert_int_equal(head.keeps_alive, cases[i].keeps_alive);
    }
}

static void targets_become_paths(void **state) {
    static const char *const cases[][2] = {{"/a", "/a"},           {"*", "*"},         {"/%zz", "/%zz"},
                                           {"/a%00b", "/a%00b"},   {"/a%", "/a%"},     {"/a%4", "/a%4"},
                                           {"http://h:1/b", "/b"}, {"HTTPS://h", "/"}, {"/v1/../x", "/v1/../x"},
                                           {"/%2541", "/%41"}};
    struct http_head head;
    char buffer[1000], text[200];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", cases[i][0]);
        assert_int_equal(parse_text(&head, buffer, text), 0);
        assert_string_equal(head.path, cases[i][1]);
    }
}

#define HOST "Host: x\r\n"
#define BEGIN "POST / HTTP/1.1\r\n" HOST

static void what_is_no_head_is_refused(void **state) {
    static const struct {
        int code;
        const char *text;
    } cases[] = {{400, "GET\r\n\r\n"},
                 {400, "GET /\r\n\r\n"},
                 {400, "GET / a HTTP/1.1\r\n\r\n"},
                 {400, " GET / HTTP/1.1\r\n" HOST "\r\n"},
                 {400, "G(T / HTTP/1.1\r\n" HOST "\r\n"},
                 {400, "AVERYLONGMETHODNAME / HTTP/1.1\r\n" HOST "\r\n"},
                 {400, "GET /\tx HTTP/1.1\r\n" HOST "\r\n"},
                 {400, "GET x HTTP/1.1\r\n" HOST "\r\n"},
                 {400, "GET /#a HTTP/1.1\r\n" HOST "\r\n"},
                 {400, "GET http://h?x HTTP/1.1\r\n" HOST "\r\n"},
                 {400, "GET / FTP/1.1\r\n" HOST "\r\n"},
                 {505, "GET / HTTP/2.0\r\n" HOST "\r\n"},
                 {505, "GET / HTTP/1.10\r\n" HOST "\r\n"},
                 {400, "GET / HTTP/1.1\r\n\r\n"},
                 {400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n"},
                 {400, "GET / HTTP/1.1\n" HOST "\r\n"},
                 {400, "GET / HTTP/1.1\r\nHost: x\n\r\n"},
                 {400, "GET / HTTP/1.1\r\n" HOST "a: b\rc: d\r\n\r\n"},
                 {400, "GET / HTTP/1.1\r\n" HOST "a: b\r\n c\r\n\r\n"},
                 {400, "GET / HTTP/1.1\r\n" HOST "a : b\r\n\r\n"},
                 {400, "GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n"},
                 {400, "GET / HTTP/1.1\r\n" HOST "a\r\n\r\n"},
                 {400, "GET / HTTP/1.1\r\n" HOST "a: \x01\r\n\r\n"},
                 {400, BEGIN "Content-Length: 3\r\nContent-Length: 3\r\n\r\n"},
                 {400, BEGIN "Content-Length: 3, 3\r\n\r\n"},
                 {400, BEGIN "Content-Length: -5\r\n\r\n"},
                 {400, BEGIN "Content-Length: +5\r\n\r\n"},
                 {400, BEGIN "Content-Length: 0x5\r\n\r\n"},
                 {400, BEGIN "Content-Length:\r\n\r\n"},
                 {413, BEGIN "Content-Length: 99999999999999999999\r\n\r\n"},
                 {400, BEGIN "Transfer-Encoding: gzip\r\n\r\n"},
                 {400, BEGIN "Transfer-Encoding: gzip, chunked\r\n\r\n"},
                 {400, BEGIN "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
                 {400, BEGIN "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"},
                 {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
                 {417, BEGIN "Expect: a miracle\r\n\r\n"}};
    struct http_head head;
    char buffer[1000];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = parse_text(&head, buffer, cases[i].text);
        if (code != cases[i].code) fail_msg("case %zu: %d\n%s", i, code, cases[i].text);
    }
    static const char nul[] = "GET / HTTP/1.1\r\nHost: x\r\na: b\0c\r\n\r\n";
    assert_int_equal(parse(&head, buffer, nul, sizeof nul - 1), 400);
}

static void more_headers_than_there_is_room_for(void **state) {
    struct http_head head;
    static char buffer[10000], text[10000];
    (void)state;
    for (int n_more = HTTP_HEAD_MAX_HEADERS - 1; n_more <= HTTP_HEAD_MAX_HEADERS; n_more++) {
        size_t n = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: x\r\n");
        for (int i = 0; i < n_more; i++) n += (size_t)snprintf(text + n, sizeof text - n, "a%d: b\r\n", i);
        snprintf(text + n, sizeof text - n, "\r\n");
        assert_int_equal(parse_text(&head, buffer, text), n_more < HTTP_HEAD_MAX_HEADERS ? 0 : 431);
    }
}

static void the_end_is_found_however_it_comes(void **state) {
    static const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\nrest\r\n\r\n";
    size_t n_head = strlen(text) - 8;
    (void)state;
    for (size_t cut = 0; cut <= n_head; cut++) {
        assert_int_equal(http_head_end(text, cut, 0), cut == n_head ? n_head : 0);
        assert_int_equal(http_head_end(text, sizeof text - 1, cut < n_head ? cut : 0), n_head);
    }
    assert_int_equal(http_head_end("a\n\nb", 4, 0), 3);
}

/* The body of chunks that come in two pieces, cut anywhere; "?" where they are no chunks, "..." while some are missing.
 */
static void decode(const char *text, size_t cut, char *out) {
    struct http_chunked chunked = {0};
    size_t n = strlen(text), n_out = 0, at = 0, limit = cut;
    out[0] = 0;
    while (chunked.state != HTTP_CHUNKED_DONE && chunked.state != HTTP_CHUNKED_BAD) {
        const char *piece;
        size_t n_piece;
        at += http_chunked_push(&chunked, text + at, limit - at, &piece, &n_piece);
        memcpy(out + n_out, piece, n_piece);
        n_out += n_piece;
        out[n_out] = 0;
        if (at == limit && limit == n) break;
        if (at == limit) limit = n;
    }
    if (chunked.state == HTTP_CHUNKED_BAD)
        strcpy(out, "?");
    else if (chunked.state != HTTP_CHUNKED_DONE)
        strcat(out, "...");
    else
        strcat(out, text + at);
}

static void chunks_are_read_however_they_come(void **state) {
    static const char *const cases[][2] = {{"3\r\nabc\r\n0\r\n\r\nNEXT", "abcNEXT"},
                                           {"1\r\na\r\n0A\r\n0123456789\r\n000\r\n\r\n", "a0123456789"},
                                           {"2;x=\"y\"\r\n\r\n\r\n0 \r\nTrailer: 1\r\nb: c\r\n\r\n", "\r\n"},
                                           {"3\r\nabc\r\n", "abc..."},
                                           {"3\r\nab", "ab..."},
                                           {"\r\n", "?"},
                                           {"g\r\n", "?"},
                                           {"-1\r\n", "?"},
                                           {"3\nabc", "?"},
                                           {"3\r\nabcd\r\n", "?"},
                                           {"3\r\nabc\n", "?"},
                                           {"1000000000000\r\n", "?"},
                                           {"0\r\n\nx", "?"},
                                           {"0\r\na: b\n\r\n", "?"}};
    char out[200];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t cut = 0; cut <= strlen(cases[i][0]); cut++) {
            decode(cases[i][0], cut, out);
            assert_string_equal(out, cases[i][1]);
        }
}

static void what_nobody_reads_of_chunks_is_bounded(void **state) {
    struct http_chunked chunked = {0};
    const char *piece;
    size_t n_piece, n_taken = 0;
    (void)state;
    http_chunked_push(&chunked, "1;", 2, &piece, &n_piece);
    while (chunked.state != HTTP_CHUNKED_BAD && n_taken < 1 << 20)
        n_taken += http_chunked_push(&chunked, "aaaaaaaaaaaaaaaa", 16, &piece, &n_piece);
    assert_true(n_taken < 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_read),
        cmocka_unit_test(who_keeps_the_connection),
        cmocka_unit_test(targets_become_paths),
        cmocka_unit_test(what_is_no_head_is_refused),
        cmocka_unit_test(more_headers_than_there_is_room_for),
        cmocka_unit_test(the_end_is_found_however_it_comes),
        cmocka_unit_test(chunks_are_read_however_they_come),
        cmocka_unit_test(what_nobody_reads_of_chunks_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
