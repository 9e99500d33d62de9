/* http_host: an http_server on loopback, on a thread of its own, of tests. Usually it takes every head, and says why in
 * plain text where it refuses. */
#ifndef KVICK_TESTS_HTTP_HOST_H
#define KVICK_TESTS_HTTP_HOST_H

#include "base/thread.h"
#include "http/http_server.h"

struct http_host {
    struct http_server *server;
    struct thread thread;
    int port;
};

/* With limits and handlers of the test's own. on_tick: called every 10 ms on the server's thread with the handlers'
 * owner, or NULL. */
void http_host_open(struct http_host *host, const struct http_limits *limits, const struct http_handlers *handlers,
                    http_wake_fn *on_tick);

/* With the usual ones. owner is passed to handle and on_tick. */
void http_host_start(struct http_host *host, http_handle_fn *handle, http_wake_fn *on_tick, void *owner);
void http_host_stop(struct http_host *host);

#endif
