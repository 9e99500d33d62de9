/* http_server: HTTP/1.1 on one thread: an event loop, its listeners, its limits. Knows no LLM.
 *
 * Thread: the one that calls http_server_run; everything but http_server_stop belongs to it.
 * Memory: bounded by the limits: max_connections heads of 64 kB, max_bodies_bytes, and max_unread_bytes for each reply
 * that is streamed.   Decision: docs/decisions/http-connections.md. */
#ifndef KVICK_HTTP_HTTP_SERVER_H
#define KVICK_HTTP_HTTP_SERVER_H

#include "http/http_exchange.h"

struct http_server;

#define HTTP_SERVER_MAX_CODE 599

typedef void http_handle_fn(void *owner, struct http_exchange *exchange);
typedef bool http_head_fn(void *owner, struct http_exchange *exchange);
typedef void http_refuse_fn(void *owner, struct http_exchange *exchange, int code, const char *why);

/* All of them are needed. */
struct http_handlers {
    /* The head is read, its body is not. True: the body may come; false: it was replied at once, from the head. */
    http_head_fn *head;
    /* The request is whole. */
    http_handle_fn *request;
    /* It is none, or comes too slowly, or is too large: to be replied at once with code. The exchange has the parts of
     * the head that could be read. */
    http_refuse_fn *refuse;
    void *owner;
};

struct http_limits {
    int max_connections;     /* or fewer where file descriptors are; later ones wait in the backlog */
    size_t max_body_bytes;   /* else 413 */
    size_t max_bodies_bytes; /* of all requests that are there; else 503 */
    size_t max_unread_bytes; /* of a streamed reply; then the connection is cut */
    int idle_ms;             /* without a byte of a request, between requests too */
    int head_ms;             /* from a head's first byte to its last; else 408 */
    int body_ms;             /* of a body, and a second more for each 16 kB that came; else 408 */
    int write_ms;            /* a reader takes no byte of what is there for it */
};

struct http_tls {
    const char *cert_file, *key_file; /* PEM; both NULL: plain HTTP */
};

/* Errors: STATUS_NOMEM, STATUS_INVALID (certificates, with the file in note), STATUS_LIMIT (no event loop to be had).
 */
WARN_UNUSED enum status http_server_create(struct http_server **out_server, const struct http_limits *limits,
                                           const struct http_tls *tls, const struct http_handlers *handlers,
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

/* No new connections from here on, and no further requests on those that are open. */
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

/* The loop itself, for a client library with an adapter to it. */
struct event_base;
struct event_base *http_server_loop(struct http_server *server);

int http_server_n_connections(const struct http_server *server);
int http_server_n_exchanges(const struct http_server *server);

/* Replies ever whose head was sent with this status, 0 .. HTTP_SERVER_MAX_CODE. */
uint64_t http_server_n_replies(const struct http_server *server, int code);

#endif
