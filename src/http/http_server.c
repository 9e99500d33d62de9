#include "http/http_server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <event2/bufferevent_ssl.h>
#include <event2/thread.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/http_impl.h"

#define BACKLOG 1024
#define FULL_CHECK_MS 50
#define FULL_IDLE_NS INT64_C(5000000000) /* while others wait, a connection may be idle that long */
#define OWN_DESCRIPTORS 32               /* of the process beside connections */

/* ---- connections ---- */

static void pause_listeners(struct http_server *server, bool is_full) {
    struct timeval wait = {0, FULL_CHECK_MS * 1000};
    if (is_full) event_add(server->resume, &wait);
    if (server->is_full == is_full) return;
    server->is_full = is_full;
    for (int i = 0; i < server->n_listeners; i++) {
        if (is_full)
            evconnlistener_disable(server->listeners[i]);
        else
            evconnlistener_enable(server->listeners[i]);
    }
}

/* Full: who waits in the backlog has a right to the place of who asks nothing. */
static void on_resume(evutil_socket_t fd, short what, void *owner) {
    struct http_server *server = owner;
    int64_t now_ns = clock_now_ns();
    (void)fd, (void)what;
    for (struct http_connection *connection = server->connections, *next; connection; connection = next) {
        next = connection->next;
        if (connection->phase == HTTP_IDLE && now_ns - connection->since_ns > FULL_IDLE_NS)
            http_connection_free(connection);
    }
    pause_listeners(server, server->n_connections >= server->limits.max_connections);
}

static void on_send(evutil_socket_t fd, short what, void *owner) {
    (void)fd, (void)what;
    http_connection_send_all(owner);
}

void http_server_forget(struct http_server *server, struct http_connection *connection) {
    (void)connection;
    server->n_connections--;
    if (server->is_full && server->n_connections < server->limits.max_connections) pause_listeners(server, false);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int n_bytes,
                      void *owner) {
    struct http_server *server = owner;
    (void)listener, (void)address, (void)n_bytes;
    http_connection_open(server, fd);
    if (server->n_connections >= server->limits.max_connections) pause_listeners(server, true);
}

/* The system has no descriptor or memory left for another connection: it waits in the backlog like one too many. */
static void on_accept_error(struct evconnlistener *listener, void *owner) {
    (void)listener;
    pause_listeners(owner, true);
}

/* As many connections as asked for, or as descriptors allow. */
static void fit_descriptors(struct http_limits *limits) {
    struct rlimit files;
    rlim_t wanted = (rlim_t)limits->max_connections + OWN_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
    files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0 || getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted)
        return;
    limits->max_connections = files.rlim_cur > OWN_DESCRIPTORS ? (int)(files.rlim_cur - OWN_DESCRIPTORS) : 1;
    log_line(LOG_WARN, "%llu file descriptors are allowed: at most %d connections at a time",
             (unsigned long long)files.rlim_cur, limits->max_connections);
}

struct bufferevent *http_server_open_stream(struct http_server *server, int fd) {
    struct bufferevent *stream;
    if (!server->tls) return bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
    SSL *session = SSL_new(server->tls);
    if (!session) return NULL;
    stream =
        bufferevent_openssl_socket_new(server->base, fd, session, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!stream) SSL_free(session);
    return stream;
}

/* Without it a client could not tell a reply that is whole from one that was cut. */
void http_server_close_stream(struct http_server *server, struct bufferevent *stream) {
    if (!server->tls) return;
    SSL_shutdown(bufferevent_openssl_get_ssl(stream));
    ERR_clear_error();
}

