#include "support/http_host.h"

#include <string.h>

#include "support/test.h"

#define TICK_MS 10

static void serve(void *owner) {
    struct http_host *host = owner;
    http_server_run(host->server);
}

static bool on_head(void *owner, struct http_exchange *exchange) {
    (void)owner;
    (void)exchange;
    return true;
}

static void on_refuse(void *owner, struct http_exchange *exchange, int code, const char *why) {
    (void)owner;
    http_exchange_reply(exchange, code, "text/plain", why, strlen(why));
}

void http_host_open(struct http_host *host, const struct http_limits *limits, const struct http_handlers *handlers,
                    http_wake_fn *on_tick) {
    struct status_note note;
    assert_int_equal(http_server_create(&host->server, limits, NULL, handlers, &note), STATUS_OK);
    assert_int_equal(http_server_listen(host->server, "127.0.0.1", 0, &host->port, &note), STATUS_OK);
    if (on_tick) assert_int_equal(http_server_every(host->server, TICK_MS, on_tick, handlers->owner), STATUS_OK);
    assert_int_equal(thread_start(&host->thread, "serve", serve, host), STATUS_OK);
}

void http_host_start(struct http_host *host, http_handle_fn *handle, http_wake_fn *on_tick, void *owner) {
    struct http_limits limits = {.max_connections = 64,
                                 .max_body_bytes = 100000,
                                 .max_bodies_bytes = 6400000,
                                 .max_unread_bytes = 1 << 20,
                                 .idle_ms = 20000,
                                 .head_ms = 20000,
                                 .body_ms = 20000,
                                 .write_ms = 20000};
    struct http_handlers handlers = {.head = on_head, .request = handle, .refuse = on_refuse, .owner = owner};
    http_host_open(host, &limits, &handlers, on_tick);
}

void http_host_stop(struct http_host *host) {
    http_server_stop(host->server);
    thread_join(&host->thread);
    http_server_destroy(&host->server);
}
