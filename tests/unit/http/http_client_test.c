/* http_client: against our own server on loopback, and against sockets that misbehave. */
#include "support/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/http_client.h"
#include "http/sse.h"
#include "support/http_host.h"

struct fixture {
    struct http_host host;
    struct http_exchange *held[64];
    int n_held;
};

struct seen {
    char text[4000];
    size_t n_bytes;
    int n_pieces, n_ends, code;
    bool has_enough;
    struct http_client_result result;
};

static void handle(void *owner, struct http_exchange *exchange) {
    struct fixture *fixture = owner;
    const char *path = http_exchange_path(exchange);
    char text[200];
    size_t n_body;
    const char *body = http_exchange_body(exchange, &n_body), *key = http_exchange_header(exchange, "x-key");
    snprintf(text, sizeof text, "%s %.*s %s", http_exchange_method(exchange), (int)n_body, body, key ? key : "-");
    if (strcmp(path, "/echo") == 0) {
        http_exchange_reply(exchange, 200, "text/plain", text, strlen(text));
    } else if (strcmp(path, "/busy") == 0) {
        http_exchange_set_header(exchange, "Retry-After", "7");
        http_exchange_reply(exchange, 429, "text/plain", "later", 5);
    } else if (strcmp(path, "/hold") == 0) {
        fixture->held[fixture->n_held++] = exchange; /* the test ends the server before they are answered */
    } else if (strcmp(path, "/gather") == 0) {
        /* Nobody is answered before all are there: they must be under way at the same time. */
        fixture->held[fixture->n_held++] = exchange;
        if (fixture->n_held < 20) return;
        for (int i = 0; i < 20; i++) http_exchange_reply(fixture->held[i], 200, "text/plain", "all", 3);
        fixture->n_held = 0;
    } else {
        sse_start(exchange);
        http_exchange_send(exchange, "data: one\n\n", 11);
        if (strcmp(path, "/cut") == 0)
            http_exchange_abort(exchange);
        else
            http_exchange_end(exchange);
    }
}

static void start(struct fixture *fixture) {
    *fixture = (struct fixture){0};
    http_host_start(&fixture->host, handle, NULL, fixture);
}

static void stop(struct fixture *fixture) {
    http_host_stop(&fixture->host);
}

static bool on_bytes(void *owner, int code, const char *bytes, size_t n_bytes) {
    struct seen *seen = owner;
    assert_true(seen->n_bytes + n_bytes < sizeof seen->text);
    memcpy(seen->text + seen->n_bytes, bytes, n_bytes);
    seen->n_bytes += n_bytes;
    seen->n_pieces++;
    seen->code = code;
    return !seen->has_enough;
}

static void on_end(void *owner, const struct http_client_result *result) {
    struct seen *seen = owner;
    seen->result = *result;
    seen->n_ends++;
}

static const struct http_client_handlers handlers = {on_bytes, on_end};

static const char *url(const struct fixture *fixture, const char *path) {
    static char text[100];
    snprintf(text, sizeof text, "http://127.0.0.1:%d%s", fixture->host.port, path);
    return text;
}

static struct seen ask(struct http_client *client, const char *where, bool has_enough, int timeout_ms) {
    struct seen seen = {.has_enough = has_enough};
    struct http_client_request request = {.url = where, .timeout_ms = timeout_ms};
    struct status_note note;
    assert_int_equal(http_client_start(client, &request, &handlers, &seen, NULL, &note), STATUS_OK);
    for (int64_t until_ns = clock_now_ns() + INT64_C(20000000000); !seen.n_ends && clock_now_ns() < until_ns;)
        http_client_run(client, 100);
    assert_int_equal(seen.n_ends, 1);
    return seen;
}

static void requests_and_their_replies(void **state) {
    struct fixture fixture;
    struct http_client *client;
    struct http_client_result result;
    struct status_note note;
    struct str body;
    (void)state;
    start(&fixture);
    assert_int_equal(http_client_create(&client, 4, &note), STATUS_OK);
    str_init(&body, 100);
    struct http_client_request request = {url(&fixture, "/echo"), {"X-Key: 9"}, 1, "abc", 3, 5000};
    assert_int_equal(http_client_fetch(client, &request, &body, &result, &note), STATUS_OK);
    assert_string_equal(body.ptr, "POST abc 9");
    assert_int_equal(result.code, 200);
    str_clear(&body);
    request = (struct http_client_request){.url = url(&fixture, "/echo"), .timeout_ms = 5000};
    assert_int_equal(http_client_fetch(client, &request, &body, &result, &note), STATUS_OK);
    assert_string_equal(body.ptr, "GET  -"); /* nothing of the one before */
    str_deinit(&body);
    struct seen seen = ask(client, url(&fixture, "/busy"), false, 5000);
    assert_int_equal(seen.code, 429);
    assert_int_equal(seen.result.retry_after_s, 7);
    assert_int_equal(seen.result.end, HTTP_CLIENT_DONE);
    assert_string_equal(seen.text, "later");
    str_init(&body, 3);
    request.url = url(&fixture, "/busy");
    assert_int_equal(http_client_fetch(client, &request, &body, &result, &note), STATUS_LIMIT);
    str_deinit(&body);
    http_client_destroy(&client);
    stop(&fixture);
}