const char *http_server_date(struct http_server *server) {
    time_t now = time(NULL);
    struct tm tm;
    if ((int64_t)now != server->date_s && gmtime_r(&now, &tm)) {
        strftime(server->date, sizeof server->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        server->date_s = (int64_t)now;
    }
    return server->date;
}

/* ---- start and end ---- */

static enum status fail_tls(const char *what, const char *file, struct status_note *note) {
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return status_fail(note, STATUS_INVALID, "%s: %s (%s)", file, what, reason ? reason : "unknown reason");
}

static enum status open_tls(const struct http_tls *files, SSL_CTX **out, struct status_note *note) {
    *out = NULL;
    if (!files || !files->cert_file) return STATUS_OK;
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    enum status status = tls ? STATUS_OK : status_fail(note, STATUS_NOMEM, "no memory for TLS");
    if (!status && !SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION))
        status = fail_tls("TLS 1.2 is not to be had", files->cert_file, note);
    if (!status && SSL_CTX_use_certificate_chain_file(tls, files->cert_file) != 1)
        status = fail_tls("not a usable certificate", files->cert_file, note);
    if (!status && SSL_CTX_use_PrivateKey_file(tls, files->key_file, SSL_FILETYPE_PEM) != 1)
        status = fail_tls("not a usable key", files->key_file, note);
    if (!status && SSL_CTX_check_private_key(tls) != 1)
        status = fail_tls("the key does not belong to the certificate", files->key_file, note);
    if (status) {
        SSL_CTX_free(tls);
        return status;
    }
    *out = tls;
    return STATUS_OK;
}

static enum status open_loop(struct http_server *server) {
    struct event_config *config = event_config_new();
    if (!config) return STATUS_NOMEM;
    if (event_config_require_features(config, EV_FEATURE_EARLY_CLOSE) == 0)
        server->base = event_base_new_with_config(config);
    event_config_free(config);
    if (!server->base) return STATUS_LIMIT;
    server->resume = event_new(server->base, -1, 0, on_resume, server);
    server->send = event_new(server->base, -1, 0, on_send, server);
    return server->resume && server->send ? STATUS_OK : STATUS_NOMEM;
}

enum status http_server_create(struct http_server **out_server, const struct http_limits *limits,
                               const struct http_tls *tls, const struct http_handlers *handlers,
                               struct status_note *note) {
    struct http_server *server = mem_alloc(sizeof *server);
    *out_server = NULL;
    if (!server) return status_fail(note, STATUS_NOMEM, "no memory for the HTTP server");
    server->limits = *limits;
    fit_descriptors(&server->limits);
    server->handlers = *handlers;
    if (tls) server->tls_files = *tls;
    /* Handlers run on the loop's thread alone, but http_server_stop comes from others. */
    enum status status = evthread_use_pthreads() == 0 ? open_loop(server) : STATUS_LIMIT;
    if (status) status_fail(note, status, "the system gives no event loop");
    if (!status) status = open_tls(tls, &server->tls, note);
    *out_server = server;
    if (status) http_server_destroy(out_server);
    return status;
}

void http_server_destroy(struct http_server **server_ptr) {
    struct http_server *server = *server_ptr;
    if (!server) return;
    while (server->connections) http_connection_free(server->connections);
    http_server_stop_listening(server);
    for (int i = 0; i < server->n_watches; i++) event_free(server->watches[i].event);
    if (server->resume) event_free(server->resume);
    if (server->send) event_free(server->send);
    if (server->base) event_base_free(server->base);
    SSL_CTX_free(server->tls);
    mem_free(server);
    *server_ptr = NULL;
}

enum status http_server_reload_tls(struct http_server *server, struct status_note *note) {
    SSL_CTX *tls;
    enum status status = open_tls(&server->tls_files, &tls, note);
    if (status) return status;
    SSL_CTX_free(server->tls); /* sessions hold their own reference */
    server->tls = tls;
    return STATUS_OK;
}

/* ---- listening ---- */

