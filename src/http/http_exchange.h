/* http_exchange: one request and its reply.
 *
 * A handler gets it and owns it until it calls http_exchange_reply or http_exchange_end; afterwards it must not touch
 * it. It may reply at once or later. When the client leaves first, on_gone is called once, and the exchange is no
 * longer the handler's: whoever works for it should stop. Thread: the server's event loop.   Memory: one per connection
 * at a time. */
#ifndef KVICK_HTTP_HTTP_EXCHANGE_H
#define KVICK_HTTP_HTTP_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct http_exchange;

typedef void http_gone_fn(void *owner);

/* ---- the request ---- */

/* "GET", "POST", any word; "" if the request's head could not be read. */
const char *http_exchange_method(const struct http_exchange *exchange);

/* Decoded, without the query. */
const char *http_exchange_path(const struct http_exchange *exchange);

/* A parameter of the query, decoded; NULL: absent. Valid as long as the exchange. */
const char *http_exchange_query(struct http_exchange *exchange, const char *name);

/* Any case of name; NULL: absent. Of several equal ones the first. */
const char *http_exchange_header(const struct http_exchange *exchange, const char *name);

/* How often a header was sent. */
int http_exchange_n_headers(const struct http_exchange *exchange, const char *name);

/* The whole body, contiguous; valid until drop_body, or as long as the exchange. */
const char *http_exchange_body(const struct http_exchange *exchange, size_t *out_n_bytes);

/* It is needed no more: its room is for others while the reply is awaited. */
void http_exchange_drop_body(struct http_exchange *exchange);

/* When its first byte and its last byte were seen, by clock_now_ns. */
int64_t http_exchange_received_ns(const struct http_exchange *exchange);
int64_t http_exchange_read_ns(const struct http_exchange *exchange);

/* The TCP port that the client connected to; 0: it came by something else. */
int http_exchange_local_port(const struct http_exchange *exchange);

/* ---- the reply ---- */

/* Before reply or start. Names and values with line breaks are dropped. */
void http_exchange_set_header(struct http_exchange *exchange, const char *name, const char *value);

/* The whole reply; body is copied. Ends the exchange. */
void http_exchange_reply(struct http_exchange *exchange, int code, const char *content_type, const char *body,
                         size_t n_bytes);

/* A reply in pieces, chunked: start once, then send, then end. Bytes are copied and leave before the loop sleeps. Who
 * lets more than max_unread_bytes wait is cut; on_gone tells, when the loop comes round. */
void http_exchange_start(struct http_exchange *exchange, int code, const char *content_type);
void http_exchange_send(struct http_exchange *exchange, const char *bytes, size_t n_bytes);
void http_exchange_end(struct http_exchange *exchange);

bool http_exchange_is_started(const struct http_exchange *exchange);

/* Cuts the connection: the client sees a broken reply. Ends the exchange; on_gone is not called. */
void http_exchange_abort(struct http_exchange *exchange);

/* Bytes sent that the client has not taken yet. */
size_t http_exchange_n_pending(const struct http_exchange *exchange);

void http_exchange_on_gone(struct http_exchange *exchange, http_gone_fn *on_gone, void *owner);

#endif
