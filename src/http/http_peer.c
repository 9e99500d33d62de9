#include "http/http_peer.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/mem.h"
#include "http/http_impl.h"

#define MAX_HOST_BYTES 256
#define MAX_PATH_BYTES 1024

struct http_peer {
    struct http_server *server;
    struct http_peer_limits limits;
    struct sockaddr_storage socket_address;
    socklen_t n_address;
    char host[MAX_HOST_BYTES], path[MAX_PATH_BYTES];
    struct http_ask *asks;
    int n_asks;
};

struct http_ask {
    struct http_peer *peer;
    struct bufferevent *stream;
    struct event *timer;
    struct http_head head;
    char *text; /* of the reply's head; NULL until it is whole */
    int code;
    struct http_chunked chunked;
    struct str body;
    http_peer_told_fn *told;
    void *owner;
    struct http_ask *next, *prev;
};

/* ---- addresses ---- */

static enum status find_host(struct http_peer *peer, const char *host, const char *port, struct status_note *note) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int failure = getaddrinfo(host, port, &hints, &found);
    if (failure) return status_fail(note, STATUS_INVALID, "%s port %s: %s", host, port, gai_strerror(failure));
    memcpy(&peer->socket_address, found->ai_addr, found->ai_addrlen);
    peer->n_address = found->ai_addrlen;
    freeaddrinfo(found);
    return STATUS_OK;
}

static enum status read_url(struct http_peer *peer, const char *rest, struct status_note *note) {
    char host[MAX_HOST_BYTES], *port;
    size_t n_host = strcspn(rest, "/");
    snprintf(peer->path, sizeof peer->path, "%s", rest[n_host] ? rest + n_host : "/");
    if (n_host == 0 || n_host >= sizeof host || strlen(rest + n_host) >= sizeof peer->path)
        return status_fail(note, STATUS_INVALID, "http://%.100s has no host, or is too long", rest);
    snprintf(host, sizeof host, "%.*s", (int)n_host, rest);
    snprintf(peer->host, sizeof peer->host, "%s", host);
    port = strrchr(host, ':');
    bool has_port = port && !strchr(port, ']');
    if (has_port) *port++ = 0;
    size_t n = strlen(host);
    bool is_bracketed = n > 2 && host[0] == '[' && host[n - 1] == ']';
    if (is_bracketed) host[n - 1] = 0;
    return find_host(peer, host + is_bracketed, has_port ? port : "80", note);
}

static enum status read_address(struct http_peer *peer, const char *address, struct status_note *note) {
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    if (strncmp(address, "http://", 7) == 0) return read_url(peer, address + 7, note);
    if (strncmp(address, "unix:", 5) != 0)
        return status_fail(note, STATUS_INVALID, "'%.200s' is neither unix:PATH nor http://...", address);
    if (!address[5] || strlen(address + 5) >= sizeof local.sun_path)
        return status_fail(note, STATUS_INVALID, "unix:%.150s: a path of 1..%zu bytes is needed", address + 5,
                           sizeof local.sun_path - 1);
    snprintf(local.sun_path, sizeof local.sun_path, "%s", address + 5);
    memcpy(&peer->socket_address, &local, sizeof local);
    peer->n_address = sizeof local;
    snprintf(peer->host, sizeof peer->host, "localhost");
    snprintf(peer->path, sizeof peer->path, "/");
    return STATUS_OK;
}

enum status http_peer_open(struct http_peer **out_peer, struct http_server *server, const char *address,
                           const struct http_peer_limits *limits, struct status_note *note) {
    struct http_peer *peer = mem_alloc(sizeof *peer);
    *out_peer = NULL;
    if (!peer) return status_fail(note, STATUS_NOMEM, "no memory for %.200s", address);
    peer->server = server;
    peer->limits = *limits;
    enum status status = read_address(peer, address, note);
    if (status)
        mem_free(peer);
    else
        *out_peer = peer;
    return status;
}

void http_peer_close(struct http_peer **peer) {
    if (!*peer) return;
    while ((*peer)->asks) http_peer_drop((*peer)->asks);
    mem_free(*peer);
    *peer = NULL;
}

/* ---- the end of a question ---- */

void http_peer_drop(struct http_ask *ask) {
    struct http_peer *peer = ask->peer;
    if (ask->next) ask->next->prev = ask->prev;
    if (ask->prev)
        ask->prev->next = ask->next;
    else
        peer->asks = ask->next;
    peer->n_asks--;
    if (ask->timer) event_free(ask->timer);
    if (ask->stream) bufferevent_free(ask->stream);
    str_deinit(&ask->body);
    mem_free(ask->text);
    mem_free(ask);
}

/* The owner may free or ask anew meanwhile: the question is closed first. */
static void tell(struct http_ask *ask, enum status status, const char *why) {
    struct status_note note = {0};
    http_peer_told_fn *told = ask->told;
    void *owner = ask->owner;
    int code = ask->code;
    size_t n_bytes = ask->body.n_bytes;
    char *body = status || n_bytes == 0 ? NULL : str_take(&ask->body);
    if (!status && n_bytes && !body) status = STATUS_NOMEM;
    if (status) status_fail(&note, status, "%s", why ? why : status_text(status));
    http_peer_drop(ask);
    told(owner, status, code, body ? body : "", body ? n_bytes : 0, &note);
    mem_free(body);
}

/* ---- the reply ---- */

