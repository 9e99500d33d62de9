#include "api/app_cache.h"

#include <stdio.h>
#include <string.h>

#include "api/api_delivery.h"
#include "api/api_gate.h"
#include "api/api_response.h"
#include "api/app_redis.h"
#include "base/mem.h"
#include "observe/metric_table.h"

#define KEY_PREFIX "kvick:answer:1:"
#define MAX_KEY_BYTES (sizeof KEY_PREFIX + HASH_SHA256_BYTES)
#define MAX_CANONICAL_BYTES ((size_t)64 << 20)

enum { HIT, MISS, N_LOOKS };

struct app_cache {
    struct app_redis *redis;
    struct app_cache_options options;
    uint8_t identity[HASH_SHA256_BYTES];
    uint64_t n_looks[N_LOOKS], n_skipped, n_down, n_stored, n_not_stored;
};

enum status app_cache_create(struct app_cache **out_cache, struct http_server *server,
                             const struct app_cache_options *options, struct status_note *note) {
    struct app_cache *cache = mem_alloc(sizeof *cache);
    *out_cache = NULL;
    if (!cache) return status_fail(note, STATUS_NOMEM, "no memory for the app cache");
    cache->options = *options;
    enum status status = app_redis_open(&cache->redis, server, options->address, options->max_calls, note);
    if (status)
        mem_free(cache);
    else
        *out_cache = cache;
    return status;
}

void app_cache_destroy(struct app_cache **cache) {
    if (!*cache) return;
    app_redis_close(&(*cache)->redis);
    mem_free(*cache);
    *cache = NULL;
}

void app_cache_set_identity(struct app_cache *cache, const uint8_t identity[HASH_SHA256_BYTES]) {
    memcpy(cache->identity, identity, HASH_SHA256_BYTES);
}

/* ---- which calls, and their keys ---- */

/* Figures of the run itself are part of some answers: those are never the same twice. */
static bool is_for_cache(const struct api_call *call) {
    const struct api_params *params = &call->params;
    bool is_determined = params->has_seed || params->sampling.temperature == 0;
    bool has_figures = params->wants_phases || params->wants_progress || call->api->options.returns_phases ||
                       params->has_continuous_usage;
    bool is_plain = call->response == &chat_response || call->response == &completion_response ||
                    call->response == &messages_response;
    return is_plain && is_determined && !has_figures && !params->has_cache_off && call->exchange;
}

/* The request without what cannot change its answer, in one order of fields. */
static char *canonical(const struct api_call *call, size_t *out_n_bytes) {
    static const char *const idle[] = {"user",       "metadata", "store",      "service_tier",      "priority",
                                       "cache_salt", "model",    "request_id", "safety_identifier", "prompt_cache_key",
                                       "session_id"};
    json_t *json = json_copy(call->json);
    for (size_t i = 0; json && i < sizeof idle / sizeof idle[0]; i++) json_object_del(json, idle[i]);
    size_t flags = JSON_COMPACT | JSON_SORT_KEYS, n_bytes = json ? json_dumpb(json, NULL, 0, flags) : 0;
    char *text = n_bytes && n_bytes <= MAX_CANONICAL_BYTES ? mem_alloc(n_bytes) : NULL;
    if (text) *out_n_bytes = json_dumpb(json, text, n_bytes, flags);
    json_decref(json);
    return text;
}

static void mix(uint8_t sum[HASH_SHA256_BYTES], const void *bytes, size_t n_bytes) {
    uint8_t head[HASH_SHA256_BYTES + sizeof(uint64_t)];
    uint64_t n = n_bytes;
    memcpy(head, sum, HASH_SHA256_BYTES);
    memcpy(head + HASH_SHA256_BYTES, &n, sizeof n);
    hash_sha256(head, sizeof head, bytes, n_bytes, sum);
}

