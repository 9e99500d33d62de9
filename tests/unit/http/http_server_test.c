/* http_server: real sockets on loopback, the server on a thread of its own. */
#include "support/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http/http_routes.h"
#include "http/http_server.h"
#include "http/sse.h"

struct fixture {
    struct http_server *server;
    struct thread thread;
    int port;
    struct http_exchange *held; /* a request that is not answered */
    struct http_exchange *slow; /* a stream that gets an event every 1.5 s */
    int n_slow_left, n_ticks;
    struct http_exchange *flood; /* a stream that is sent as much as it takes */
    atomic_int n_held, n_gone, n_most_pending;
    atomic_bool must_answer;
};

static void on_gone(void *owner) {
    struct fixture *fixture = owner;
    fixture->held = NULL;
    atomic_fetch_add(&fixture->n_gone, 1);
}

static void on_slow_gone(void *owner) {
    struct fixture *fixture = owner;
    fixture->slow = NULL;
    atomic_fetch_add(&fixture->n_gone, 1);
}

static void on_flood_gone(void *owner) {
    struct fixture *fixture = owner;
    fixture->flood = NULL;
    atomic_fetch_add(&fixture->n_gone, 1);
}

static void flood(struct fixture *fixture) {
    static const char junk[50000];
    for (int i = 0; fixture->flood && i < 10; i++) {
        int n_pending = (int)http_exchange_n_pending(fixture->flood);
        if (n_pending > atomic_load(&fixture->n_most_pending)) atomic_store(&fixture->n_most_pending, n_pending);
        http_exchange_send(fixture->flood, junk, sizeof junk);
    }
}

static void go_on_slowly(struct fixture *fixture) {
    if (!fixture->slow || ++fixture->n_ticks % 150) return;
    http_exchange_send(fixture->slow, "data: more\n\n", 12);
    if (--fixture->n_slow_left) return;
    http_exchange_end(fixture->slow);
    fixture->slow = NULL;
}

static void on_tick(void *owner) {
    struct fixture *fixture = owner;
    go_on_slowly(fixture);
    flood(fixture);
    if (!fixture->held || !atomic_load(&fixture->must_answer)) return;
    http_exchange_reply(fixture->held, 200, "text/plain", "late", 4);
    fixture->held = NULL;
    atomic_store(&fixture->must_answer, false);
}

static void send_event(struct http_exchange *exchange, const char *name, const char *data) {
    struct str event;
    str_init(&event, 100);
    assert_int_equal(sse_begin_event(&event, name), STATUS_OK);
    assert_int_equal(str_append_text(&event, data), STATUS_OK);
    assert_int_equal(sse_end_event(&event), STATUS_OK);
    http_exchange_send(exchange, event.ptr, event.n_bytes);
    str_deinit(&event);
}

static void handle(void *owner, struct http_exchange *exchange) {
    struct fixture *fixture = owner;
    const char *path = http_exchange_path(exchange);
    size_t n_body;
    const char *body = http_exchange_body(exchange, &n_body);
    if (strcmp(path, "/echo") == 0) {
        char text[200];
        const char *query = http_exchange_query(exchange, "q"), *header = http_exchange_header(exchange, "x-my");
        snprintf(text, sizeof text, "%s %s %.*s %s %d", http_exchange_method(exchange), query ? query : "-",
                 (int)n_body, body, header ? header : "-", http_exchange_n_headers(exchange, "X-MY"));
        http_exchange_reply(exchange, 200, "text/plain", text, strlen(text));
    } else if (strcmp(path, "/stream") == 0) {
        sse_start(exchange);
        send_event(exchange, NULL, "one");
        send_event(exchange, "named", "two");
        http_exchange_end(exchange);
    } else if (strcmp(path, "/slow") == 0) {
        fixture->slow = exchange;
        fixture->n_slow_left = 2;
        http_exchange_on_gone(exchange, on_slow_gone, fixture);
        sse_start(exchange);
        atomic_fetch_add(&fixture->n_held, 1);
    } else if (strcmp(path, "/flood") == 0) {
        fixture->flood = exchange;
        http_exchange_on_gone(exchange, on_flood_gone, fixture);
        sse_start(exchange);
    } else if (strcmp(path, "/hold") == 0) {
        fixture->held = exchange;
        http_exchange_on_gone(exchange, on_gone, fixture);
        atomic_fetch_add(&fixture->n_held, 1);
    } else {
        http_exchange_reply(exchange, 404, "text/plain", path, strlen(path));
    }
}

