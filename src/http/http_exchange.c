#include "http/http_exchange.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/http_exchange_impl.h"
#include "http/http_server.h"

/* ---- life ---- */

static void free_exchange(struct http_exchange *exchange) {
    if (exchange->closed) event_free(exchange->closed);
    if (exchange->has_query) evhttp_clear_headers(&exchange->query);
    http_server_forget(exchange->server, exchange);
    mem_free(exchange->path);
    mem_free(exchange);
}

void http_exchange_drop(struct http_exchange *exchange) {
    evhttp_connection_set_closecb(exchange->connection, NULL, NULL);
    if (!exchange->is_over && exchange->on_gone) exchange->on_gone(exchange->owner);
    free_exchange(exchange);
}

/* evhttp frees the connection, by itself or because we asked. */
static void on_connection_freed(struct evhttp_connection *connection, void *owner) {
    struct http_exchange *exchange = owner;
    struct evhttp_request *request = exchange->request;
    (void)connection;
    http_exchange_drop(exchange);
    /* On an error of the socket evhttp takes an unanswered request off its connection and leaves it to us. */
    if (!evhttp_request_get_connection(request)) evhttp_request_free(request);
}

/* The client closed its side. Seen although evhttp reads nothing while a reply is awaited. */
static void on_closed(evutil_socket_t fd, short what, void *owner) {
    struct http_exchange *exchange = owner;
    (void)fd, (void)what;
    evhttp_connection_free(exchange->connection);
}

static void on_complete(struct evhttp_request *request, void *owner) {
    struct http_exchange *exchange = owner;
    (void)request;
    evhttp_connection_set_closecb(exchange->connection, NULL, NULL);
    free_exchange(exchange);
}

static int hex_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* A path that stands for none (a bad escape, a NUL) stays as it is, and so finds no route. NULL: no memory. */
static char *decode_path(const char *path) {
    size_t n = strlen(path);
    char *out = mem_alloc(n + 1), *end = out;
    if (!out) return NULL;
    for (const char *in = path; *in; in++) {
        int high = *in == '%' ? hex_of(in[1]) : 0, low = *in == '%' && high >= 0 ? hex_of(in[2]) : 0;
        if (high < 0 || low < 0 || (*in == '%' && high == 0 && low == 0)) {
            memcpy(out, path, n + 1);
            return out;
        }
        *end++ = *in == '%' ? (char)(high * 16 + low) : *in;
        if (*in == '%') in += 2;
    }
    *end = 0;
    return out;
}

static evutil_socket_t fd_of(struct evhttp_connection *connection) {
    struct bufferevent *stream = evhttp_connection_get_bufferevent(connection), *below;
    while ((below = bufferevent_get_underlying(stream)) != NULL) stream = below;
    return bufferevent_getfd(stream);
}

struct http_exchange *http_exchange_open(struct http_server *server, struct event_base *base,
                                         struct evhttp_request *request, struct http_exchange **head,
                                         int *n_exchanges) {
    struct http_exchange *exchange = mem_alloc(sizeof *exchange);
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    if (!exchange) return NULL;
    exchange->server = server;
    exchange->request = request;
    exchange->connection = evhttp_request_get_connection(request);
    exchange->received_ns = clock_now_ns();
    exchange->path = decode_path(path ? path : "");
    exchange->closed = event_new(base, fd_of(exchange->connection), EV_CLOSED, on_closed, exchange);
    if (!exchange->path || !exchange->closed || event_add(exchange->closed, NULL) != 0) {
        if (exchange->closed) event_free(exchange->closed);
        mem_free(exchange->path);
        mem_free(exchange);
        return NULL;
    }
    exchange->next = *head;
    if (*head) (*head)->prev = exchange;
    *head = exchange;
    ++*n_exchanges;
    evhttp_connection_set_closecb(exchange->connection, on_connection_freed, exchange);
    evhttp_request_set_on_complete_cb(request, on_complete, exchange);
    return exchange;
}

void http_exchange_on_gone(struct http_exchange *exchange, http_gone_fn *on_gone, void *owner) {
    exchange->on_gone = on_gone;
    exchange->owner = owner;
}

/* ---- the request ---- */

const char *http_exchange_method(const struct http_exchange *exchange) {
    static const struct {
        enum evhttp_cmd_type type;
        const char *name;
    } methods[] = {{EVHTTP_REQ_GET, "GET"},     {EVHTTP_REQ_POST, "POST"},       {EVHTTP_REQ_HEAD, "HEAD"},
                   {EVHTTP_REQ_PUT, "PUT"},     {EVHTTP_REQ_DELETE, "DELETE"},   {EVHTTP_REQ_OPTIONS, "OPTIONS"},
                   {EVHTTP_REQ_TRACE, "TRACE"}, {EVHTTP_REQ_CONNECT, "CONNECT"}, {EVHTTP_REQ_PATCH, "PATCH"}};
    enum evhttp_cmd_type type = evhttp_request_get_command(exchange->request);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (methods[i].type == type) return methods[i].name;
    return "";
}

const char *http_exchange_path(const struct http_exchange *exchange) {
    return exchange->path;
}

