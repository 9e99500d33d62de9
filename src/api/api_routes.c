#include "api/api_routes.h"

#include <stdio.h>
#include <string.h>

#include "api/api_openapi.h"
#include "api/api_reply.h"
#include "api/api_request.h"
#include "api/app_cache.h"
#include "api/pre_hook.h"
#include "api/text_request.h"
#include "observe/metric_table.h"

/* ---- the server's own state ---- */

static void handle_health(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    static const char *const texts[] = {
        [API_LOADING] = "loading\n", [API_SERVING] = "ok\n", [API_DRAINING] = "draining\n"};
    (void)parameter;
    const char *text = texts[api->state];
    http_exchange_reply(exchange, api->state == API_SERVING ? 200 : 503, "text/plain", text, strlen(text));
}

static void handle_version(void *owner, struct http_exchange *exchange, const char *parameter) {
    struct json_write json;
    struct str body;
    (void)owner, (void)parameter;
    api_reply_begin(&json, &body);
    json_write_field_text(&json, "version", KVICK_VERSION);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}

static void handle_openapi(void *owner, struct http_exchange *exchange, const char *parameter) {
    size_t n_bytes;
    const char *text = api_openapi_text(&n_bytes);
    (void)owner, (void)parameter;
    http_exchange_reply(exchange, 200, "application/json", text, n_bytes);
}

static void handle_load(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct json_write json;
    struct str body;
    (void)parameter;
    api_reply_begin(&json, &body);
    json_write_field_int(&json, "server_load", api->n_calls);
    json_write_field_int(&json, "load", api->n_calls);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}

static void write_group(struct json_write *json, const struct engine_group_stats *group) {
    json_write_object(json);
    json_write_field_int(json, "window", group->window);
    json_write_field_int(json, "blocks", group->n_blocks);
    json_write_field_int(json, "free", group->n_free);
    json_write_field_int(json, "reusable", group->n_reusable);
    json_write_field_int(json, "held", group->n_held);
    json_write_field_int(json, "pinned", group->n_pinned);
    json_write_field_int(json, "max_pinned", group->max_pinned);
    json_write_end_object(json);
}

/* What the blocks of every KV group are used for. */
static void handle_cache(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct engine_stats stats = engine_read_stats(api->engine);
    struct json_write json;
    struct str body;
    (void)parameter;
    api_reply_begin(&json, &body);
    json_write_field_text(&json, "object", "cache");
    json_write_field_int(&json, "block_tokens", api->options.block_tokens);
    json_write_field_flag(&json, "prefix_cache", api->options.has_prefix_cache);
    json_write_field_array(&json, "groups");
    for (int g = 0; g < stats.n_groups; g++) write_group(&json, &stats.groups[g]);
    json_write_end_array(&json);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}

static void handle_models(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct api_key_terms terms = api_auth_terms(&api->auth, api_auth_key_of(&api->auth, exchange));
    int max = api_call_max_context(api, &terms);
    const char *bound_by = max < engine_max_context(api->engine) ? "key" : api->options.context_bound_by;
    struct json_write json;
    struct str body;
    (void)parameter;
    api_reply_begin(&json, &body);
    json_write_field_text(&json, "object", "list");
    json_write_field_array(&json, "data");
    for (int i = 0; i < api->options.n_model_names; i++) {
        json_write_object(&json);
        json_write_field_text(&json, "id", api->options.model_names[i]);
        json_write_field_text(&json, "object", "model");
        json_write_field_int(&json, "created", api->started_s);
        json_write_field_text(&json, "owned_by", "vllm"); /* routers choose how they speak by this word */
        json_write_field_text(&json, "root", api->options.model_names[0]);
        json_write_field_null(&json, "parent");
        json_write_field_int(&json, "max_model_len", max);
        json_write_field_text(&json, "max_model_len_bound_by", bound_by);
        json_write_end_object(&json);
    }
    json_write_end_array(&json);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}

