#include "http/http_exchange.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <event2/http.h>

#include "base/mem.h"
#include "http/http_impl.h"

#define MAX_LINES_BYTES 16384

/* ---- life ---- */

struct http_exchange *http_exchange_open(struct http_connection *connection) {
    struct http_exchange *exchange = mem_alloc(sizeof *exchange);
    if (exchange) exchange->body = evbuffer_new();
    if (!exchange || !exchange->body) {
        mem_free(exchange);
        return NULL;
    }
    exchange->connection = connection;
    exchange->head = (struct http_head){.method = "", .path = "", .minor_version = 1};
    exchange->received_ns = exchange->read_ns = connection->since_ns;
    str_init(&exchange->lines, MAX_LINES_BYTES);
    connection->server->n_exchanges++;
    return exchange;
}

void http_exchange_free(struct http_exchange *exchange) {
    struct http_connection *connection = exchange->connection;
    connection->exchange = NULL;
    connection->server->n_exchanges--;
    http_exchange_drop_body(exchange);
    evbuffer_free(exchange->body);
    if (exchange->has_query) evhttp_clear_headers(&exchange->query);
    str_deinit(&exchange->lines);
    mem_free(exchange->text);
    mem_free(exchange);
}

bool http_exchange_reserve(struct http_exchange *exchange, size_t n_bytes) {
    struct http_server *server = exchange->connection->server;
    if (n_bytes > server->limits.max_bodies_bytes - server->n_bodies_bytes) return false;
    server->n_bodies_bytes += n_bytes;
    exchange->n_reserved += n_bytes;
    return true;
}

void http_exchange_drop_body(struct http_exchange *exchange) {
    exchange->connection->server->n_bodies_bytes -= exchange->n_reserved;
    exchange->n_reserved = 0;
    evbuffer_drain(exchange->body, evbuffer_get_length(exchange->body));
}

void http_exchange_on_gone(struct http_exchange *exchange, http_gone_fn *on_gone, void *owner) {
    exchange->on_gone = on_gone;
    exchange->owner = owner;
}

/* ---- the request ---- */

const char *http_exchange_method(const struct http_exchange *exchange) {
    return exchange->head.method;
}

const char *http_exchange_path(const struct http_exchange *exchange) {
    return exchange->head.path;
}

const char *http_exchange_query(struct http_exchange *exchange, const char *name) {
    if (!exchange->has_query) {
        const char *text = exchange->head.query;
        if (!text || evhttp_parse_query_str(text, &exchange->query) != 0) return NULL;
        exchange->has_query = true;
    }
    return evhttp_find_header(&exchange->query, name);
}

const char *http_exchange_header(const struct http_exchange *exchange, const char *name) {
    return http_head_find(&exchange->head, name);
}

int http_exchange_n_headers(const struct http_exchange *exchange, const char *name) {
    return http_head_count(&exchange->head, name);
}

const char *http_exchange_body(const struct http_exchange *exchange, size_t *out_n_bytes) {
    *out_n_bytes = evbuffer_get_length(exchange->body);
    const char *bytes = *out_n_bytes ? (const char *)evbuffer_pullup(exchange->body, -1) : "";
    if (!bytes) *out_n_bytes = 0;
    return bytes ? bytes : "";
}

int http_exchange_local_port(const struct http_exchange *exchange) {
    return http_server_port_of(bufferevent_getfd(exchange->connection->stream));
}

int64_t http_exchange_received_ns(const struct http_exchange *exchange) {
    return exchange->received_ns;
}

int64_t http_exchange_read_ns(const struct http_exchange *exchange) {
    return exchange->read_ns;
}

/* ---- the reply's head ---- */

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
                   {417, "Expectation Failed"},
                   {422, "Unprocessable Content"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].code == code) return reasons[i].reason;
    return code < 400 ? "OK" : "Error";
}

/* Takes out the line that begins with name. */
static void remove_line(struct str *lines, const char *name) {
    size_t n_name = strlen(name);
    for (char *line = lines->ptr, *end; *line; line = end) {
        end = strstr(line, "\r\n") + 2;
        if (strncasecmp(line, name, n_name) != 0 || line[n_name] != ':') continue;
        memmove(line, end, lines->n_bytes - (size_t)(end - lines->ptr) + 1);
        lines->n_bytes -= (size_t)(end - line);
        return;
    }
}

void http_exchange_set_header(struct http_exchange *exchange, const char *name, const char *value) {
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) return;
    remove_line(&exchange->lines, name);
    /* One that finds no memory, or is too long, is left out. */
    enum status status = str_append_fmt(&exchange->lines, "%s: %s\r\n", name, value);
    (void)status;
}

