/* http_server: HTTP/1.1 on one thread: an event loop, its listeners, its limits. Knows no LLM.
 *
 * Thread: the one that calls http_server_run; everything but http_server_stop belongs to it.
 * Limits: max_connections, or fewer where file descriptors are, are held at a time (later ones wait in the backlog), a
 * body is at most max_body_bytes and
 * headers 64 kB, and a connection that neither sends nor takes bytes for idle_s is closed, so memory is bounded by
 * max_connections * (max_body_bytes + what handlers send). */
#ifndef KVICK_HTTP_HTTP_SERVER_H
#define KVICK_HTTP_HTTP_SERVER_H

#include "http/http_exchange.h"

struct http_server;

/* Called for every request whose headers and body were read. */
typedef void http_handle_fn(void *owner, struct http_exchange *exchange);

struct http_limits {
    int max_connections;
    size_t max_body_bytes;
    int idle_s; /* of a connection, while no reply is awaited */
};

struct http_tls {
    const char *cert_file, *key_file; /* PEM; both NULL: plain HTTP */
};

/* Errors: STATUS_NOMEM, STATUS_INVALID (certificates, with the file in note), STATUS_LIMIT (no event loop to be had).
 */
WARN_UNUSED enum status http_server_create(struct http_server **out_server, const struct http_limits *limits,
                                           const struct http_tls *tls, http_handle_fn *handle, void *owner,
                                           struct status_note *note);

/* Ends all connections; handlers learn of it by on_gone. */
void http_server_destroy(struct http_server **server);

/* Another address to listen on; port 0 takes a free one, told by out_port (may be NULL).
 * Errors: STATUS_IO with address and reason in note. */
WARN_UNUSED enum status http_server_listen(struct http_server *server, const char *host, int port, int *out_port,
                                           struct status_note *note);

/* A socket that listens already (given by a service manager); taken over. */
WARN_UNUSED enum status http_server_listen_fd(struct http_server *server, int fd, struct status_note *note);

/* The TCP port that a socket has on this side; 0: none. */
int http_server_port_of(int fd);

/* No new connections from here on; those open go on. */
void http_server_stop_listening(struct http_server *server);

/* Reads certificate and key again; on failure the old ones stay. Errors: STATUS_INVALID with the file in note. */
WARN_UNUSED enum status http_server_reload_tls(struct http_server *server, struct status_note *note);

/* Runs until http_server_stop. */
void http_server_run(struct http_server *server);

/* Thread: any. */
void http_server_stop(struct http_server *server);

/* fd readable -> call, as long as the server lives (an eventfd of a ring). */
typedef void http_wake_fn(void *owner);
WARN_UNUSED enum status http_server_watch(struct http_server *server, int fd, http_wake_fn *wake, void *owner);

/* Every interval_ms. */
WARN_UNUSED enum status http_server_every(struct http_server *server, int interval_ms, http_wake_fn *tick, void *owner);

/* signal_number -> call, on the loop's thread. */
WARN_UNUSED enum status http_server_on_signal(struct http_server *server, int signal_number, http_wake_fn *call,
                                              void *owner);

/* Counts them: not for every request. */
int http_server_n_connections(const struct http_server *server);
int http_server_n_exchanges(const struct http_server *server);

#endif
