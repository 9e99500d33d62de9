/* http_impl: what http_server, http_connection and http_exchange share. Included by those three files alone.
 *
 * A connection has one request at a time; while its reply is awaited or written nothing is read, so that what a client
 * sends on stays in its socket. Every wait has its limit: for a head, for a body, for a next request, for a reader.
 * Thread: the server's event loop. */
#ifndef KVICK_HTTP_HTTP_IMPL_H
#define KVICK_HTTP_HTTP_IMPL_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>

#include "base/str.h"
#include "http/http_chunked.h"
#include "http/http_exchange.h"
#include "http/http_head.h"
#include "http/http_server.h"

#define HTTP_MAX_LISTENERS 8
#define HTTP_MAX_WATCHES 16
#define HTTP_DATE_BYTES 32

enum http_phase {
    HTTP_IDLE,   /* no byte of a request is there */
    HTTP_HEAD,   /* a part of a head */
    HTTP_BODY,   /* a part of a body */
    HTTP_REPLY,  /* the handler has it */
    HTTP_FLUSH,  /* the reply is whole and on its way */
    HTTP_LINGER, /* it is sent; the rest of what the client sends is thrown away: a reset could destroy the reply */
    HTTP_CUT     /* to be freed when the loop comes round */
};

struct http_connection {
    struct http_server *server;
    struct bufferevent *stream;
    struct event *timer;
    struct event *closed; /* the client left while its reply is awaited */
    enum http_phase phase;
    int64_t since_ns; /* of the phase */
    bool is_last;     /* no further request after this one */
    bool has_unread;  /* and a part of it was not read */
    bool is_at_body;  /* the handler looks at the head; the body is not read */
    size_t n_scanned; /* of a head; of what is thrown away */
    struct http_chunked chunked;
    struct http_exchange *exchange;
    struct http_connection *next, *prev;
    struct http_connection *next_unsent;
    bool has_unsent; /* it is in the server's list */
};

struct http_exchange {
    struct http_connection *connection;
    struct http_head head;
    char *text; /* what head points into */
    struct evbuffer *body;
    size_t n_reserved; /* of max_bodies_bytes */
    struct evkeyvalq query;
    bool has_query;
    struct str lines; /* headers of the reply */
    bool is_started, is_chunked;
    bool is_over; /* the handler has let go of it */
    http_gone_fn *on_gone;
    void *owner;
    int64_t received_ns, read_ns;
};

struct http_watch {
    struct event *event;
    http_wake_fn *call;
    void *owner;
};

struct http_server {
    struct event_base *base;
    struct ssl_ctx_st *tls; /* NULL: plain HTTP */
    struct http_tls tls_files;
    struct http_limits limits;
    struct http_handlers handlers;
    struct evconnlistener *listeners[HTTP_MAX_LISTENERS];
    int n_listeners;
    struct event *resume; /* while full */
    struct http_watch watches[HTTP_MAX_WATCHES];
    int n_watches;
    bool is_full;     /* listeners are paused */
    bool is_stopping; /* no further requests on open connections */
    struct http_connection *connections;
    struct http_connection *unsent; /* with bytes that no write was tried for */
    struct event *send;             /* tries, once the callbacks of this turn have said all they have */
    int n_connections, n_exchanges;
    uint64_t n_replies[HTTP_SERVER_MAX_CODE + 1]; /* by their status */
    size_t n_bodies_bytes;                        /* held by exchanges */
    int64_t date_s;
    char date[HTTP_DATE_BYTES];
};

/* A client that was accepted; fd is taken. */
void http_connection_open(struct http_server *server, int fd);

/* Frees it; a handler that still works is told. */
void http_connection_free(struct http_connection *connection);

/* Likewise when the loop comes round; nothing more is sent. */
void http_connection_cut(struct http_connection *connection);

/* Something was added to its output. */
void http_connection_send(struct http_connection *connection);

/* All that have unsent bytes. */
void http_connection_send_all(struct http_server *server);

/* A reply's head is about to be written. */
void http_connection_begin_reply(struct http_connection *connection);

/* The whole reply is in the output. */
void http_connection_end_reply(struct http_connection *connection);

/* NULL: no memory. */
WARN_UNUSED struct http_exchange *http_exchange_open(struct http_connection *connection);

/* Its body may hold so many more bytes. False: all bodies together have no room. */
WARN_UNUSED bool http_exchange_reserve(struct http_exchange *exchange, size_t n_bytes);
void http_exchange_free(struct http_exchange *exchange);

/* http_server.c: a connection is gone; there may be room again. */
void http_server_forget(struct http_server *server, struct http_connection *connection);

/* The transport of an accepted client; fd is its own then. NULL: no memory. close: says goodbye, if TLS has one. */
WARN_UNUSED struct bufferevent *http_server_open_stream(struct http_server *server, int fd);
void http_server_close_stream(struct http_server *server, struct bufferevent *stream);

/* The value of a Date header. */
const char *http_server_date(struct http_server *server);

#endif
