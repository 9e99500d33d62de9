/* sse: server-sent events on an exchange.   Source: WHATWG HTML, 9.2. */
#ifndef KVICK_HTTP_SSE_H
#define KVICK_HTTP_SSE_H

#include "http/http_exchange.h"

/* 200 and text/event-stream, uncached. */
void sse_start(struct http_exchange *exchange);

/* One event; name NULL: unnamed. data must hold no line breaks (JSON written compactly has none). */
void sse_send(struct http_exchange *exchange, const char *name, const char *data, size_t n_bytes);

#endif
