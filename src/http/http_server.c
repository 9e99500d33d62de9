#include "http/http_server.h"

#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/bufferevent_ssl.h>
#include <event2/listener.h>
#include <event2/thread.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/log.h"
#include "base/mem.h"
#include "http/http_exchange_impl.h"

#define MAX_LISTENERS 8
#define MAX_WATCHES 16
#define MAX_HEADER_BYTES (64 << 10)
#define BACKLOG 1024
#define FULL_CHECK_MS 50
#define OWN_DESCRIPTORS 32 /* of the process beside connections */

struct watch {
    struct event *event;
    http_wake_fn *call;
    void *owner;
};

struct http_server {
    struct event_base *base;
    struct evhttp *http;
    SSL_CTX *tls;
    struct http_tls tls_files;
    struct http_limits limits;
    struct evhttp_bound_socket *listeners[MAX_LISTENERS];
    int ports[MAX_LISTENERS]; /* of the listeners; 0: not TCP */
    int n_listeners;
    struct watch watches[MAX_WATCHES];
    int n_watches;
    int n_connections; /* open ones, or more */
    bool is_full;      /* listeners are paused */
    http_handle_fn *handle;
    void *owner;
    struct http_exchange *exchanges; /* all that are open */
    int n_exchanges;
};

/* ---- connections ---- */

static void pause_listeners(struct http_server *server, bool is_full) {
    if (server->is_full == is_full) return;
    server->is_full = is_full;
    for (int i = 0; i < server->n_listeners; i++) {
        struct evconnlistener *listener = evhttp_bound_socket_get_listener(server->listeners[i]);
        if (is_full)
            evconnlistener_disable(listener);
        else
            evconnlistener_enable(listener);
    }
}

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

/* Connections of our ports, counted in the kernel's table of this process: evhttp tells of requests, not of the end of
 * connections. */
static int count_connections(const struct http_server *server) {
    DIR *fds = opendir("/proc/self/fd");
    int n = 0;
    if (!fds) return server->n_connections;
    for (const struct dirent *entry; (entry = readdir(fds)) != NULL;) {
        int fd = 0, is_number = entry->d_name[0] != 0;
        for (const char *digit = entry->d_name; *digit; digit++) {
            is_number &= *digit >= '0' && *digit <= '9';
            fd = fd * 10 + (*digit - '0');
        }
        struct sockaddr_storage peer;
        socklen_t n_bytes = sizeof peer;
        if (!is_number || getpeername(fd, (struct sockaddr *)&peer, &n_bytes) != 0) continue;
        int port = http_server_port_of(fd);
        for (int i = 0; port && i < server->n_listeners; i++)
            if (server->ports[i] == port) {
                n++;
                break;
            }
    }
    closedir(fds);
    return n;
}

/* n_connections only grows between two counts, so counting is needed once per max_connections at most, and while full.
 */
static void check_connections(void *owner) {
    struct http_server *server = owner;
    if (server->n_connections < server->limits.max_connections) return;
    server->n_connections = count_connections(server);
    pause_listeners(server, server->n_connections >= server->limits.max_connections);
}

