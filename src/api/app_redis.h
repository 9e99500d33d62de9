/* app_redis: get and set in a Redis server from the event loop, nothing more; never blocks.
 *
 * While Redis cannot be reached nothing is asked of it; it is tried again every second. Each change is told in one
 * line. Thread: io.   Memory: max_gets questions at a time. */
#ifndef KVICK_API_APP_REDIS_H
#define KVICK_API_APP_REDIS_H

#include "http/http_server.h"

struct app_redis;
struct app_redis_get;

/* address: "redis://HOST[:PORT][/DB]" or "unix:PATH"; a name is looked up here. Errors: STATUS_INVALID with the address
 * in note, STATUS_NOMEM. Whether Redis is there is not asked. */
WARN_UNUSED enum status app_redis_open(struct app_redis **out_redis, struct http_server *server, const char *address,
                                       int max_gets, struct status_note *note);

/* Open questions are dropped; nobody is told. */
void app_redis_close(struct app_redis **redis);

/* bytes: NULL if there is no such key, or Redis has failed. */
typedef void app_redis_told_fn(void *owner, const char *bytes, size_t n_bytes);

/* NULL: it cannot be asked now, and nothing is told. told is called once, never from here. */
WARN_UNUSED struct app_redis_get *app_redis_ask(struct app_redis *redis, const void *key, size_t n_key,
                                                app_redis_told_fn *told, void *owner);

/* Nothing will be told of it. */
void app_redis_drop(struct app_redis_get *get);

/* False: it cannot be asked now. Whether it was stored is not waited for. */
bool app_redis_put(struct app_redis *redis, const void *key, size_t n_key, const void *value, size_t n_value,
                   int ttl_s);

/* Every 100 ms: who waits for too long is told, and the connection given up; one that is gone is made anew. */
void app_redis_tick(struct app_redis *redis);

#endif