/* Those that a server may be looked at for are there before they happen. */
static enum status write_errors(const struct api_server *api, struct str *out) {
    static const int usual[] = {400, 401, 403, 404, 405, 408, 413, 422, 429, 500, 501, 503};
    struct prom_text text;
    metric_table_init(&text, out, api->options.model_names[0]);
    metric_table_begin(&text, METRIC_HTTP_ERRORS);
    for (int code = 400, at = 0; code <= HTTP_SERVER_MAX_CODE; code++) {
        char word[16];
        bool is_usual = at < (int)(sizeof usual / sizeof usual[0]) && usual[at] == code;
        uint64_t n = http_server_n_replies(api->http, code);
        at += is_usual;
        snprintf(word, sizeof word, "%d", code);
        if (n || is_usual) prom_text_sample(&text, "code", word, (double)n);
    }
    return text.status;
}

static void handle_metrics(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct str body;
    (void)parameter;
    struct request_metrics_now now = {.model_name = api->options.model_names[0],
                                      .engine = engine_read_stats(api->engine),
                                      .n_pending = api_call_n_pending(api),
                                      .block_tokens = api->options.block_tokens,
                                      .kv_dtype = api->options.kv_dtype,
                                      .has_prefix_cache = api->options.has_prefix_cache};
    now.n_blocks = now.engine.groups[0].n_blocks;
    str_init(&body, API_REPLY_MAX_BYTES);
    if (request_metrics_write(&api->metrics, &now, &body) || write_errors(api, &body) ||
        (api->hook && pre_hook_write_metrics(api->hook, now.model_name, &body)) ||
        (api->cache && app_cache_write_metrics(api->cache, now.model_name, &body)))
        http_exchange_reply(exchange, 503, "text/plain", "", 0);
    else
        http_exchange_reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", body.ptr, body.n_bytes);
    str_deinit(&body);
}

static void handle_request_state(void *owner, struct http_exchange *exchange, const char *parameter) {
    api_history_reply(owner, exchange, parameter);
}

/* ---- answers ---- */

static void handle_answer(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)parameter;
    api_request_handle(owner, exchange, api_request_ask_of(http_exchange_path(exchange)));
}

/* Routes that take the body of a chat or of a completion. */
static void handle_either(struct http_exchange *exchange, struct api_server *api, const struct api_ask *chat,
                          const struct api_ask *text) {
    size_t n_bytes;
    const char *body = http_exchange_body(exchange, &n_bytes);
    api_request_handle(api, exchange, api_request_is_chat(body, n_bytes) ? chat : text);
}

static void handle_estimate(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)parameter;
    handle_either(exchange, owner, &chat_request, &completion_request);
}

static void handle_warm(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)parameter;
    handle_either(exchange, owner, &warm_request_chat, &warm_request_text);
}

const struct http_route *api_routes_table(int *out_n) {
    static const struct http_route routes[] = {
        {"GET", "/health", handle_health},
        {"GET", "/ping", handle_health},
        {"POST", "/ping", handle_health},
        {"GET", "/version", handle_version},
        {"GET", "/openapi.json", handle_openapi},
        {"GET", "/load", handle_load},
        {"GET", "/get_load", handle_load},
        {"GET", "/metrics", handle_metrics},
        {"GET", "/v1/models", handle_models},
        {"POST", "/v1/chat/completions", handle_answer},
        {"POST", "/v1/completions", handle_answer},
        {"POST", "/v1/chat/completions/render", text_request_render_chat},
        {"POST", "/v1/completions/render", text_request_render},
        {"POST", API_ESTIMATE_PATH, handle_estimate},
        {"POST", "/v1/embeddings", handle_answer},
        {"GET", "/v1/requests/{id}", handle_request_state},
        {"POST", "/v1/cache/warm", handle_warm},
        {"GET", "/v1/cache", handle_cache},
        {"POST", "/v1/responses", handle_answer},
        {"POST", "/v1/messages", handle_answer},
        {"POST", "/v1/messages/count_tokens", text_request_count},
        {"POST", "/tokenize", text_request_tokenize},
        {"POST", "/detokenize", text_request_detokenize},
        {"GET", "/tokenizer_info", text_request_tokenizer},
    };
    *out_n = (int)(sizeof routes / sizeof routes[0]);
    return routes;
}
