/* What http_server makes of heads and bodies: early replies, leave to send, chunks, old clients, faults. */
#include "support/test.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/http_fixture.h"

static void what_the_head_decides_needs_no_body(void **state) {
    static char body[60000];
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "POST /never HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n");
    http_fixture_receive(fd, reply, sizeof reply, NULL, 1000);
    assert_non_null(strstr(reply, "403 Forbidden"));
    assert_non_null(strstr(reply, "Connection: close"));
    close(fd);
    /* Who has sent it all keeps the connection. */
    fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(
        fd, "POST /never HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcdeGET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "403 Forbidden"));
    assert_non_null(strstr(reply, "200 OK"));
    assert_null(strstr(reply, "Connection: close"));
    close(fd);
    /* Who still sends when the reply comes can read it: no reset overtakes it. */
    for (int i = 0; i < 20; i++) {
        fd = http_fixture_connect(&fixture, 0);
        http_fixture_say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
        assert_true(send(fd, body, 60000, MSG_NOSIGNAL) > 0);
        http_fixture_receive(fd, reply, sizeof reply, NULL, 500);
        assert_non_null(strstr(reply, "413 Content Too Large"));
        assert_non_null(strstr(reply, "too large"));
        close(fd);
    }
    http_fixture_stop(&fixture);
}

static void leave_to_send_is_given_where_the_body_is_wanted(void **state) {
    static const char *const paths[] = {"/echo", "/never"};
    struct http_fixture fixture;
    char request[200], reply[2000];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    for (int i = 0; i < 2; i++) {
        int fd = http_fixture_connect(&fixture, 0);
        snprintf(request, sizeof request,
                 "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", paths[i]);
        http_fixture_say(fd, request);
        http_fixture_receive(fd, reply, sizeof reply, "\r\n\r\n", 2000);
        assert_int_equal(strncmp(reply, i == 0 ? "HTTP/1.1 100 Continue\r\n\r\n" : "HTTP/1.1 403 ", i == 0 ? 25 : 13),
                         0);
        if (i == 0) {
            http_fixture_say(fd, "abc");
            http_fixture_receive(fd, reply, sizeof reply, "abc", 2000);
            assert_non_null(strstr(reply, "POST - abc"));
        }
        close(fd);
    }
    http_fixture_stop(&fixture);
}

static void chunks_split_at_every_byte_are_one_body(void **state) {
    static const char request[] = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "2\r\nab\r\n1;x\r\nc\r\n0\r\nT: r\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    struct http_fixture fixture;
    char reply[2000], first[sizeof request];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    for (size_t cut = 1; cut < sizeof request - 1; cut++) {
        int fd = http_fixture_connect(&fixture, 0);
        memcpy(first, request, cut);
        first[cut] = 0;
        http_fixture_say(fd, first);
        thread_sleep_ms(1);
        http_fixture_say(fd, request + cut);
        http_fixture_receive(fd, reply, sizeof reply, "GET", 2000);
        assert_non_null(strstr(reply, "POST - abc"));
        assert_non_null(strstr(reply, "GET - "));
        close(fd);
    }
    http_fixture_stop(&fixture);
}

static void a_stream_to_an_old_client_ends_with_the_connection(void **state) {
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "GET /stream HTTP/1.0\r\n\r\n");
    http_fixture_receive(fd, reply, sizeof reply, NULL, 1000);
    assert_int_equal(strncmp(reply, "HTTP/1.0 200 OK", 15), 0);
    assert_null(strstr(reply, "chunked"));
    assert_string_equal(strstr(reply, "data: "), "data: one\n\nevent: named\ndata: two\n\n");
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char byte;
    assert_int_equal(poll(&wait, 1, 1000), 1);
    assert_int_equal(read(fd, &byte, 1), 0);
    close(fd);
    http_fixture_stop(&fixture);
}

static void every_fault_has_the_handlers_form(void **state) {
    static const struct {
        const char *code, *request;
    } cases[] = {{"400", "nonsense\r\n\r\n"},
                 {"400", "GET /echo HTTP/1.1\nHost: x\n\n"},
                 {"400", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"},
                 {"413", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n"},
                 {"413", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n%1001d"},
                 {"417", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: x\r\n\r\n"},
                 {"431", "GET /echo HTTP/1.1\r\nX: %70000d\r\n\r\n"},
                 {"505", "GET /echo HTTP/3.0\r\nHost: x\r\n\r\n"}};
    struct http_fixture fixture;
    static char request[80000];
    char reply[2000];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = http_fixture_connect(&fixture, 0);
        char wanted[40];
        const char *wide = strchr(cases[i].request, '%');
        int width = wide ? (int)strtol(wide + 1, NULL, 10) : 0;
        snprintf(request, sizeof request, "%.*s%*s%s", wide ? (int)(wide - cases[i].request) : 10000, cases[i].request,
                 width, "", wide ? strchr(wide, 'd') + 1 : "");
        http_fixture_say(fd, request);
        http_fixture_receive(fd, reply, sizeof reply, NULL, 1000);
        snprintf(wanted, sizeof wanted, "HTTP/1.1 %s ", cases[i].code);
        if (strncmp(reply, wanted, 13) != 0) fail_msg("%s: %s", cases[i].request, reply);
        snprintf(wanted, sizeof wanted, "\r\n\r\n{\"%s\"", cases[i].code);
        assert_non_null(strstr(reply, wanted));
        assert_non_null(strstr(reply, "Connection: close"));
        assert_non_null(strstr(reply, "Content-Type: application/json"));
        close(fd);
    }
    http_fixture_stop(&fixture);
}

static void a_method_that_nobody_knows_is_the_handlers_matter(void **state) {
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "BREW /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_receive(fd, reply, sizeof reply, "BREW", 2000);
    assert_non_null(strstr(reply, "200 OK"));
    assert_non_null(strstr(reply, "BREW - "));
    close(fd);
    http_fixture_stop(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_head_decides_needs_no_body),
        cmocka_unit_test(leave_to_send_is_given_where_the_body_is_wanted),
        cmocka_unit_test(chunks_split_at_every_byte_are_one_body),
        cmocka_unit_test(a_stream_to_an_old_client_ends_with_the_connection),
        cmocka_unit_test(every_fault_has_the_handlers_form),
        cmocka_unit_test(a_method_that_nobody_knows_is_the_handlers_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