/* False: no memory. */
static bool make_key(const struct app_cache *cache, struct api_call *call) {
    size_t n_bytes = 0;
    char *text = canonical(call, &n_bytes);
    if (!text) return false;
    memcpy(call->cache_key, cache->identity, HASH_SHA256_BYTES);
    mix(call->cache_key, call->path, strlen(call->path));
    mix(call->cache_key, call->api->options.model_names[0], strlen(call->api->options.model_names[0]));
    mix(call->cache_key, text, n_bytes);
    for (int i = 0; i < call->n_prompts; i++) {
        const struct request *request = call->prompts[i].request;
        mix(call->cache_key, &request->salt, sizeof request->salt); /* of the tenant and of the request */
        mix(call->cache_key, &request->max_new, sizeof request->max_new);
        mix(call->cache_key, call->prompts[i].ids, (size_t)call->prompts[i].n_ids * sizeof *call->prompts[i].ids);
    }
    mem_free(text);
    return true;
}

static size_t write_key(const struct api_call *call, char out[MAX_KEY_BYTES]) {
    size_t n = sizeof KEY_PREFIX - 1;
    memcpy(out, KEY_PREFIX, n);
    memcpy(out + n, call->cache_key, HASH_SHA256_BYTES);
    return n + HASH_SHA256_BYTES;
}

/* ---- what is stored: the answer's bytes behind the id of the call that computed it ---- */

/* Copies text and gives each "id":"from" as "id":"to". No quote stands bare in a text of JSON, so only fields match. */
static enum status rename_ids(const char *text, size_t n_bytes, const char *from, const char *to, struct str *out) {
    char field[API_MAX_ID_BYTES + 16];
    size_t n_field = (size_t)snprintf(field, sizeof field, "\"id\":\"%s\"", from);
    const char *end = text + n_bytes, *at;
    enum status status = STATUS_OK;
    while (!status && (at = memmem(text, (size_t)(end - text), field, n_field)) != NULL) {
        status = str_append(out, text, (size_t)(at - text));
        if (!status) status = str_append_fmt(out, "\"id\":\"%s\"", to);
        text = at + n_field;
    }
    return status ? status : str_append(out, text, (size_t)(end - text));
}

static bool read_count(const char *text, const char *end, const char *name, const char **out_at, const char **out_end,
                       long long *out_value) {
    const char *at = memmem(text, (size_t)(end - text), name, strlen(name));
    if (!at) return false;
    *out_at = at += strlen(name);
    *out_value = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) *out_value = *out_value * 10 + (*at - '0');
    *out_end = at;
    return true;
}

/* Copies text with the prefix hits of its usage taken out: where they are told beside the other input (Anthropic's
 * form) they are added to that. */
static enum status forget_prefix_hits(const char *text, size_t n_bytes, struct str *out) {
    static const char openai[] = "\"cached_tokens\":", input[] = "\"input_tokens\":",
                      anthropic[] = "\"cache_read_input_tokens\":";
    const char *end = text + n_bytes, *at, *after, *cached_at, *cached_end;
    long long n_input, n_cached;
    enum status status = STATUS_OK;
    while (!status && read_count(text, end, openai, &at, &after, &n_cached)) {
        status = str_append(out, text, (size_t)(at - text));
        if (!status) status = str_append_text(out, "0");
        text = after;
    }
    while (!status && read_count(text, end, input, &at, &after, &n_input) &&
           read_count(after, end, anthropic, &cached_at, &cached_end, &n_cached)) {
        status = str_append(out, text, (size_t)(at - text));
        if (!status) status = str_append_fmt(out, "%lld", n_input + n_cached);
        if (!status) status = str_append(out, after, (size_t)(cached_at - after));
        if (!status) status = str_append_text(out, "0");
        text = cached_end;
    }
    return status ? status : str_append(out, text, (size_t)(end - text));
}

static enum status write_value(const struct api_call *call, struct str *out) {
    enum status status = str_append_fmt(out, "%s\n", call->id);
    return status ? status : forget_prefix_hits(call->record.ptr, call->record.n_bytes, out);
}