/* STATUS_BUSY: more must come. */
static enum status read_head(struct http_ask *ask, struct evbuffer *input) {
    size_t n_bytes = evbuffer_get_length(input);
    const char *bytes = (const char *)evbuffer_pullup(input, -1);
    size_t n_head = bytes ? http_head_end(bytes, n_bytes, 0) : 0;
    if (!n_head) return n_bytes > HTTP_HEAD_MAX_BYTES ? STATUS_FORMAT : STATUS_BUSY;
    ask->text = mem_alloc(n_head + 1);
    if (!ask->text) return STATUS_NOMEM;
    evbuffer_remove(input, ask->text, n_head);
    ask->code = http_head_parse_reply(&ask->head, ask->text, n_head);
    return ask->code ? STATUS_OK : STATUS_FORMAT;
}

static enum status read_body(struct http_ask *ask, struct evbuffer *input) {
    struct evbuffer_iovec run;
    bool is_chunked = ask->head.body == HTTP_BODY_CHUNKED;
    while (ask->chunked.state != HTTP_CHUNKED_DONE && evbuffer_peek(input, -1, NULL, &run, 1) > 0) {
        const char *piece = run.iov_base;
        size_t n_piece = run.iov_len, n_used = run.iov_len;
        if (is_chunked) n_used = http_chunked_push(&ask->chunked, run.iov_base, run.iov_len, &piece, &n_piece);
        if (ask->chunked.state == HTTP_CHUNKED_BAD) return STATUS_FORMAT;
        enum status status = str_append(&ask->body, piece, n_piece);
        if (status) return status;
        evbuffer_drain(input, n_used);
    }
    if (is_chunked) return ask->chunked.state == HTTP_CHUNKED_DONE ? STATUS_OK : STATUS_BUSY;
    if (!http_head_find(&ask->head, "Content-Length")) return STATUS_BUSY; /* until it closes */
    if (ask->body.n_bytes > ask->head.n_body_bytes) return STATUS_FORMAT;
    return ask->body.n_bytes == ask->head.n_body_bytes ? STATUS_OK : STATUS_BUSY;
}

static void on_readable(struct bufferevent *stream, void *owner) {
    struct http_ask *ask = owner;
    struct evbuffer *input = bufferevent_get_input(stream);
    enum status status = ask->text ? STATUS_OK : read_head(ask, input);
    if (!status) status = read_body(ask, input);
    if (status != STATUS_BUSY) tell(ask, status, status == STATUS_FORMAT ? "its reply is no HTTP" : NULL);
}

static void on_stream_event(struct bufferevent *stream, short what, void *owner) {
    struct http_ask *ask = owner;
    (void)stream;
    if (what & BEV_EVENT_CONNECTED) return;
    bool ends_with_it = ask->text && ask->head.body == HTTP_BODY_NONE && !http_head_find(&ask->head, "Content-Length");
    if (what & BEV_EVENT_EOF && ends_with_it)
        tell(ask, STATUS_OK, NULL);
    else
        tell(ask, STATUS_PEER, what & BEV_EVENT_EOF ? "it closed before its reply was whole" : "it cannot be reached");
}

static void on_timer(evutil_socket_t fd, short what, void *owner) {
    (void)fd, (void)what;
    tell(owner, STATUS_TIMEOUT, "it did not reply in time");
}

/* ---- asking ---- */

static bool send_question(struct http_ask *ask, const char *body, size_t n_bytes) {
    const struct http_peer *peer = ask->peer;
    struct timeval limit = {peer->limits.timeout_ms / 1000, peer->limits.timeout_ms % 1000 * 1000};
    struct evbuffer *out = bufferevent_get_output(ask->stream);
    bufferevent_setcb(ask->stream, on_readable, NULL, on_stream_event, ask);
    return evbuffer_add_printf(out,
                               "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                               "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                               peer->path, peer->host, n_bytes) > 0 &&
           evbuffer_add(out, body, n_bytes) == 0 && bufferevent_enable(ask->stream, EV_READ | EV_WRITE) == 0 &&
           event_add(ask->timer, &limit) == 0;
}

enum status http_peer_ask(struct http_peer *peer, const char *body, size_t n_bytes, http_peer_told_fn *told,
                          void *owner, struct http_ask **out_ask) {
    if (peer->n_asks >= peer->limits.max_asks) return STATUS_BUSY;
    struct http_ask *ask = mem_alloc(sizeof *ask);
    if (!ask) return STATUS_NOMEM;
    *ask = (struct http_ask){.peer = peer, .told = told, .owner = owner, .next = peer->asks};
    if (ask->next) ask->next->prev = ask;
    peer->asks = ask;
    peer->n_asks++;
    str_init(&ask->body, peer->limits.max_reply_bytes);
    ask->timer = event_new(peer->server->base, -1, 0, on_timer, ask);
    ask->stream = bufferevent_socket_new(peer->server->base, -1, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    enum status status = ask->timer && ask->stream && send_question(ask, body, n_bytes) ? STATUS_OK : STATUS_NOMEM;
    if (!status &&
        bufferevent_socket_connect(ask->stream, (struct sockaddr *)&peer->socket_address, (int)peer->n_address) != 0)
        status = STATUS_PEER;
    if (status) {
        http_peer_drop(ask);
        return status;
    }
    *out_ask = ask;
    return STATUS_OK;
}
