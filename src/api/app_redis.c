#include "api/app_redis.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/adapters/libevent.h>
#include <hiredis/async.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#define MAX_ADDRESS_BYTES 256
#define GET_LIMIT_NS INT64_C(200000000)
#define RETRY_NS INT64_C(1000000000)
#define MAX_UNSENT_BYTES ((size_t)64 << 20) /* of values that Redis does not take */

struct app_redis_get {
    struct app_redis *redis;
    app_redis_told_fn *told; /* NULL: dropped */
    void *owner;
    int64_t begun_ns;
    struct app_redis_get *next, *prev;
};

struct app_redis {
    struct http_server *server;
    redisAsyncContext *context; /* NULL: none */
    char address[MAX_ADDRESS_BYTES];
    char host[INET6_ADDRSTRLEN]; /* numeric */
    int port, db;
    const char *path; /* of a socket, in address; NULL: host and port */
    bool is_connected, was_down, is_closing;
    int64_t tried_ns;
    struct app_redis_get *gets;
    int n_gets, max_gets;
    size_t n_unsent_bytes;
};

/* ---- addresses ---- */

static enum status find_host(struct app_redis *redis, const char *host, struct status_note *note) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int failure = getaddrinfo(host, NULL, &hints, &found);
    if (!failure)
        failure =
            getnameinfo(found->ai_addr, found->ai_addrlen, redis->host, sizeof redis->host, NULL, 0, NI_NUMERICHOST);
    if (failure) return status_fail(note, STATUS_INVALID, "%s: %s", redis->address, gai_strerror(failure));
    freeaddrinfo(found);
    return STATUS_OK;
}

static enum status read_address(struct app_redis *redis, const char *address, struct status_note *note) {
    char host[MAX_ADDRESS_BYTES];
    int64_t port_no = 6379, db_no = 0;
    if (strlen(address) >= sizeof redis->address)
        return status_fail(note, STATUS_INVALID, "'%.100s...' is too long", address);
    snprintf(redis->address, sizeof redis->address, "%s", address);
    if (strncmp(address, "unix:", 5) == 0 && address[5]) {
        redis->path = redis->address + 5;
        return STATUS_OK;
    }
    if (strncmp(address, "redis://", 8) != 0)
        return status_fail(note, STATUS_INVALID, "'%s' is neither redis://HOST:PORT/DB nor unix:PATH", address);
    snprintf(host, sizeof host, "%s", address + 8);
    char *db = strchr(host, '/');
    if (db) *db++ = 0;
    char *port = strrchr(host, ':');
    if (port) *port++ = 0;
    bool is_sound =
        (!port || str_read_count(port, 65535, &port_no)) && (!db || !*db || str_read_count(db, 1 << 20, &db_no));
    if (!is_sound || !host[0] || strchr(host, '@') || port_no < 1)
        return status_fail(note, STATUS_INVALID, "'%s' is not redis://HOST:PORT/DB (passwords are not supported)",
                           address);
    redis->port = (int)port_no;
    redis->db = (int)db_no;
    return find_host(redis, host, note);
}

/* ---- the connection ---- */

static void say_down(struct app_redis *redis, const char *why) {
    if (!redis->was_down && !redis->is_closing)
        log_line(LOG_WARN, "app cache %s: %s; requests go on uncached", redis->address, why);
    redis->was_down = true;
}

static void on_connected(const redisAsyncContext *context, int status) {
    struct app_redis *redis = context->data;
    if (status != REDIS_OK) {
        say_down(redis, context->errstr);
        redis->context = NULL; /* hiredis frees it */
        return;
    }
    redis->is_connected = true;
    if (redis->was_down) log_line(LOG_WARN, "app cache %s: it is there again", redis->address);
    redis->was_down = false;
}

static void on_disconnected(const redisAsyncContext *context, int status) {
    struct app_redis *redis = context->data;
    if (status != REDIS_OK) say_down(redis, context->errstr);
    redis->context = NULL;
    redis->is_connected = false;
}

static void give_up(struct app_redis *redis) {
    redisAsyncContext *context = redis->context;
    redis->is_connected = false;
    redis->context = NULL;
    if (context) redisAsyncFree(context); /* tells all that wait */
}

static void on_selected(redisAsyncContext *context, void *reply_ptr, void *owner) {
    const redisReply *reply = reply_ptr;
    (void)owner;
    if (reply && reply->type == REDIS_REPLY_ERROR) say_down(context->data, reply->str);
}