/* Status line and headers. False: no memory. */
static bool write_head(struct http_exchange *exchange, int code) {
    struct http_connection *connection = exchange->connection;
    struct evbuffer *out = bufferevent_get_output(connection->stream);
    int minor = exchange->head.minor_version;
    REQUIRE(code >= 100 && code <= HTTP_SERVER_MAX_CODE);
    connection->server->n_replies[code]++;
    http_connection_begin_reply(connection);
    if (connection->is_last)
        http_exchange_set_header(exchange, "Connection", "close");
    else if (minor == 0)
        http_exchange_set_header(exchange, "Connection", "keep-alive");
    return evbuffer_add_printf(out, "HTTP/1.%d %d %s\r\nDate: %s\r\n", minor, code, reason_of(code),
                               http_server_date(connection->server)) > 0 &&
           evbuffer_add(out, exchange->lines.ptr, exchange->lines.n_bytes) == 0 && evbuffer_add(out, "\r\n", 2) == 0;
}

/* ---- replies ---- */

static bool is_head(const struct http_exchange *exchange) {
    return strcmp(exchange->head.method, "HEAD") == 0;
}

void http_exchange_reply(struct http_exchange *exchange, int code, const char *content_type, const char *body,
                         size_t n_bytes) {
    struct http_connection *connection = exchange->connection;
    char length[24];
    REQUIRE(!exchange->is_started && !exchange->is_over);
    exchange->is_over = true;
    if (connection->phase == HTTP_CUT) return;
    if (content_type) http_exchange_set_header(exchange, "Content-Type", content_type);
    snprintf(length, sizeof length, "%zu", n_bytes);
    if (code != 204) http_exchange_set_header(exchange, "Content-Length", length);
    bool is_written = write_head(exchange, code);
    if (is_written && n_bytes && !is_head(exchange) && code != 204)
        is_written = evbuffer_add(bufferevent_get_output(connection->stream), body, n_bytes) == 0;
    if (is_written)
        http_connection_end_reply(connection);
    else
        http_connection_cut(connection); /* no memory: a broken connection, not a wrong reply */
}

void http_exchange_start(struct http_exchange *exchange, int code, const char *content_type) {
    struct http_connection *connection = exchange->connection;
    REQUIRE(!exchange->is_started && !exchange->is_over);
    exchange->is_started = true;
    if (connection->phase == HTTP_CUT) return;
    http_exchange_set_header(exchange, "Content-Type", content_type);
    exchange->is_chunked = exchange->head.minor_version == 1;
    if (exchange->is_chunked)
        http_exchange_set_header(exchange, "Transfer-Encoding", "chunked");
    else
        connection->is_last = true; /* its end is the reply's end */
    if (write_head(exchange, code))
        http_connection_send(connection);
    else
        http_connection_cut(connection);
}

void http_exchange_send(struct http_exchange *exchange, const char *bytes, size_t n_bytes) {
    struct http_connection *connection = exchange->connection;
    struct evbuffer *out = bufferevent_get_output(connection->stream);
    REQUIRE(exchange->is_started && !exchange->is_over);
    if (n_bytes == 0 || connection->phase == HTTP_CUT || is_head(exchange)) return; /* an empty chunk would end it */
    bool is_written = evbuffer_get_length(out) + n_bytes <= connection->server->limits.max_unread_bytes;
    if (is_written && exchange->is_chunked) is_written = evbuffer_add_printf(out, "%zx\r\n", n_bytes) > 0;
    if (is_written) is_written = evbuffer_add(out, bytes, n_bytes) == 0;
    if (is_written && exchange->is_chunked) is_written = evbuffer_add(out, "\r\n", 2) == 0;
    if (is_written)
        http_connection_send(connection);
    else
        http_connection_cut(connection);
}

void http_exchange_end(struct http_exchange *exchange) {
    struct http_connection *connection = exchange->connection;
    REQUIRE(exchange->is_started && !exchange->is_over);
    exchange->is_over = true;
    if (connection->phase == HTTP_CUT) return;
    struct evbuffer *out = bufferevent_get_output(connection->stream);
    if (exchange->is_chunked && !is_head(exchange) && evbuffer_add(out, "0\r\n\r\n", 5) != 0)
        http_connection_cut(connection);
    else
        http_connection_end_reply(connection);
}

bool http_exchange_is_started(const struct http_exchange *exchange) {
    return exchange->is_started;
}

void http_exchange_abort(struct http_exchange *exchange) {
    exchange->is_over = true;
    http_connection_cut(exchange->connection);
}

size_t http_exchange_n_pending(const struct http_exchange *exchange) {
    return evbuffer_get_length(bufferevent_get_output(exchange->connection->stream));
}
