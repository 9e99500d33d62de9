/* http_exchange_impl: what http_server and http_exchange share about libevent. Included by those two files alone. */
#ifndef KVICK_HTTP_HTTP_EXCHANGE_IMPL_H
#define KVICK_HTTP_HTTP_EXCHANGE_IMPL_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>

#include "http/http_exchange.h"

struct http_exchange {
    struct http_server *server;
    struct evhttp_request *request;
    struct evhttp_connection *connection;
    struct event *closed; /* the client left */
    char *path;
    struct evkeyvalq query;
    bool has_query;
    bool is_started;
    bool is_over; /* the handler has let go of it */
    http_gone_fn *on_gone;
    void *owner;
    int64_t received_ns;
    struct http_exchange *next, *prev; /* all of the server */
};

/* Makes the exchange of a request that was read, linked into *head. NULL: no memory. */
WARN_UNUSED struct http_exchange *http_exchange_open(struct http_server *server, struct event_base *base,
                                                     struct evhttp_request *request, struct http_exchange **head,
                                                     int *n_exchanges);

/* The connection goes: tells the handler if it still waits, and frees the exchange. */
void http_exchange_drop(struct http_exchange *exchange);

/* http_server.c: unlinks a freed exchange. */
void http_server_forget(struct http_server *server, struct http_exchange *exchange);

#endif
