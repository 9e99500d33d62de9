/* http_server: real sockets on loopback, the server on a thread of its own. */
#include "support/test.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/http_routes.h"
#include "support/http_fixture.h"

static void a_request_split_at_every_byte_is_the_same(void **state) {
    static const char request[] =
        "POST /echo?q=a%20b HTTP/1.1\r\nHost: x\r\nX-My: 7\r\nx-my: 8\r\nContent-Length: 3\r\n\r\nabc";
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    for (size_t cut = 1; cut < sizeof request - 1; cut++) {
        int fd = http_fixture_connect(&fixture, 0);
        char first[sizeof request];
        memcpy(first, request, cut);
        first[cut] = 0;
        http_fixture_say(fd, first);
        http_fixture_say(fd, request + cut);
        http_fixture_receive(fd, reply, sizeof reply, "POST a b abc 7 2", 2000);
        assert_non_null(strstr(reply, "200 OK"));
        assert_non_null(strstr(reply, "POST a b abc 7 2"));
        close(fd);
    }
    http_fixture_stop(&fixture);
}

static void a_connection_is_used_again(void **state) {
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    int fd = http_fixture_connect(&fixture, 0);
    for (int i = 0; i < 3; i++) {
        http_fixture_say(fd, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        http_fixture_receive(fd, reply, sizeof reply, "\r\n0\r\n\r\n", 2000);
        assert_non_null(strstr(reply, "text/event-stream"));
        assert_non_null(strstr(reply, "event: "));
        assert_non_null(strstr(reply, "\r\n0\r\n\r\n"));
    }
    assert_int_equal(http_server_n_connections(fixture.host.server), 1);
    close(fd);
    http_fixture_stop(&fixture);
}

static void a_client_that_leaves_is_seen(void **state) {
    struct http_fixture fixture;
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert_true(http_fixture_wait(&fixture.n_held, 1));
    int64_t left_ns = clock_now_ns();
    close(fd);
    assert_true(http_fixture_wait(&fixture.n_gone, 1));
    assert_true(clock_now_ns() - left_ns < 1000000000);
    http_fixture_stop(&fixture);
    assert_int_equal(atomic_load(&fixture.n_gone), 1);
}

/* In silence or with more behind the request, by an end or a reset, before and within a reply. */
static void a_client_that_leaves_in_any_way_is_seen(void **state) {
    struct http_fixture fixture;
    char reply[2000];
    int n_gone = 0;
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    for (int way = 0; way < 8; way++) {
        int fd = http_fixture_connect(&fixture, 0);
        struct linger reset = {.l_onoff = 1};
        http_fixture_say(fd,
                         way & 1 ? "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" : "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(http_fixture_wait(&fixture.n_held, way + 1));
        if (way & 1) http_fixture_receive(fd, reply, sizeof reply, "\r\n\r\n", 2000);
        if (way & 2) http_fixture_say(fd, "GET /echo HTTP/1.1\r\n");
        if (way & 2) thread_sleep_ms(50);
        if (way & 4) assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
        int64_t left_ns = clock_now_ns();
        close(fd);
        assert_true(http_fixture_wait(&fixture.n_gone, ++n_gone));
        assert_true(clock_now_ns() - left_ns < 1000000000);
    }
    http_fixture_stop(&fixture);
}

static void a_long_wait_for_the_reply_is_no_idle_connection(void **state) {
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    struct http_limits limits = http_fixture_usual;
    limits.idle_ms = limits.head_ms = limits.body_ms = 1000;
    http_fixture_start(&fixture, limits);
    int fd = http_fixture_connect(&fixture, 0), silent = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(http_fixture_wait(&fixture.n_held, 1));
    /* Meanwhile a connection that sends nothing is cut. */
    assert_int_equal(http_fixture_receive(silent, reply, sizeof reply, NULL, 4000), 0);
    struct pollfd wait = {.fd = silent, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 1);
    thread_sleep_ms(1500);
    atomic_store(&fixture.must_answer, true);
    http_fixture_receive(fd, reply, sizeof reply, "late", 3000);
    assert_non_null(strstr(reply, "late"));
    assert_int_equal(atomic_load(&fixture.n_gone), 0);
    close(fd);
    close(silent);
    http_fixture_stop(&fixture);
}

static void a_stream_that_pauses_is_not_cut(void **state) {
    struct http_fixture fixture;
    char reply[4000];
    (void)state;
    struct http_limits limits = http_fixture_usual;
    limits.idle_ms = limits.head_ms = limits.body_ms = 1000;
    http_fixture_start(&fixture, limits);
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_receive(fd, reply, sizeof reply, "\r\n0\r\n\r\n", 5000);
    assert_non_null(strstr(reply, "\r\n0\r\n\r\n"));
    assert_int_equal(atomic_load(&fixture.n_gone), 0);
    http_fixture_say(fd, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "200 OK"));
    close(fd);
    http_fixture_stop(&fixture);
}

static void what_comes_during_a_stream_is_not_collected(void **state) {
    static const char junk[1 << 16];
    struct http_fixture fixture;
    size_t n_taken = 0;
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(http_fixture_wait(&fixture.n_held, 1));
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    while (n_taken < ((size_t)64 << 20) && poll(&wait, 1, 300) > 0) {
        ssize_t n = send(fd, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) break;
        n_taken += (size_t)n;
    }
    assert_true(n_taken < (size_t)64 << 20); /* what the sockets hold, no more */
    close(fd);
    assert_true(http_fixture_wait(&fixture.n_gone, 1));
    http_fixture_stop(&fixture);
}

static void head_brings_the_length_and_no_body(void **state) {
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "HEAD /nothing HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "404 Not Found"));
    assert_non_null(strstr(reply, "Content-Length: 8\r\n"));
    assert_non_null(strstr(reply, "\r\n\r\nHTTP/1.1 200 OK")); /* at once after the first headers */
    close(fd);
    http_fixture_stop(&fixture);
}

static void a_body_whose_end_is_unclear_is_refused(void **state) {
    static const char *const bad[] = {"Content-Length: 3\r\nContent-Length: 4", "Transfer-Encoding: gzip",
                                      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                                      "Content-Length: 3\r\nTransfer-Encoding: chunked"};
    struct http_fixture fixture;
    char request[300], reply[2000];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = http_fixture_connect(&fixture, 0);
        snprintf(request, sizeof request, "POST /echo HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n3\r\nabc\r\n0\r\n\r\n", bad[i]);
        http_fixture_say(fd, request);
        http_fixture_receive(fd, reply, sizeof reply, NULL, 2000);
        assert_non_null(strstr(reply, "400 Bad Request"));
        assert_null(strstr(reply, "200 OK"));
        assert_non_null(strstr(reply, "Connection: close"));
        close(fd);
    }
    http_fixture_stop(&fixture);
}

