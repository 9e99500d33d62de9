/* http_peer: another service that is asked from the event loop, a POST with JSON and its reply; never blocks.
 *
 * One connection for each question: a service that restarts, hangs or dies costs that question and no other.
 * Thread: the server's event loop.   Memory: max_asks questions at a time, each with its text and a reply of at most
 * max_reply_bytes. */
#ifndef KVICK_HTTP_HTTP_PEER_H
#define KVICK_HTTP_HTTP_PEER_H

#include "http/http_server.h"

struct http_peer;
struct http_ask;

struct http_peer_limits {
    int timeout_ms; /* of a question, connecting included */
    int max_asks;   /* at a time */
    size_t max_reply_bytes;
};

/* address: "unix:PATH" (asked at /) or "http://HOST[:PORT][/PATH]"; a name is looked up here and not again.
 * Errors: STATUS_INVALID with the address in note, STATUS_NOMEM. */
WARN_UNUSED enum status http_peer_open(struct http_peer **out_peer, struct http_server *server, const char *address,
                                       const struct http_peer_limits *limits, struct status_note *note);

/* Questions that are open are dropped; nobody is told. */
void http_peer_close(struct http_peer **peer);

/* status: STATUS_OK with a reply of that code, whole; else what went wrong (STATUS_TIMEOUT, STATUS_PEER, STATUS_FORMAT,
 * STATUS_LIMIT) in note. Called once, from the loop. */
typedef void http_peer_told_fn(void *owner, enum status status, int code, const char *body, size_t n_bytes,
                               const struct status_note *note);

/* Errors, and nothing is told then: STATUS_BUSY (max_asks are open), STATUS_NOMEM, STATUS_PEER (nobody listens). */
WARN_UNUSED enum status http_peer_ask(struct http_peer *peer, const char *body, size_t n_bytes, http_peer_told_fn *told,
                                      void *owner, struct http_ask **out_ask);

/* Nothing will be told of it. */
void http_peer_drop(struct http_ask *ask);

#endif
