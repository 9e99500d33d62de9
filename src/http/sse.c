#include "http/sse.h"

#include <string.h>

void sse_start(struct http_exchange *exchange) {
    http_exchange_set_header(exchange, "Cache-Control", "no-cache");
    http_exchange_set_header(exchange, "X-Accel-Buffering", "no"); /* proxies that would collect the stream */
    http_exchange_start(exchange, 200, "text/event-stream; charset=utf-8");
}

void sse_send(struct http_exchange *exchange, const char *name, const char *data, size_t n_bytes) {
    if (name) {
        http_exchange_send(exchange, "event: ", 7);
        http_exchange_send(exchange, name, strlen(name));
        http_exchange_send(exchange, "\n", 1);
    }
    http_exchange_send(exchange, "data: ", 6);
    http_exchange_send(exchange, data, n_bytes);
    http_exchange_send(exchange, "\n\n", 2);
}
