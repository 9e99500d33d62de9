/* sse: server-sent events on an exchange.   Source: WHATWG HTML, 9.2. */
#ifndef KVICK_HTTP_SSE_H
#define KVICK_HTTP_SSE_H

#include "base/str.h"
#include "http/http_exchange.h"

/* 200 and text/event-stream, uncached. */
void sse_start(struct http_exchange *exchange);

/* One event is what is appended between the two; name NULL: unnamed. Its data must hold no line breaks (JSON written
 * compactly has none). Errors: those of str_append. */
WARN_UNUSED enum status sse_begin_event(struct str *out, const char *name);
WARN_UNUSED enum status sse_end_event(struct str *out);

#endif