static void every_end_has_its_name(void **state) {
    struct fixture fixture;
    struct http_client *client;
    struct status_note note;
    (void)state;
    start(&fixture);
    assert_int_equal(http_client_create(&client, 4, &note), STATUS_OK);
    struct seen seen = ask(client, url(&fixture, "/stream"), false, 5000);
    assert_int_equal(seen.result.end, HTTP_CLIENT_DONE);
    assert_string_equal(seen.text, "data: one\n\n");
    seen = ask(client, url(&fixture, "/cut"), false, 5000);
    assert_int_equal(seen.result.end, HTTP_CLIENT_CUT);
    assert_true(seen.result.error[0]);
    assert_int_equal(ask(client, url(&fixture, "/stream"), true, 5000).result.end, HTTP_CLIENT_ENOUGH);
    assert_int_equal(ask(client, url(&fixture, "/hold"), false, 200).result.end, HTTP_CLIENT_TIMEOUT);
    stop(&fixture);
    assert_int_equal(ask(client, url(&fixture, "/echo"), false, 5000).result.end, HTTP_CLIENT_NO_SERVER);
    http_client_destroy(&client);
}

static void many_at_the_same_time(void **state) {
    struct fixture fixture;
    struct http_client *client;
    struct status_note note;
    struct seen seen[20] = {0};
    (void)state;
    start(&fixture);
    assert_int_equal(http_client_create(&client, 20, &note), STATUS_OK);
    struct http_client_request request = {.url = url(&fixture, "/gather"), .timeout_ms = 10000};
    for (int i = 0; i < 20; i++)
        assert_int_equal(http_client_start(client, &request, &handlers, &seen[i], NULL, &note), STATUS_OK);
    assert_int_equal(http_client_start(client, &request, &handlers, &seen[0], NULL, &note), STATUS_BUSY);
    while (http_client_run(client, 100)) continue;
    for (int i = 0; i < 20; i++) {
        assert_string_equal(seen[i].text, "all");
        assert_int_equal(seen[i].n_ends, 1);
    }
    http_client_destroy(&client);
    stop(&fixture);
}

static void what_is_cancelled_is_silent(void **state) {
    struct fixture fixture;
    struct http_client *client;
    struct http_client_transfer *transfer;
    struct status_note note;
    struct seen seen = {0};
    (void)state;
    start(&fixture);
    assert_int_equal(http_client_create(&client, 1, &note), STATUS_OK);
    struct http_client_request request = {.url = url(&fixture, "/hold"), .timeout_ms = 10000};
    assert_int_equal(http_client_start(client, &request, &handlers, &seen, &transfer, &note), STATUS_OK);
    for (int i = 0; i < 20; i++) assert_int_equal(http_client_run(client, 5), 1);
    http_client_cancel(client, &transfer);
    assert_null(transfer);
    assert_int_equal(http_client_run(client, 0), 0);
    assert_int_equal(seen.n_ends, 0);
    assert_string_equal(ask(client, url(&fixture, "/echo"), false, 5000).text, "GET  -"); /* its place is free */
    request.url = url(&fixture, "/hold");
    assert_int_equal(http_client_start(client, &request, &handlers, &seen, NULL, &note), STATUS_OK);
    http_client_destroy(&client); /* with one under way */
    stop(&fixture);
}

static void urls_that_are_none(void **state) {
    static const char *const urls[] = {"", "ftp://x", "file:///etc/passwd", "127.0.0.1:80", "HTTP"};
    struct http_client *client;
    struct status_note note;
    struct seen seen = {0};
    (void)state;
    assert_int_equal(http_client_create(&client, 1, &note), STATUS_OK);
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct http_client_request request = {.url = urls[i], .timeout_ms = 100};
        assert_int_equal(http_client_start(client, &request, &handlers, &seen, NULL, &note), STATUS_INVALID);
        assert_non_null(strstr(note.text, "http://"));
    }
    assert_int_equal(ask(client, "http://[", false, 1000).result.end, HTTP_CLIENT_NO_SERVER);
    http_client_destroy(&client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_and_their_replies), cmocka_unit_test(every_end_has_its_name),
        cmocka_unit_test(many_at_the_same_time),      cmocka_unit_test(what_is_cancelled_is_silent),
        cmocka_unit_test(urls_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