static void serve(void *owner) {
    struct fixture *fixture = owner;
    http_server_run(fixture->server);
}

/* "/never" is refused from the head alone; "/slow" and "/hold" are told of nothing. */
static bool on_head(void *owner, struct http_exchange *exchange) {
    (void)owner;
    if (strcmp(http_exchange_path(exchange), "/never") != 0) return true;
    http_exchange_reply(exchange, 403, "text/plain", "never", 5);
    return false;
}

static void on_refuse(void *owner, struct http_exchange *exchange, int code, const char *why) {
    char text[200];
    (void)owner;
    snprintf(text, sizeof text, "{\"%d\": \"%s\", \"path\": \"%s\"}", code, why, http_exchange_path(exchange));
    http_exchange_reply(exchange, code, "application/json", text, strlen(text));
}

static const struct http_limits usual = {.max_connections = 16,
                                         .max_body_bytes = 1000,
                                         .max_bodies_bytes = 4000,
                                         .max_unread_bytes = 1 << 20,
                                         .idle_ms = 5000,
                                         .head_ms = 5000,
                                         .body_ms = 5000,
                                         .write_ms = 5000};

static void start(struct fixture *fixture, struct http_limits limits) {
    struct http_handlers handlers = {.head = on_head, .request = handle, .refuse = on_refuse, .owner = fixture};
    struct status_note note;
    *fixture = (struct fixture){0};
    assert_int_equal(http_server_create(&fixture->server, &limits, NULL, &handlers, &note), STATUS_OK);
    assert_int_equal(http_server_listen(fixture->server, "127.0.0.1", 0, &fixture->port, &note), STATUS_OK);
    assert_int_equal(http_server_every(fixture->server, 10, on_tick, fixture), STATUS_OK);
    assert_int_equal(thread_start(&fixture->thread, "serve", serve, fixture), STATUS_OK);
}

static void stop(struct fixture *fixture) {
    http_server_stop(fixture->server);
    thread_join(&fixture->thread);
    http_server_destroy(&fixture->server);
}

static int connect_to(const struct fixture *fixture) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)fixture->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Reads until the reply holds end, the connection closes, or wait_ms pass without a byte. Returns the bytes. */
static size_t receive(int fd, char *out, size_t max_bytes, const char *end, int wait_ms) {
    size_t n = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (n < max_bytes - 1 && poll(&wait, 1, wait_ms) > 0) {
        ssize_t n_read = read(fd, out + n, max_bytes - 1 - n);
        if (n_read <= 0) break;
        n += (size_t)n_read;
        out[n] = 0;
        if (end && strstr(out, end)) break;
    }
    out[n] = 0;
    return n;
}