int http_server_port_of(int fd) {
    struct sockaddr_storage address;
    socklen_t n_bytes = sizeof address;
    char port[16];
    if (getsockname(fd, (struct sockaddr *)&address, &n_bytes) != 0) return 0;
    if (getnameinfo((struct sockaddr *)&address, n_bytes, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0) return 0;
    int value = 0;
    for (const char *digit = port; *digit; digit++) value = value * 10 + (*digit - '0');
    return value;
}

static enum status add_listener(struct http_server *server, int fd, struct status_note *note) {
    if (server->n_listeners == HTTP_MAX_LISTENERS)
        return status_fail(note, STATUS_LIMIT, "more than %d addresses to listen on", HTTP_MAX_LISTENERS);
    struct evconnlistener *listener =
        evconnlistener_new(server->base, on_accept, server, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!listener) return status_fail(note, STATUS_NOMEM, "no memory for a listener");
    evconnlistener_set_error_cb(listener, on_accept_error);
    server->listeners[server->n_listeners++] = listener;
    return STATUS_OK;
}

static int open_socket(const struct addrinfo *address) {
    int one = 1, fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    /* NODELAY is inherited by what is accepted: a token must not wait for the next one. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 &&
        bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

enum status http_server_listen(struct http_server *server, const char *host, int port, int *out_port,
                               struct status_note *note) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *addresses;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int failure = getaddrinfo(host, service, &hints, &addresses);
    if (failure) return status_fail(note, STATUS_IO, "cannot listen on %s: %s", host, gai_strerror(failure));
    int fd = open_socket(addresses);
    freeaddrinfo(addresses);
    if (fd < 0) return status_fail(note, STATUS_IO, "cannot listen on %s port %d: %s", host, port, strerror(errno));
    if (out_port) *out_port = http_server_port_of(fd);
    enum status status = add_listener(server, fd, note);
    if (status) close(fd);
    return status;
}

enum status http_server_listen_fd(struct http_server *server, int fd, struct status_note *note) {
    if (evutil_make_socket_nonblocking(fd) != 0)
        return status_fail(note, STATUS_IO, "file descriptor %d is not a socket to listen on: %s", fd, strerror(errno));
    return add_listener(server, fd, note);
}

void http_server_stop_listening(struct http_server *server) {
    for (int i = 0; i < server->n_listeners; i++) evconnlistener_free(server->listeners[i]);
    server->n_listeners = 0;
    server->is_stopping = true;
}

/* ---- running ---- */

void http_server_run(struct http_server *server) {
    event_base_dispatch(server->base);
}

void http_server_stop(struct http_server *server) {
    event_base_loopbreak(server->base);
}

static void on_watch(evutil_socket_t fd, short what, void *owner) {
    const struct http_watch *watch = owner;
    (void)fd, (void)what;
    watch->call(watch->owner);
}

static enum status add_watch(struct http_server *server, int fd, short what, const struct timeval *interval,
                             http_wake_fn *call, void *owner) {
    if (server->n_watches == HTTP_MAX_WATCHES) return STATUS_LIMIT;
    struct http_watch *watch = &server->watches[server->n_watches];
    *watch = (struct http_watch){event_new(server->base, fd, (short)(what | EV_PERSIST), on_watch, watch), call, owner};
    if (!watch->event) return STATUS_NOMEM;
    if (event_add(watch->event, interval) != 0) {
        event_free(watch->event);
        return STATUS_NOMEM;
    }
    server->n_watches++;
    return STATUS_OK;
}

enum status http_server_watch(struct http_server *server, int fd, http_wake_fn *wake, void *owner) {
    return add_watch(server, fd, EV_READ, NULL, wake, owner);
}

enum status http_server_every(struct http_server *server, int interval_ms, http_wake_fn *tick, void *owner) {
    struct timeval interval = {interval_ms / 1000, interval_ms % 1000 * 1000};
    return add_watch(server, -1, 0, &interval, tick, owner);
}

enum status http_server_on_signal(struct http_server *server, int signal_number, http_wake_fn *call, void *owner) {
    return add_watch(server, signal_number, EV_SIGNAL, NULL, call, owner);
}

struct event_base *http_server_loop(struct http_server *server) {
    return server->base;
}

int http_server_n_connections(const struct http_server *server) {
    return server->n_connections;
}

int http_server_n_exchanges(const struct http_server *server) {
    return server->n_exchanges;
}

uint64_t http_server_n_replies(const struct http_server *server, int code) {
    REQUIRE(code >= 0 && code <= HTTP_SERVER_MAX_CODE);
    return server->n_replies[code];
}
