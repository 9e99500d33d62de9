/* http_host: an http_server on loopback, on a thread of its own, for tests of what asks servers. It takes every head,
 * and says why in plain text where it refuses. */
#ifndef KVICK_TESTS_HTTP_HOST_H
#define KVICK_TESTS_HTTP_HOST_H

#include "base/thread.h"
#include "http/http_server.h"

struct http_host {
    struct http_server *server;
    struct thread thread;
    int port;
};

/* on_tick: called every 10 ms on the server's thread, or NULL. owner is passed to both. */
void http_host_start(struct http_host *host, http_handle_fn *handle, http_wake_fn *on_tick, void *owner);
void http_host_stop(struct http_host *host);

#endif