static void say(int fd, const char *text) {
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static bool wait_for(const atomic_int *value, int wanted) {
    for (int i = 0; i < 300 && atomic_load(value) != wanted; i++) thread_sleep_ms(10);
    return atomic_load(value) == wanted;
}

static void a_request_split_at_every_byte_is_the_same(void **state) {
    static const char request[] =
        "POST /echo?q=a%20b HTTP/1.1\r\nHost: x\r\nX-My: 7\r\nx-my: 8\r\nContent-Length: 3\r\n\r\nabc";
    struct fixture fixture;
    char reply[2000];
    (void)state;
    start(&fixture, usual);
    for (size_t cut = 1; cut < sizeof request - 1; cut++) {
        int fd = connect_to(&fixture);
        char first[sizeof request];
        memcpy(first, request, cut);
        first[cut] = 0;
        say(fd, first);
        say(fd, request + cut);
        receive(fd, reply, sizeof reply, "POST a b abc 7 2", 2000);
        assert_non_null(strstr(reply, "200 OK"));
        assert_non_null(strstr(reply, "POST a b abc 7 2"));
        close(fd);
    }
    stop(&fixture);
}

static void a_connection_is_used_again(void **state) {
    struct fixture fixture;
    char reply[2000];
    (void)state;
    start(&fixture, usual);
    int fd = connect_to(&fixture);
    for (int i = 0; i < 3; i++) {
        say(fd, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        receive(fd, reply, sizeof reply, "\r\n0\r\n\r\n", 2000);
        assert_non_null(strstr(reply, "text/event-stream"));
        assert_non_null(strstr(reply, "event: "));
        assert_non_null(strstr(reply, "\r\n0\r\n\r\n"));
    }
    assert_int_equal(http_server_n_connections(fixture.server), 1);
    close(fd);
    stop(&fixture);
}

static void a_client_that_leaves_is_seen(void **state) {
    struct fixture fixture;
    (void)state;
    start(&fixture, usual);
    int fd = connect_to(&fixture);
    say(fd, "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert_true(wait_for(&fixture.n_held, 1));
    int64_t left_ns = clock_now_ns();
    close(fd);
    assert_true(wait_for(&fixture.n_gone, 1));
    assert_true(clock_now_ns() - left_ns < 1000000000);
    stop(&fixture);
    assert_int_equal(atomic_load(&fixture.n_gone), 1);
}

static void a_long_wait_for_the_reply_is_no_idle_connection(void **state) {
    struct fixture fixture;
    char reply[2000];
    (void)state;
    struct http_limits limits = usual;
    limits.idle_ms = limits.head_ms = limits.body_ms = 1000;
    start(&fixture, limits);
    int fd = connect_to(&fixture), silent = connect_to(&fixture);
    say(fd, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(wait_for(&fixture.n_held, 1));
    /* Meanwhile a connection that sends nothing is cut. */
    assert_int_equal(receive(silent, reply, sizeof reply, NULL, 4000), 0);
    struct pollfd wait = {.fd = silent, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 0), 1);
    thread_sleep_ms(1500);
    atomic_store(&fixture.must_answer, true);
    receive(fd, reply, sizeof reply, "late", 3000);
    assert_non_null(strstr(reply, "late"));
    assert_int_equal(atomic_load(&fixture.n_gone), 0);
    close(fd);
    close(silent);
    stop(&fixture);
}

static void a_stream_that_pauses_is_not_cut(void **state) {
    struct fixture fixture;
    char reply[4000];
    (void)state;
    struct http_limits limits = usual;
    limits.idle_ms = limits.head_ms = limits.body_ms = 1000;
    start(&fixture, limits);
    int fd = connect_to(&fixture);
    say(fd, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    receive(fd, reply, sizeof reply, "\r\n0\r\n\r\n", 5000);
    assert_non_null(strstr(reply, "\r\n0\r\n\r\n"));
    assert_int_equal(atomic_load(&fixture.n_gone), 0);
    say(fd, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "200 OK"));
    close(fd);
    stop(&fixture);
}

static void what_comes_during_a_stream_is_not_collected(void **state) {
    static const char junk[1 << 16];
    struct fixture fixture;
    size_t n_taken = 0;
    (void)state;
    start(&fixture, usual);
    int fd = connect_to(&fixture);
    say(fd, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(wait_for(&fixture.n_held, 1));
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    while (n_taken < ((size_t)64 << 20) && poll(&wait, 1, 300) > 0) {
        ssize_t n = send(fd, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) break;
        n_taken += (size_t)n;
    }
    assert_true(n_taken < (size_t)64 << 20); /* what the sockets hold, no more */
    close(fd);
    assert_true(wait_for(&fixture.n_gone, 1));
    stop(&fixture);
}

static void head_brings_the_length_and_no_body(void **state) {
    struct fixture fixture;
    char reply[2000];
    (void)state;
    start(&fixture, usual);
    int fd = connect_to(&fixture);
    say(fd, "HEAD /nothing HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "404 Not Found"));
    assert_non_null(strstr(reply, "Content-Length: 8\r\n"));
    assert_non_null(strstr(reply, "\r\n\r\nHTTP/1.1 200 OK")); /* at once after the first headers */
    close(fd);
    stop(&fixture);
}

static void a_body_whose_end_is_unclear_is_refused(void **state) {
    static const char *const bad[] = {"Content-Length: 3\r\nContent-Length: 4", "Transfer-Encoding: gzip",
                                      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                                      "Content-Length: 3\r\nTransfer-Encoding: chunked"};
    struct fixture fixture;
    char request[300], reply[2000];
    (void)state;
    start(&fixture, usual);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = connect_to(&fixture);
        snprintf(request, sizeof request, "POST /echo HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n3\r\nabc\r\n0\r\n\r\n", bad[i]);
        say(fd, request);
        receive(fd, reply, sizeof reply, NULL, 2000);
        assert_non_null(strstr(reply, "400 Bad Request"));
        assert_null(strstr(reply, "200 OK"));
        assert_non_null(strstr(reply, "Connection: close"));
        close(fd);
    }
    stop(&fixture);
}

static void more_connections_than_allowed_wait(void **state) {
    struct fixture fixture;
    char reply[2000];
    int fds[6];
    (void)state;
    struct http_limits limits = usual;
    limits.max_connections = 4;
    start(&fixture, limits);
    for (int i = 0; i < 6; i++) fds[i] = connect_to(&fixture);
    for (int i = 0; i < 4; i++) {
        say(fds[i], "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
        receive(fds[i], reply, sizeof reply, "GET", 2000);
        assert_non_null(strstr(reply, "200 OK"));
    }
    say(fds[5], "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(receive(fds[5], reply, sizeof reply, NULL, 300), 0);
    for (int i = 0; i < 4; i++) close(fds[i]);
    receive(fds[5], reply, sizeof reply, "GET", 3000);
    assert_non_null(strstr(reply, "200 OK"));
    close(fds[4]);
    close(fds[5]);
    stop(&fixture);
}

static void what_is_too_large_or_garbled_is_refused(void **state) {
    static const char *const bad[] = {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n",
                                      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", "\r\n\r\n",
                                      "GET\r\n\r\n", "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n"};
    struct fixture fixture;
    char reply[2000];
    (void)state;
    struct http_limits limits = usual;
    limits.idle_ms = limits.head_ms = limits.body_ms = 1000;
    start(&fixture, limits);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int fd = connect_to(&fixture);
        say(fd, bad[i]);
        receive(fd, reply, sizeof reply, "\r\n\r\n", 3000);
        assert_null(strstr(reply, "200 OK"));
        close(fd);
    }
    int fd = connect_to(&fixture);
    say(fd, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "200 OK"));
    close(fd);
    stop(&fixture);
}

/* ---- limits ---- */

/* Sends text, a byte every wait_ms; ends when something came back. Returns how long the reply took. */
static int64_t trickle(int fd, const char *text, int wait_ms, char *reply, size_t max_bytes) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int64_t begun_ns = clock_now_ns();
    while (*text && poll(&wait, 1, wait_ms) == 0)
        if (write(fd, text++, 1) != 1) break;
    receive(fd, reply, max_bytes, NULL, 3000);
    return (clock_now_ns() - begun_ns) / 1000000;
}

static void who_sends_slowly_is_told_and_cut(void **state) {
    struct http_limits limits = usual;
    struct fixture fixture;
    char reply[2000];
    (void)state;
    limits.head_ms = 300;
    limits.body_ms = 500;
    start(&fixture, limits);
    int fd = connect_to(&fixture);
    int64_t ms =
        trickle(fd, "GET /echo HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 20, reply, sizeof reply);
    assert_non_null(strstr(reply, "HTTP/1.1 408 Request Timeout"));
    assert_non_null(strstr(reply, "{\"408\""));
    assert_true(ms > 250 && ms < 2500);
    close(fd);
    fd = connect_to(&fixture);
    say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
    ms = trickle(fd, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 20, reply, sizeof reply);
    assert_non_null(strstr(reply, "HTTP/1.1 408 Request Timeout"));
    assert_non_null(strstr(reply, "\"path\": \"/echo\""));
    assert_true(ms > 450 && ms < 2700);
    close(fd);
    stop(&fixture);
}

static void who_asks_nothing_more_is_cut(void **state) {
    struct http_limits limits = usual;
    struct fixture fixture;
    char reply[2000];
    (void)state;
    limits.idle_ms = 300;
    start(&fixture, limits);
    int fd = connect_to(&fixture);
    say(fd, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "200 OK"));
    int64_t begun_ns = clock_now_ns();
    assert_int_equal(receive(fd, reply, sizeof reply, NULL, 3000), 0); /* in silence: it is no fault */
    int64_t ms = (clock_now_ns() - begun_ns) / 1000000;
    assert_true(ms > 250 && ms < 2500);
    close(fd);
    stop(&fixture);
}

static void who_does_not_read_is_cut_at_the_limit(void **state) {
    struct fixture fixture;
    (void)state;
    start(&fixture, usual);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), n_bytes = 4096;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)fixture.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &n_bytes, sizeof n_bytes), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    say(fd, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(wait_for(&fixture.n_gone, 1));
    assert_true(atomic_load(&fixture.n_most_pending) > 1 << 19);
    assert_true(atomic_load(&fixture.n_most_pending) < (1 << 20) + 100000);
    close(fd);
    stop(&fixture);
}

static void who_takes_no_byte_for_too_long_is_cut(void **state) {
    struct http_limits limits = usual;
    struct fixture fixture;
    (void)state;
    limits.write_ms = 300;
    limits.max_unread_bytes = 64 << 20;
    start(&fixture, limits);
    int fd = connect_to(&fixture);
    say(fd, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(wait_for(&fixture.n_gone, 1));
    close(fd);
    stop(&fixture);
}

static void bodies_have_room_together(void **state) {
    static const char begin[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n";
    struct fixture fixture;
    char reply[2000];
    int fds[5];
    (void)state;
    start(&fixture, usual);
    for (int i = 0; i < 4; i++) {
        fds[i] = connect_to(&fixture);
        say(fds[i], begin);
    }
    thread_sleep_ms(100);
    fds[4] = connect_to(&fixture);
    say(fds[4], begin);
    receive(fds[4], reply, sizeof reply, NULL, 1000);
    assert_non_null(strstr(reply, "HTTP/1.1 503"));
    close(fds[4]);
    close(fds[0]);
    thread_sleep_ms(100);
    fds[4] = connect_to(&fixture);
    say(fds[4], begin);
    assert_int_equal(receive(fds[4], reply, sizeof reply, NULL, 200), 0); /* it may send */
    for (int i = 1; i < 5; i++) close(fds[i]);
    stop(&fixture);
}

/* ---- heads without their bodies ---- */

static void what_the_head_decides_needs_no_body(void **state) {
    static char body[60000];
    struct fixture fixture;
    char reply[2000];
    (void)state;
    start(&fixture, usual);
    int fd = connect_to(&fixture);
    say(fd, "POST /never HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n");
    receive(fd, reply, sizeof reply, NULL, 1000);
    assert_non_null(strstr(reply, "403 Forbidden"));
    assert_non_null(strstr(reply, "Connection: close"));
    close(fd);
    /* Who has sent it all keeps the connection. */
    fd = connect_to(&fixture);
    say(fd, "POST /never HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcdeGET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "403 Forbidden"));
    assert_non_null(strstr(reply, "200 OK"));
    assert_null(strstr(reply, "Connection: close"));
    close(fd);
    /* Who still sends when the reply comes can read it: no reset overtakes it. */
    for (int i = 0; i < 20; i++) {
        fd = connect_to(&fixture);
        say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
        assert_true(send(fd, body, 60000, MSG_NOSIGNAL) > 0);
        receive(fd, reply, sizeof reply, NULL, 500);
        assert_non_null(strstr(reply, "413 Content Too Large"));
        assert_non_null(strstr(reply, "too large"));
        close(fd);
    }
    stop(&fixture);
}

static void leave_to_send_is_given_where_the_body_is_wanted(void **state) {
    static const char *const paths[] = {"/echo", "/never"};
    struct fixture fixture;
    char request[200], reply[2000];
    (void)state;
    start(&fixture, usual);
    for (int i = 0; i < 2; i++) {
        int fd = connect_to(&fixture);
        snprintf(request, sizeof request,
                 "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", paths[i]);
        say(fd, request);
        receive(fd, reply, sizeof reply, "\r\n\r\n", 2000);
        assert_int_equal(strncmp(reply, i == 0 ? "HTTP/1.1 100 Continue\r\n\r\n" : "HTTP/1.1 403 ", i == 0 ? 25 : 13),
                         0);
        if (i == 0) {
            say(fd, "abc");
            receive(fd, reply, sizeof reply, "abc", 2000);
            assert_non_null(strstr(reply, "POST - abc"));
        }
        close(fd);
    }
    stop(&fixture);
}

static void chunks_split_at_every_byte_are_one_body(void **state) {
    static const char request[] = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "2\r\nab\r\n1;x\r\nc\r\n0\r\nT: r\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    struct fixture fixture;
    char reply[2000], first[sizeof request];
    (void)state;
    start(&fixture, usual);
    for (size_t cut = 1; cut < sizeof request - 1; cut++) {
        int fd = connect_to(&fixture);
        memcpy(first, request, cut);
        first[cut] = 0;
        say(fd, first);
        thread_sleep_ms(1);
        say(fd, request + cut);
        receive(fd, reply, sizeof reply, "GET", 2000);
        assert_non_null(strstr(reply, "POST - abc"));
        assert_non_null(strstr(reply, "GET - "));
        close(fd);
    }
    stop(&fixture);
}

static void a_stream_to_an_old_client_ends_with_the_connection(void **state) {
    struct fixture fixture;
    char reply[2000];
    (void)state;
    start(&fixture, usual);
    int fd = connect_to(&fixture);
    say(fd, "GET /stream HTTP/1.0\r\n\r\n");
    receive(fd, reply, sizeof reply, NULL, 1000);
    assert_int_equal(strncmp(reply, "HTTP/1.0 200 OK", 15), 0);
    assert_null(strstr(reply, "chunked"));
    assert_string_equal(strstr(reply, "data: "), "data: one\n\nevent: named\ndata: two\n\n");
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char byte;
    assert_int_equal(poll(&wait, 1, 1000), 1);
    assert_int_equal(read(fd, &byte, 1), 0);
    close(fd);
    stop(&fixture);
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
    struct fixture fixture;
    static char request[80000];
    char reply[2000];
    (void)state;
    start(&fixture, usual);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = connect_to(&fixture);
        char wanted[40];
        const char *wide = strchr(cases[i].request, '%');
        int width = wide ? (int)strtol(wide + 1, NULL, 10) : 0;
        snprintf(request, sizeof request, "%.*s%*s%s", wide ? (int)(wide - cases[i].request) : 10000, cases[i].request,
                 width, "", wide ? strchr(wide, 'd') + 1 : "");
        say(fd, request);
        receive(fd, reply, sizeof reply, NULL, 1000);
        snprintf(wanted, sizeof wanted, "HTTP/1.1 %s ", cases[i].code);
        if (strncmp(reply, wanted, 13) != 0) fail_msg("%s: %s", cases[i].request, reply);
        snprintf(wanted, sizeof wanted, "\r\n\r\n{\"%s\"", cases[i].code);
        assert_non_null(strstr(reply, wanted));
        assert_non_null(strstr(reply, "Connection: close"));
        assert_non_null(strstr(reply, "Content-Type: application/json"));
        close(fd);
    }
    stop(&fixture);
}

static void a_method_that_nobody_knows_is_the_handlers_matter(void **state) {
    struct fixture fixture;
    char reply[2000];
    (void)state;
    start(&fixture, usual);
    int fd = connect_to(&fixture);
    say(fd, "BREW /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    receive(fd, reply, sizeof reply, "BREW", 2000);
    assert_non_null(strstr(reply, "200 OK"));
    assert_non_null(strstr(reply, "BREW - "));
    close(fd);
    stop(&fixture);
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
        cmocka_unit_test(a_long_wait_for_the_reply_is_no_idle_connection),
        cmocka_unit_test(a_stream_that_pauses_is_not_cut),
        cmocka_unit_test(what_comes_during_a_stream_is_not_collected),
        cmocka_unit_test(head_brings_the_length_and_no_body),
        cmocka_unit_test(a_body_whose_end_is_unclear_is_refused),
        cmocka_unit_test(more_connections_than_allowed_wait),
        cmocka_unit_test(what_is_too_large_or_garbled_is_refused),
        cmocka_unit_test(who_sends_slowly_is_told_and_cut),
        cmocka_unit_test(who_asks_nothing_more_is_cut),
        cmocka_unit_test(who_does_not_read_is_cut_at_the_limit),
        cmocka_unit_test(who_takes_no_byte_for_too_long_is_cut),
        cmocka_unit_test(bodies_have_room_together),
        cmocka_unit_test(what_the_head_decides_needs_no_body),
        cmocka_unit_test(leave_to_send_is_given_where_the_body_is_wanted),
        cmocka_unit_test(chunks_split_at_every_byte_are_one_body),
        cmocka_unit_test(a_stream_to_an_old_client_ends_with_the_connection),
        cmocka_unit_test(every_fault_has_the_handlers_form),
        cmocka_unit_test(a_method_that_nobody_knows_is_the_handlers_matter),
        cmocka_unit_test(routes_find_method_path_and_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
