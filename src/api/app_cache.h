/* app_cache: answers that were given before, kept in Redis in front of the engine.
 *
 * Only requests whose answer is a function of the request: greedy or with a seed. The key covers all that changes the
 * answer (model and build, tenant and salt, route, every field that is not known to leave it alone, the ids of the
 * prompts), so a hit is the answer that would be computed. What a hit says of prefix hits is none: those are another
 * cache's. Never waited for longer than a fifth of a second; without Redis requests go on.
 * Thread: io.   Memory: a record of at most APP_CACHE_MAX_BYTES for each call that will be kept. */
#ifndef KVICK_API_APP_CACHE_H
#define KVICK_API_APP_CACHE_H

#include "api/api_call.h"

#define APP_CACHE_MAX_BYTES ((size_t)4 << 20)
#define APP_CACHE_HEADER "X-Kvick-App-Cache"

struct app_cache;

struct app_cache_options {
    const char *address;
    int ttl_s;
    int max_calls;
};

/* Errors: those of app_redis_open. */
WARN_UNUSED enum status app_cache_create(struct app_cache **out_cache, struct http_server *server,
                                         const struct app_cache_options *options, struct status_note *note);
void app_cache_destroy(struct app_cache **cache);

/* What answers depend on beside the request: model, build, numerics. Before the first look. */
void app_cache_set_identity(struct app_cache *cache, const uint8_t identity[HASH_SHA256_BYTES]);

/* True: it is asked, and ends in the stored answer or in api_gate_after_cache. False: the call is not for the cache. */
WARN_UNUSED bool app_cache_look(struct app_cache *cache, struct api_call *call);

/* The client is gone: nothing is waited for. */
void app_cache_drop(struct api_call *call);

/* Bytes of the answer as they are sent, and its end; of a call that is not for the cache nothing happens. */
void app_cache_record(struct api_call *call, const char *bytes, size_t n_bytes);
void app_cache_keep(struct api_call *call);

void app_cache_tick(struct app_cache *cache);

/* Appends kvick_app_cache_*. Errors: those of str_append. */
WARN_UNUSED enum status app_cache_write_metrics(const struct app_cache *cache, const char *model_name, struct str *out);

#endif
