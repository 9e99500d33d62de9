#include "http/sse.h"

void sse_start(struct http_exchange *exchange) {
    http_exchange_set_header(exchange, "Cache-Control", "no-cache");
    http_exchange_set_header(exchange, "X-Accel-Buffering", "no"); /* proxies that would collect the stream */
    http_exchange_start(exchange, 200, "text/event-stream; charset=utf-8");
}

enum status sse_begin_event(struct str *out, const char *name) {
    if (!name) return str_append_text(out, "data: ");
    return str_append_fmt(out, "event: %s\ndata: ", name);
}

enum status sse_end_event(struct str *out) {
    return str_append_text(out, "\n\n");
}
