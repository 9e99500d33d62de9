#include "support/http_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/sse.h"
#include "support/test.h"

static void on_gone(void *owner) {
    struct http_fixture *fixture = owner;
    fixture->held = NULL;
    atomic_fetch_add(&fixture->n_gone, 1);
}

static void on_slow_gone(void *owner) {
    struct http_fixture *fixture = owner;
    fixture->slow = NULL;
    atomic_fetch_add(&fixture->n_gone, 1);
}

static void on_flood_gone(void *owner) {
    struct http_fixture *fixture = owner;
    fixture->flood = NULL;
    atomic_fetch_add(&fixture->n_gone, 1);
}

static void flood(struct http_fixture *fixture) {
    static const char junk[50000];
    for (int i = 0; fixture->flood && i < 10; i++) {
        int n_pending = (int)http_exchange_n_pending(fixture->flood);
        if (n_pending > atomic_load(&fixture->n_most_pending)) atomic_store(&fixture->n_most_pending, n_pending);
        http_exchange_send(fixture->flood, junk, sizeof junk);
    }
}

static void go_on_slowly(struct http_fixture *fixture) {
    if (!fixture->slow || ++fixture->n_ticks % 150) return;
    http_exchange_send(fixture->slow, "data: more\n\n", 12);
    if (--fixture->n_slow_left) return;
    http_exchange_end(fixture->slow);
    fixture->slow = NULL;
}

static void on_tick(void *owner) {
    struct http_fixture *fixture = owner;
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
    struct http_fixture *fixture = owner;
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

const struct http_limits http_fixture_usual = {.max_connections = 16,
                                               .max_body_bytes = 1000,
                                               .max_bodies_bytes = 4000,
                                               .max_unread_bytes = 1 << 20,
                                               .idle_ms = 5000,
                                               .head_ms = 5000,
                                               .body_ms = 5000,
                                               .write_ms = 5000};

void http_fixture_start(struct http_fixture *fixture, struct http_limits limits) {
    struct http_handlers handlers = {.head = on_head, .request = handle, .refuse = on_refuse, .owner = fixture};
    *fixture = (struct http_fixture){0};
    http_host_open(&fixture->host, &limits, &handlers, on_tick);
}

void http_fixture_stop(struct http_fixture *fixture) {
    http_host_stop(&fixture->host);
}

int http_fixture_connect(const struct http_fixture *fixture, int receive_bytes) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)fixture->host.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (receive_bytes) assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

size_t http_fixture_receive(int fd, char *out, size_t max_bytes, const char *end, int wait_ms) {
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

void http_fixture_say(int fd, const char *text) {
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

bool http_fixture_wait(const atomic_int *value, int wanted) {
    for (int i = 0; i < 300 && atomic_load(value) != wanted; i++) thread_sleep_ms(10);
    return atomic_load(value) == wanted;
}