const char *http_exchange_query(struct http_exchange *exchange, const char *name) {
    if (!exchange->has_query) {
        const char *text = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(exchange->request));
        if (!text || evhttp_parse_query_str(text, &exchange->query) != 0) return NULL;
        exchange->has_query = true;
    }
    return evhttp_find_header(&exchange->query, name);
}

const char *http_exchange_header(const struct http_exchange *exchange, const char *name) {
    return evhttp_find_header(evhttp_request_get_input_headers(exchange->request), name);
}

int http_exchange_n_headers(const struct http_exchange *exchange, const char *name) {
    const struct evkeyvalq *headers = evhttp_request_get_input_headers(exchange->request);
    int n = 0;
    for (const struct evkeyval *header = headers->tqh_first; header; header = header->next.tqe_next)
        n += strcasecmp(header->key, name) == 0;
    return n;
}

const char *http_exchange_body(const struct http_exchange *exchange, size_t *out_n_bytes) {
    struct evbuffer *body = evhttp_request_get_input_buffer(exchange->request);
    *out_n_bytes = evbuffer_get_length(body);
    const char *bytes = *out_n_bytes ? (const char *)evbuffer_pullup(body, -1) : "";
    if (!bytes) *out_n_bytes = 0;
    return bytes ? bytes : "";
}

int http_exchange_local_port(const struct http_exchange *exchange) {
    return http_server_port_of(bufferevent_getfd(evhttp_connection_get_bufferevent(exchange->connection)));
}

int64_t http_exchange_received_ns(const struct http_exchange *exchange) {
    return exchange->received_ns;
}

/* ---- the reply ---- */

static const char *reason_of(int code) {
    static const struct {
        int code;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {204, "No Content"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {413, "Content Too Large"},
                   {422, "Unprocessable Content"},
                   {429, "Too Many Requests"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"}};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].code == code) return reasons[i].reason;
    return code < 400 ? "OK" : "Error";
}

void http_exchange_set_header(struct http_exchange *exchange, const char *name, const char *value) {
    /* evhttp refuses names and values with line breaks: a header that cannot be sent is left out. */
    struct evkeyvalq *headers = evhttp_request_get_output_headers(exchange->request);
    evhttp_remove_header(headers, name);
    int is_refused = evhttp_add_header(headers, name, value);
    (void)is_refused;
}

void http_exchange_reply(struct http_exchange *exchange, int code, const char *content_type, const char *body,
                         size_t n_bytes) {
    struct evbuffer *out = evhttp_request_get_output_buffer(exchange->request);
    REQUIRE(!exchange->is_started && !exchange->is_over);
    if (content_type) http_exchange_set_header(exchange, "Content-Type", content_type);
    exchange->is_over = true;
    if (evhttp_request_get_command(exchange->request) == EVHTTP_REQ_HEAD) {
        char length[24]; /* of what GET would bring: evhttp itself says no length here, but would send the body */
        snprintf(length, sizeof length, "%zu", n_bytes);
        http_exchange_set_header(exchange, "Content-Length", length);
        n_bytes = 0;
    }
    if (n_bytes && evbuffer_add(out, body, n_bytes) != 0) {
        http_exchange_abort(exchange); /* no memory: a broken connection, not a wrong reply */
        return;
    }
    evhttp_send_reply(exchange->request, code, reason_of(code), NULL);
}

/* evhttp reads on while it writes, without end and into memory, and takes silence for a time-out. */
static void stop_reading(const struct http_exchange *exchange) {
    bufferevent_disable(evhttp_connection_get_bufferevent(exchange->connection), EV_READ);
}

void http_exchange_start(struct http_exchange *exchange, int code, const char *content_type) {
    REQUIRE(!exchange->is_started && !exchange->is_over);
    http_exchange_set_header(exchange, "Content-Type", content_type);
    exchange->is_started = true;
    evhttp_send_reply_start(exchange->request, code, reason_of(code));
    stop_reading(exchange);
}

void http_exchange_send(struct http_exchange *exchange, const char *bytes, size_t n_bytes) {
    REQUIRE(exchange->is_started && !exchange->is_over);
    if (n_bytes == 0) return; /* an empty chunk would end the reply */
    struct evbuffer *chunk = evbuffer_new();
    if (chunk && evbuffer_add(chunk, bytes, n_bytes) == 0) evhttp_send_reply_chunk(exchange->request, chunk);
    if (chunk) evbuffer_free(chunk);
    stop_reading(exchange);
}

void http_exchange_end(struct http_exchange *exchange) {
    REQUIRE(exchange->is_started && !exchange->is_over);
    exchange->is_over = true;
    evhttp_send_reply_end(exchange->request);
}

bool http_exchange_is_started(const struct http_exchange *exchange) {
    return exchange->is_started;
}

void http_exchange_abort(struct http_exchange *exchange) {
    exchange->is_over = true;
    evhttp_connection_free(exchange->connection);
}

size_t http_exchange_n_pending(const struct http_exchange *exchange) {
    struct bufferevent *stream = evhttp_connection_get_bufferevent(exchange->connection);
    size_t n_bytes = 0;
    for (; stream; stream = bufferevent_get_underlying(stream))
        n_bytes += evbuffer_get_length(bufferevent_get_output(stream));
    return n_bytes;
}