static void connect_to(struct app_redis *redis) {
    redis->tried_ns = clock_now_ns();
    redis->n_unsent_bytes = 0;
    redisAsyncContext *context =
        redis->path ? redisAsyncConnectUnix(redis->path) : redisAsyncConnect(redis->host, redis->port);
    if (!context || context->err) {
        say_down(redis, context ? context->errstr : "no memory");
        if (context) redisAsyncFree(context);
        return;
    }
    context->data = redis;
    redis->context = context;
    if (redisLibeventAttach(context, http_server_loop(redis->server)) != REDIS_OK ||
        redisAsyncSetConnectCallback(context, on_connected) != REDIS_OK ||
        redisAsyncSetDisconnectCallback(context, on_disconnected) != REDIS_OK ||
        (redis->db && redisAsyncCommand(context, on_selected, NULL, "SELECT %d", redis->db) != REDIS_OK))
        give_up(redis);
}

enum status app_redis_open(struct app_redis **out_redis, struct http_server *server, const char *address, int max_gets,
                           struct status_note *note) {
    struct app_redis *redis = mem_alloc(sizeof *redis);
    *out_redis = NULL;
    if (!redis) return status_fail(note, STATUS_NOMEM, "no memory for %.100s", address);
    redis->server = server;
    redis->max_gets = max_gets;
    enum status status = read_address(redis, address, note);
    if (status) {
        mem_free(redis);
        return status;
    }
    connect_to(redis);
    *out_redis = redis;
    return STATUS_OK;
}

void app_redis_close(struct app_redis **redis) {
    if (!*redis) return;
    (*redis)->is_closing = true;
    for (struct app_redis_get *get = (*redis)->gets; get; get = get->next) get->told = NULL;
    give_up(*redis);
    mem_free(*redis);
    *redis = NULL;
}

/* ---- questions ---- */

static void on_value(redisAsyncContext *context, void *reply_ptr, void *owner) {
    const redisReply *reply = reply_ptr;
    struct app_redis_get *get = owner;
    struct app_redis *redis = get->redis;
    app_redis_told_fn *told = get->told;
    bool is_there = reply && reply->type == REDIS_REPLY_STRING;
    void *whose = get->owner;
    if (reply && reply->type == REDIS_REPLY_ERROR) say_down(context->data, reply->str);
    if (get->next) get->next->prev = get->prev;
    if (get->prev)
        get->prev->next = get->next;
    else
        redis->gets = get->next;
    redis->n_gets--;
    mem_free(get);
    if (told) told(whose, is_there ? reply->str : NULL, is_there ? reply->len : 0);
}

struct app_redis_get *app_redis_ask(struct app_redis *redis, const void *key, size_t n_key, app_redis_told_fn *told,
                                    void *owner) {
    if (!redis->is_connected || redis->n_gets >= redis->max_gets) return NULL;
    struct app_redis_get *get = mem_alloc(sizeof *get);
    if (!get) return NULL;
    *get = (struct app_redis_get){
        .redis = redis, .told = told, .owner = owner, .begun_ns = clock_now_ns(), .next = redis->gets};
    if (redisAsyncCommand(redis->context, on_value, get, "GET %b", key, n_key) != REDIS_OK) {
        mem_free(get);
        return NULL;
    }
    if (get->next) get->next->prev = get;
    redis->gets = get;
    redis->n_gets++;
    return get;
}

void app_redis_drop(struct app_redis_get *get) {
    get->told = NULL; /* hiredis still tells us */
}

/* owner: how many bytes it was, as a pointer: nothing is kept for it. */
static void on_stored(redisAsyncContext *context, void *reply_ptr, void *owner) {
    struct app_redis *redis = context->data;
    const redisReply *reply = reply_ptr;
    redis->n_unsent_bytes -= (size_t)(uintptr_t)owner;
    if (reply && reply->type == REDIS_REPLY_ERROR) say_down(redis, reply->str);
}

bool app_redis_put(struct app_redis *redis, const void *key, size_t n_key, const void *value, size_t n_value,
                   int ttl_s) {
    if (!redis->is_connected || redis->n_unsent_bytes + n_value > MAX_UNSENT_BYTES) return false;
    if (redisAsyncCommand(redis->context, on_stored, (void *)(uintptr_t)n_value, "SET %b %b EX %d", key, n_key, value,
                          n_value, ttl_s) != REDIS_OK)
        return false;
    redis->n_unsent_bytes += n_value;
    return true;
}

void app_redis_tick(struct app_redis *redis) {
    int64_t now_ns = clock_now_ns();
    bool is_late = redis->context && !redis->is_connected && now_ns - redis->tried_ns > RETRY_NS;
    for (const struct app_redis_get *get = redis->gets; get; get = get->next)
        is_late |= now_ns - get->begun_ns > GET_LIMIT_NS;
    if (is_late) {
        say_down(redis, "it does not answer");
        redis->tried_ns = now_ns;
        give_up(redis);
    }
    if (!redis->context && now_ns - redis->tried_ns > RETRY_NS) connect_to(redis);
}