/* False: it is no value of ours. */
static bool reply_value(struct api_call *call, const char *bytes, size_t n_bytes) {
    const char *end = memchr(bytes, '\n', n_bytes);
    char from[API_MAX_ID_BYTES];
    struct str body;
    if (!end || end == bytes || (size_t)(end - bytes) >= sizeof from) return false;
    snprintf(from, sizeof from, "%.*s", (int)(end - bytes), bytes);
    str_init(&body, 2 * APP_CACHE_MAX_BYTES);
    enum status status = rename_ids(end + 1, n_bytes - (size_t)(end + 1 - bytes), from, call->id, &body);
    if (!status) {
        http_exchange_set_header(call->exchange, APP_CACHE_HEADER, "hit");
        api_delivery_stored(call, body.ptr, body.n_bytes);
        api_gate_end(call); /* it goes no further */
    }
    str_deinit(&body);
    return !status;
}

/* ---- looking ---- */

static void on_told(void *owner, const char *bytes, size_t n_bytes) {
    struct api_call *call = owner;
    struct app_cache *cache = call->api->cache;
    call->look = NULL;
    bool is_hit = bytes && call->exchange && reply_value(call, bytes, n_bytes);
    cache->n_looks[is_hit ? HIT : MISS]++;
    if (is_hit) return;
    if (call->exchange) http_exchange_set_header(call->exchange, APP_CACHE_HEADER, "miss");
    call->is_recorded = call->exchange != NULL;
    api_gate_after_cache(call);
}

bool app_cache_look(struct app_cache *cache, struct api_call *call) {
    char key[MAX_KEY_BYTES];
    if (!is_for_cache(call)) {
        cache->n_skipped++;
        return false;
    }
    if (!make_key(cache, call)) return false;
    call->look = app_redis_ask(cache->redis, key, write_key(call, key), on_told, call);
    cache->n_down += !call->look;
    return call->look != NULL;
}

void app_cache_drop(struct api_call *call) {
    if (!call->look) return;
    app_redis_drop(call->look);
    call->look = NULL;
}

/* ---- keeping ---- */

void app_cache_record(struct api_call *call, const char *bytes, size_t n_bytes) {
    if (!call->is_recorded) return;
    if (call->record.max_bytes == 0) str_init(&call->record, APP_CACHE_MAX_BYTES);
    if (!str_append(&call->record, bytes, n_bytes)) return;
    call->is_recorded = false; /* too long, or no memory */
    call->api->cache->n_not_stored++;
    str_deinit(&call->record);
}

void app_cache_keep(struct api_call *call) {
    struct app_cache *cache = call->api->cache;
    char key[MAX_KEY_BYTES];
    struct str value;
    if (!call->is_recorded) return;
    call->is_recorded = false;
    str_init(&value, APP_CACHE_MAX_BYTES + 4096);
    bool is_stored =
        !call->fault.http_code && !write_value(call, &value) &&
        app_redis_put(cache->redis, key, write_key(call, key), value.ptr, value.n_bytes, cache->options.ttl_s);
    cache->n_stored += is_stored;
    cache->n_not_stored += !is_stored;
    str_deinit(&value);
}

void app_cache_tick(struct app_cache *cache) {
    app_redis_tick(cache->redis);
}

enum status app_cache_write_metrics(const struct app_cache *cache, const char *model_name, struct str *out) {
    const struct {
        enum metric metric;
        uint64_t value;
    } counters[] = {{METRIC_APP_CACHE_QUERIES, cache->n_looks[HIT] + cache->n_looks[MISS]},
                    {METRIC_APP_CACHE_HITS, cache->n_looks[HIT]},
                    {METRIC_APP_CACHE_SKIPPED, cache->n_skipped},
                    {METRIC_APP_CACHE_UNAVAILABLE, cache->n_down},
                    {METRIC_APP_CACHE_STORES, cache->n_stored},
                    {METRIC_APP_CACHE_NOT_STORED, cache->n_not_stored}};
    struct prom_text text;
    metric_table_init(&text, out, model_name);
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
        metric_table_value(&text, counters[i].metric, (double)counters[i].value);
    return text.status;
}
