#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/http_impl.h"

#define LINGER_MS 2000
#define LOOK_MS 250                /* whether a client is there that has sent more than was read */
#define MIN_BODY_BYTES_PER_S 16384 /* a body may come that slowly, beside body_ms at its start */

/* ---- sending ---- */

/* A stream's piece costs one system call: it is written at the end of the loop's turn, and only what does not fit into
 * the socket is left to the bufferevent, which would ask epoll for leave before and after each piece. TLS does as it
 * likes. */
void http_connection_send(struct http_connection *connection) {
    struct http_server *server = connection->server;
    if (server->tls || connection->has_unsent || connection->phase == HTTP_CUT) return;
    if (!server->unsent) event_active(server->send, EV_TIMEOUT, 0);
    connection->has_unsent = true;
    connection->next_unsent = server->unsent;
    server->unsent = connection;
}

static void forget_unsent(struct http_connection *connection) {
    struct http_connection **link = &connection->server->unsent;
    if (!connection->has_unsent) return;
    while (*link != connection) link = &(*link)->next_unsent;
    *link = connection->next_unsent;
    connection->has_unsent = false;
}

static void on_written(struct bufferevent *stream, void *owner);

/* May free it. */
static void send_now(struct http_connection *connection) {
    struct evbuffer *out = bufferevent_get_output(connection->stream);
    if (connection->phase == HTTP_CUT || bufferevent_get_enabled(connection->stream) & EV_WRITE) return;
    bool has_failed = false;
    if (evbuffer_get_length(out) > 0) {
        evbuffer_unfreeze(out, 1); /* the bufferevent keeps its front for itself */
        has_failed =
            evbuffer_write(out, bufferevent_getfd(connection->stream)) < 0 && errno != EAGAIN && errno != EINTR;
        evbuffer_freeze(out, 1);
    }
    if (has_failed)
        http_connection_free(connection);
    else if (evbuffer_get_length(out) == 0)
        on_written(connection->stream, connection);
    else if (bufferevent_enable(connection->stream, EV_WRITE) != 0)
        http_connection_free(connection);
}

void http_connection_send_all(struct http_server *server) {
    while (server->unsent) {
        struct http_connection *connection = server->unsent;
        forget_unsent(connection);
        send_now(connection);
    }
}

/* ---- limits in time ---- */

static void arm(struct http_connection *connection, int64_t ms) {
    struct timeval wait = {ms / 1000, ms % 1000 * 1000};
    if (ms < 1) wait.tv_usec = 1000;
    if (event_add(connection->timer, &wait) != 0) http_connection_cut(connection);
}

static void enter(struct http_connection *connection, enum http_phase phase, int limit_ms) {
    connection->phase = phase;
    connection->since_ns = clock_now_ns();
    if (limit_ms)
        arm(connection, limit_ms);
    else
        event_del(connection->timer);
}

/* ---- replies to what is no request ---- */

/* Nothing more is read as a request: where the next one would begin is not known, or would be read for nothing. */
static void refuse(struct http_connection *connection, int code, const char *why) {
    struct http_server *server = connection->server;
    if (!connection->exchange) connection->exchange = http_exchange_open(connection);
    if (!connection->exchange) {
        http_connection_cut(connection); /* no memory to say why */
        return;
    }
    connection->is_last = true;
    connection->has_unread = true;
    enter(connection, HTTP_REPLY, 0);
    server->handlers.refuse(server->handlers.owner, connection->exchange, code, why);
}