/* The system has no descriptor or memory left for another connection: it waits in the backlog like one too many. */
static void on_accept_error(struct evconnlistener *listener, void *owner) {
    struct http_server *server = owner;
    (void)listener;
    server->n_connections = server->limits.max_connections;
    pause_listeners(server, true);
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

static struct bufferevent *open_stream(struct event_base *base, void *owner) {
    struct http_server *server = owner;
    struct bufferevent *stream;
    if (server->tls) {
        SSL *session = SSL_new(server->tls);
        if (!session) return NULL;
        stream = bufferevent_openssl_socket_new(base, -1, session, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
        if (!stream) SSL_free(session);
    } else {
        stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    }
    if (!stream) return NULL;
    /* evhttp bounds what it parses, not what it keeps unparsed: a chunk's size without an end, a next request. A whole
     * chunk must fit. */
    bufferevent_setwatermark(stream, EV_READ, 0, server->limits.max_body_bytes + MAX_HEADER_BYTES);
    server->n_connections++;
    check_connections(server);
    return stream;
}

/* Where a body ends must not depend on who reads: a proxy in front would take the rest for another request. */
static bool has_clear_end(const struct http_exchange *exchange) {
    const char *coding = http_exchange_header(exchange, "Transfer-Encoding");
    return http_exchange_n_headers(exchange, "Content-Length") <= 1 &&
           http_exchange_n_headers(exchange, "Transfer-Encoding") <= 1 &&
           (!coding || strcasecmp(coding, "chunked") == 0);
}

static void on_request(struct evhttp_request *request, void *owner) {
    static const char unclear[] = "the end of the body is not clear\n";
    struct http_server *server = owner;
    struct http_exchange *exchange =
        http_exchange_open(server, server->base, request, &server->exchanges, &server->n_exchanges);
    if (!exchange) {
        evhttp_send_reply(request, 503, "Service Unavailable", NULL); /* no memory */
    } else if (!has_clear_end(exchange)) {
        http_exchange_set_header(exchange, "Connection", "close");
        http_exchange_reply(exchange, 400, "text/plain", unclear, sizeof unclear - 1);
    } else {
        server->handle(server->owner, exchange);
    }
}

void http_server_forget(struct http_server *server, struct http_exchange *exchange) {
    if (exchange->next) exchange->next->prev = exchange->prev;
    if (exchange->prev)
        exchange->prev->next = exchange->next;
    else
        server->exchanges = exchange->next;
    server->n_exchanges--;
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
    server->http = evhttp_new(server->base);
    if (!server->http) return STATUS_NOMEM;
    evhttp_set_max_headers_size(server->http, MAX_HEADER_BYTES);
    evhttp_set_max_body_size(server->http, (ev_ssize_t)server->limits.max_body_bytes);
    evhttp_set_timeout(server->http, server->limits.idle_s);
    evhttp_set_allowed_methods(server->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT |
                                                 EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
    evhttp_set_default_content_type(server->http, NULL);
    evhttp_set_bevcb(server->http, open_stream, server);
    evhttp_set_gencb(server->http, on_request, server);
    return http_server_every(server, FULL_CHECK_MS, check_connections, server);
}

enum status http_server_create(struct http_server **out_server, const struct http_limits *limits,
                               const struct http_tls *tls, http_handle_fn *handle, void *owner,
                               struct status_note *note) {
    struct http_server *server = mem_alloc(sizeof *server);
    *out_server = NULL;
    if (!server) return status_fail(note, STATUS_NOMEM, "no memory for the HTTP server");
    server->limits = *limits;
    fit_descriptors(&server->limits);
    server->handle = handle;
    server->owner = owner;
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
    while (server->exchanges) {
        struct evhttp_connection *connection = server->exchanges->connection;
        http_exchange_drop(server->exchanges);
        evhttp_connection_free(connection);
    }
    for (int i = 0; i < server->n_watches; i++) event_free(server->watches[i].event);
    if (server->http) evhttp_free(server->http);
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

static enum status add_listener(struct http_server *server, int fd, struct status_note *note) {
    if (server->n_listeners == MAX_LISTENERS)
        return status_fail(note, STATUS_LIMIT, "more than %d addresses to listen on", MAX_LISTENERS);
    struct evhttp_bound_socket *bound = evhttp_accept_socket_with_handle(server->http, fd);
    if (!bound) return status_fail(note, STATUS_NOMEM, "no memory for a listener");
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(bound), on_accept_error);
    server->ports[server->n_listeners] = http_server_port_of(fd);
    server->listeners[server->n_listeners++] = bound;
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
    for (int i = 0; i < server->n_listeners; i++) evhttp_del_accept_socket(server->http, server->listeners[i]);
    server->n_listeners = 0;
}

/* ---- running ---- */

void http_server_run(struct http_server *server) {
    event_base_dispatch(server->base);
}

void http_server_stop(struct http_server *server) {
    event_base_loopbreak(server->base);
}

static void on_watch(evutil_socket_t fd, short what, void *owner) {
    const struct watch *watch = owner;
    (void)fd, (void)what;
    watch->call(watch->owner);
}

static enum status add_watch(struct http_server *server, int fd, short what, const struct timeval *interval,
                             http_wake_fn *call, void *owner) {
    if (server->n_watches == MAX_WATCHES) return STATUS_LIMIT;
    struct watch *watch = &server->watches[server->n_watches];
    *watch = (struct watch){event_new(server->base, fd, (short)(what | EV_PERSIST), on_watch, watch), call, owner};
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

int http_server_n_connections(const struct http_server *server) {
    return count_connections(server);
}

int http_server_n_exchanges(const struct http_server *server) {
    return server->n_exchanges;
}