static void more_connections_than_allowed_wait(void **state) {
    struct http_fixture fixture;
    char reply[2000];
    int fds[6];
    (void)state;
    struct http_limits limits = http_fixture_usual;
    limits.max_connections = 4;
    http_fixture_start(&fixture, limits);
    for (int i = 0; i < 6; i++) fds[i] = http_fixture_connect(&fixture, 0);
    for (int i = 0; i < 4; i++) {
        http_fixture_say(fds[i], "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
        http_fixture_receive(fds[i], reply, sizeof reply, "GET", 2000);
        assert_non_null(strstr(reply, "200 OK"));
    }
    http_fixture_say(fds[5], "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(http_fixture_receive(fds[5], reply, sizeof reply, NULL, 300), 0);
    for (int i = 0; i < 4; i++) close(fds[i]);
    http_fixture_receive(fds[5], reply, sizeof reply, "GET", 3000);
    assert_non_null(strstr(reply, "200 OK"));
    close(fds[4]);
    close(fds[5]);
    http_fixture_stop(&fixture);
}

static void what_is_too_large_or_garbled_is_refused(void **state) {
    static const char *const bad[] = {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n",
                                      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", "\r\n\r\n",
                                      "GET\r\n\r\n", "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n"};
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    struct http_limits limits = http_fixture_usual;
    limits.idle_ms = limits.head_ms = limits.body_ms = 1000;
    http_fixture_start(&fixture, limits);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = http_fixture_connect(&fixture, 0);
        http_fixture_say(fd, bad[i]);
        http_fixture_receive(fd, reply, sizeof reply, "\r\n\r\n", 3000);
        assert_null(strstr(reply, "200 OK"));
        close(fd);
    }
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "200 OK"));
    close(fd);
    http_fixture_stop(&fixture);
}

static void nothing(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)owner, (void)exchange, (void)parameter;
}

static void routes_find_method_path_and_parameter(void **state) {
    static const struct http_route routes[] = {{"GET", "/v1/models", nothing},
                                               {"POST", "/ping", nothing},
                                               {"GET", "/ping", nothing},
                                               {"GET", "/r/{id}", nothing}};
    const struct http_route *route = NULL;
    const char *parameter;
    char allowed[20];
    (void)state;
    assert_int_equal(http_routes_find(routes, 4, "GET", "/v1/models", &route, &parameter), HTTP_MATCH_FOUND);
    assert_ptr_equal(route, &routes[0]);
    assert_int_equal(http_routes_find(routes, 4, "HEAD", "/ping", &route, &parameter), HTTP_MATCH_FOUND);
    assert_ptr_equal(route, &routes[2]);
    assert_int_equal(http_routes_find(routes, 4, "PUT", "/ping", &route, &parameter), HTTP_MATCH_NO_METHOD);
    assert_int_equal(http_routes_find(routes, 4, "GET", "/v1/models/", &route, &parameter), HTTP_MATCH_NO_PATH);
    assert_int_equal(http_routes_find(routes, 4, "GET", "/r/a-1", &route, &parameter), HTTP_MATCH_FOUND);
    assert_string_equal(parameter, "a-1");
    assert_int_equal(http_routes_find(routes, 4, "GET", "/r/", &route, &parameter), HTTP_MATCH_NO_PATH);
    assert_int_equal(http_routes_find(routes, 4, "GET", "/r/a/b", &route, &parameter), HTTP_MATCH_NO_PATH);
    http_routes_allowed(routes, 4, "/ping", allowed, sizeof allowed);
    assert_string_equal(allowed, "POST, GET");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_split_at_every_byte_is_the_same),
        cmocka_unit_test(a_connection_is_used_again),
        cmocka_unit_test(a_client_that_leaves_is_seen),
        cmocka_unit_test(a_client_that_leaves_in_any_way_is_seen),
        cmocka_unit_test(a_long_wait_for_the_reply_is_no_idle_connection),
        cmocka_unit_test(a_stream_that_pauses_is_not_cut),
        cmocka_unit_test(what_comes_during_a_stream_is_not_collected),
        cmocka_unit_test(head_brings_the_length_and_no_body),
        cmocka_unit_test(a_body_whose_end_is_unclear_is_refused),
        cmocka_unit_test(more_connections_than_allowed_wait),
        cmocka_unit_test(what_is_too_large_or_garbled_is_refused),
        cmocka_unit_test(routes_find_method_path_and_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