static bool has_left(const struct http_connection *connection) {
    struct pollfd look = {.fd = bufferevent_getfd(connection->stream), .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && look.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

static void on_late(struct http_connection *connection) {
    int64_t n_ms = (clock_now_ns() - connection->since_ns) / 1000000;
    switch (connection->phase) {
    case HTTP_HEAD: refuse(connection, 408, "the head of the request did not come in time"); return;
    case HTTP_BODY: {
        /* More time for what has come. */
        int64_t n_body = (int64_t)evbuffer_get_length(connection->exchange->body);
        int64_t may_ms = connection->server->limits.body_ms + n_body * 1000 / MIN_BODY_BYTES_PER_S;
        if (n_ms < may_ms)
            arm(connection, may_ms - n_ms);
        else
            refuse(connection, 408, "the body of the request did not come in time");
        return;
    }
    case HTTP_REPLY:
        if (has_left(connection))
            http_connection_free(connection);
        else
            arm(connection, LOOK_MS);
        return;
    case HTTP_FLUSH: return;
    case HTTP_IDLE:
    case HTTP_LINGER:
    case HTTP_CUT: http_connection_free(connection); return;
    }
}

/* ---- reading ---- */

static void dispatch(struct http_connection *connection) {
    struct http_server *server = connection->server;
    enter(connection, HTTP_REPLY, 0);
    connection->exchange->read_ns = clock_now_ns();
    bufferevent_disable(connection->stream, EV_READ);
    if (event_add(connection->closed, NULL) != 0) {
        http_connection_cut(connection);
        return;
    }
    server->handlers.request(server->handlers.owner, connection->exchange);
}

/* What was sent with the head, and is not wanted: thrown away if it is all there. Else the connection ends. */
static void skip_body(struct http_connection *connection) {
    const struct http_head *head = &connection->exchange->head;
    struct evbuffer *input = bufferevent_get_input(connection->stream);
    if (head->body == HTTP_BODY_NONE) return;
    if (head->body == HTTP_BODY_LENGTH && evbuffer_get_length(input) >= head->n_body_bytes) {
        evbuffer_drain(input, (size_t)head->n_body_bytes);
        return;
    }
    connection->is_last = true;
    connection->has_unread = true;
}

/* The head is read: room for its body, the handler's first look, leave to send. */
static void begin_body(struct http_connection *connection) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct http_server *server = connection->server;
    struct http_exchange *exchange = connection->exchange;
    const struct http_head *head = &exchange->head;
    if (!head->keeps_alive) connection->is_last = true;
    enter(connection, HTTP_REPLY, 0);
    connection->is_at_body = true;
    bool is_wanted = server->handlers.head(server->handlers.owner, exchange);
    connection->is_at_body = false;
    if (!is_wanted) return; /* it has replied */
    if (head->body == HTTP_BODY_NONE) {
        dispatch(connection);
        return;
    }
    if (head->body == HTTP_BODY_LENGTH && head->n_body_bytes > server->limits.max_body_bytes) {
        refuse(connection, 413, "the body is too large");
        return;
    }
    if (head->body == HTTP_BODY_LENGTH && !http_exchange_reserve(exchange, (size_t)head->n_body_bytes)) {
        refuse(connection, 503, "too many bodies are being sent at this time");
        return;
    }
    connection->chunked = (struct http_chunked){0};
    enter(connection, HTTP_BODY, server->limits.body_ms);
    if (head->expects_continue && evbuffer_get_length(bufferevent_get_input(connection->stream)) == 0 &&
        bufferevent_write(connection->stream, go_on, sizeof go_on - 1) != 0)
        http_connection_cut(connection);
    else
        http_connection_send(connection);
}

/* True: the phase has changed. */
static bool read_head(struct http_connection *connection) {
    struct evbuffer *input = bufferevent_get_input(connection->stream);
    size_t n_bytes = evbuffer_get_length(input);
    if (n_bytes > HTTP_HEAD_MAX_BYTES) n_bytes = HTTP_HEAD_MAX_BYTES;
    const char *bytes = (const char *)evbuffer_pullup(input, (ev_ssize_t)n_bytes), *why = NULL;
    size_t n_head = bytes ? http_head_end(bytes, n_bytes, connection->n_scanned) : 0;
    connection->n_scanned = n_bytes;
    if (!n_head && bytes && n_bytes < HTTP_HEAD_MAX_BYTES) return false;
    struct http_exchange *exchange = connection->exchange = bytes ? http_exchange_open(connection) : NULL;
    if (exchange && n_head) exchange->text = mem_alloc(n_head + 1);
    if (!exchange || (n_head && !exchange->text)) {
        http_connection_cut(connection); /* no memory */
        return true;
    }
    if (!n_head) {
        refuse(connection, 431, "the head of the request is longer than 64 kB");
        return true;
    }
    evbuffer_remove(input, exchange->text, n_head);
    connection->n_scanned = 0;
    int code = http_head_parse(&exchange->head, exchange->text, n_head, &why);
    if (code)
        refuse(connection, code, why);
    else
        begin_body(connection);
    return true;
}

static bool read_chunks(struct http_connection *connection, struct evbuffer *input) {
    struct http_exchange *exchange = connection->exchange;
    struct http_chunked *chunked = &connection->chunked;
    struct evbuffer_iovec run;
    while (chunked->state != HTTP_CHUNKED_DONE && evbuffer_peek(input, -1, NULL, &run, 1) > 0) {
        const char *piece;
        size_t n_piece, n_used = http_chunked_push(chunked, run.iov_base, run.iov_len, &piece, &n_piece);
        if (chunked->state == HTTP_CHUNKED_BAD) {
            refuse(connection, 400, "the body is not in chunks as Transfer-Encoding says");
            return true;
        }
        if (n_piece && evbuffer_get_length(exchange->body) + n_piece > connection->server->limits.max_body_bytes) {
            refuse(connection, 413, "the body is too large");
            return true;
        }
        if (n_piece && (!http_exchange_reserve(exchange, n_piece) || evbuffer_add(exchange->body, piece, n_piece))) {
            refuse(connection, 503, "too many bodies are being sent at this time");
            return true;
        }
        evbuffer_drain(input, n_used);
    }
    return chunked->state == HTTP_CHUNKED_DONE;
}

/* True: the phase has changed. */
static bool read_body(struct http_connection *connection) {
    struct http_exchange *exchange = connection->exchange;
    struct evbuffer *input = bufferevent_get_input(connection->stream);
    if (exchange->head.body == HTTP_BODY_CHUNKED) {
        if (!read_chunks(connection, input)) return false;
    } else {
        size_t n_left = (size_t)exchange->head.n_body_bytes - evbuffer_get_length(exchange->body);
        if (evbuffer_remove_buffer(input, exchange->body, n_left) < 0) {
            http_connection_cut(connection);
            return true;
        }
        if (evbuffer_get_length(exchange->body) < exchange->head.n_body_bytes) return false;
    }
    if (connection->phase == HTTP_BODY) dispatch(connection);
    return true;
}

/* Empty lines in front of a request are allowed. True: its first byte is there. */
static bool skip_lines(struct evbuffer *input) {
    struct evbuffer_iovec run;
    while (evbuffer_peek(input, -1, NULL, &run, 1) > 0) {
        const char *bytes = run.iov_base;
        size_t n = 0;
        while (n < run.iov_len && (bytes[n] == '\r' || bytes[n] == '\n')) n++;
        evbuffer_drain(input, n);
        if (n < run.iov_len) return true;
    }
    return false;
}

static void throw_away(struct http_connection *connection, struct evbuffer *input) {
    size_t n_bytes = evbuffer_get_length(input);
    evbuffer_drain(input, n_bytes);
    connection->n_scanned += n_bytes;
    if (connection->n_scanned > connection->server->limits.max_body_bytes + HTTP_HEAD_MAX_BYTES)
        http_connection_cut(connection);
}

static void read_on(struct http_connection *connection) {
    struct evbuffer *input = bufferevent_get_input(connection->stream);
    bool goes_on = true;
    while (goes_on) {
        switch (connection->phase) {
        case HTTP_IDLE:
            goes_on = skip_lines(input);
            if (goes_on) enter(connection, HTTP_HEAD, connection->server->limits.head_ms);
            break;
        case HTTP_HEAD: goes_on = read_head(connection); break;
        case HTTP_BODY: goes_on = read_body(connection); break;
        case HTTP_LINGER: throw_away(connection, input); return;
        case HTTP_REPLY:
        case HTTP_FLUSH:
        case HTTP_CUT: return;
        }
    }
}

/* ---- replies ---- */

void http_connection_begin_reply(struct http_connection *connection) {
    if (connection->is_at_body) skip_body(connection);
    if (connection->server->is_stopping) connection->is_last = true;
}

/* The reply is written. */
static void finish(struct http_connection *connection) {
    if (!connection->is_last) {
        http_exchange_free(connection->exchange);
        connection->n_scanned = 0;
        enter(connection, HTTP_IDLE, connection->server->limits.idle_ms);
        bufferevent_enable(connection->stream, EV_READ);
        read_on(connection);
        return;
    }
    http_server_close_stream(connection->server, connection->stream);
    if (!connection->has_unread) {
        http_connection_free(connection);
        return;
    }
    http_exchange_free(connection->exchange);
    shutdown(bufferevent_getfd(connection->stream), SHUT_WR);
    connection->n_scanned = 0;
    enter(connection, HTTP_LINGER, LINGER_MS);
    bufferevent_enable(connection->stream, EV_READ);
    read_on(connection);
}

void http_connection_end_reply(struct http_connection *connection) {
    if (connection->phase == HTTP_CUT) return;
    event_del(connection->closed);
    event_del(connection->timer);
    bufferevent_disable(connection->stream, EV_READ);
    connection->phase = HTTP_FLUSH;
    http_connection_send(connection);
    /* Without a byte to write TLS would not tell that it is written. */
    if (connection->server->tls && evbuffer_get_length(bufferevent_get_output(connection->stream)) == 0)
        event_active(connection->timer, EV_TIMEOUT, 0);
}

/* ---- callbacks of libevent ---- */

static void on_readable(struct bufferevent *stream, void *owner) {
    (void)stream;
    read_on(owner);
}

static void on_written(struct bufferevent *stream, void *owner) {
    struct http_connection *connection = owner;
    if (!connection->server->tls && bufferevent_get_enabled(stream) & EV_WRITE) bufferevent_disable(stream, EV_WRITE);
    if (connection->phase == HTTP_FLUSH && evbuffer_get_length(bufferevent_get_output(stream)) == 0) finish(connection);
}

/* An error, an end, or a reader that took nothing for write_ms. */
static void on_stream_event(struct bufferevent *stream, short what, void *owner) {
    struct http_connection *connection = owner;
    (void)stream;
    if (what & BEV_EVENT_CONNECTED) {
        if (connection->phase == HTTP_IDLE) enter(connection, HTTP_IDLE, connection->server->limits.idle_ms);
        return;
    }
    http_connection_free(connection);
}

static void on_timer(evutil_socket_t fd, short what, void *owner) {
    struct http_connection *connection = owner;
    (void)fd, (void)what;
    if (connection->phase == HTTP_FLUSH)
        on_written(connection->stream, connection);
    else
        on_late(connection);
}

/* The client has left; or it has sent more, which is not read now: then only looking tells. A reset is no EV_CLOSED for
 * libevent, but as good as readable; without EV_READ epoll would tell of it again and again, and nobody would hear. */
static void on_closed(evutil_socket_t fd, short what, void *owner) {
    struct http_connection *connection = owner;
    (void)fd;
    if (what & EV_CLOSED || has_left(connection))
        http_connection_free(connection);
    else
        arm(connection, LOOK_MS);
}

/* ---- life ---- */

void http_connection_open(struct http_server *server, int fd) {
    struct http_connection *connection = mem_alloc(sizeof *connection);
    struct bufferevent *stream = connection ? http_server_open_stream(server, fd) : NULL;
    if (!stream) {
        close(fd);
        mem_free(connection);
        return;
    }
    struct timeval write_limit = {server->limits.write_ms / 1000, server->limits.write_ms % 1000 * 1000};
    connection->server = server;
    connection->stream = stream;
    connection->next = server->connections;
    if (connection->next) connection->next->prev = connection;
    server->connections = connection;
    server->n_connections++;
    connection->timer = event_new(server->base, -1, 0, on_timer, connection);
    connection->closed = event_new(server->base, fd, EV_READ | EV_CLOSED, on_closed, connection);
    if (!connection->timer || !connection->closed || bufferevent_set_timeouts(stream, NULL, &write_limit) != 0 ||
        bufferevent_enable(stream, EV_READ) != 0 ||
        (server->tls ? bufferevent_enable(stream, EV_WRITE) : bufferevent_disable(stream, EV_WRITE)) != 0) {
        http_connection_free(connection);
        return;
    }
    bufferevent_setcb(stream, on_readable, on_written, on_stream_event, connection);
    bufferevent_setwatermark(stream, EV_READ, 0, HTTP_HEAD_MAX_BYTES);
    /* A TLS handshake is as long as a head may take. */
    enter(connection, HTTP_IDLE, server->tls ? server->limits.head_ms : server->limits.idle_ms);
}

void http_connection_free(struct http_connection *connection) {
    struct http_server *server = connection->server;
    struct http_exchange *exchange = connection->exchange;
    if (exchange && !exchange->is_over && exchange->on_gone) exchange->on_gone(exchange->owner);
    if (exchange) http_exchange_free(exchange);
    forget_unsent(connection);
    if (connection->next) connection->next->prev = connection->prev;
    if (connection->prev)
        connection->prev->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->timer) event_free(connection->timer);
    if (connection->closed) event_free(connection->closed);
    bufferevent_free(connection->stream);
    http_server_forget(server, connection);
    mem_free(connection);
}

void http_connection_cut(struct http_connection *connection) {
    connection->phase = HTTP_CUT;
    event_del(connection->closed);
    bufferevent_disable(connection->stream, EV_READ | EV_WRITE);
    event_active(connection->timer, EV_TIMEOUT, 0);
}
