#include "api/api_routes.h"

#include <string.h>

#include "api/api_call.h"
#include "api/api_response.h"
#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/embedding_request.h"
#include "api/messages_request.h"
#include "base/mem.h"
#include "chat/chat_prompt.h"

#define MAX_REPLY_BYTES ((size_t)64 << 20)

/* ---- replies ---- */

static void reply_json(struct http_exchange *exchange, const struct json_write *json, struct str *body) {
    struct api_fault fault;
    if (json_write_finish(json)) {
        api_fault_set(&fault, 503, "out_of_memory", NULL, "no memory for the reply");
        api_fault_reply(&fault, API_OPENAI, exchange);
    } else {
        http_exchange_reply(exchange, 200, "application/json", body->ptr, body->n_bytes);
    }
    str_deinit(body);
}

static void begin_json(struct json_write *json, struct str *body) {
    str_init(body, MAX_REPLY_BYTES);
    json_write_init(json, body);
    json_write_object(json);
}

static int key_of(const struct api_server *api, const struct http_exchange *exchange) {
    struct api_fault ignored;
    int key_idx;
    bool is_known = api_auth_check(&api->auth, exchange, &key_idx, &ignored);
    return is_known ? key_idx : -1;
}

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
    begin_json(&json, &body);
    json_write_field_text(&json, "version", KVICK_VERSION);
    json_write_end_object(&json);
    reply_json(exchange, &json, &body);
}

static void handle_load(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct json_write json;
    struct str body;
    (void)parameter;
    begin_json(&json, &body);
    json_write_field_int(&json, "server_load", api->n_calls);
    json_write_field_int(&json, "load", api->n_calls);
    json_write_end_object(&json);
    reply_json(exchange, &json, &body);
}

static void handle_models(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct api_key_terms terms = api_auth_terms(&api->auth, key_of(api, exchange));
    int max = api_call_max_context(api, &terms);
    const char *bound_by = max < engine_max_context(api->engine) ? "key" : api->options.context_bound_by;
    struct json_write json;
    struct str body;
    (void)parameter;
    begin_json(&json, &body);
    json_write_field_text(&json, "object", "list");
    json_write_key(&json, "data");
    json_write_array(&json);
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
    json_write_end_object(&json);
    reply_json(exchange, &json, &body);
}

static void handle_metrics(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct str body;
    int n_pending = 0;
    (void)parameter;
    for (const struct api_call *call = api->calls; call; call = call->next)
        for (int i = 0; i < call->n_prompts; i++) n_pending += call->prompts[i].state == PROMPT_PENDING;
    struct request_metrics_now now = {.model_name = api->options.model_names[0],
                                      .engine = engine_read_stats(api->engine),
                                      .n_pending = n_pending,
                                      .block_tokens = api->options.block_tokens,
                                      .kv_dtype = api->options.kv_dtype,
                                      .has_prefix_cache = api->options.has_prefix_cache};
    now.n_blocks = now.engine.groups[0].n_blocks;
    str_init(&body, MAX_REPLY_BYTES);
    if (request_metrics_write(&api->metrics, &now, &body))
        http_exchange_reply(exchange, 503, "text/plain", "", 0);
    else
        http_exchange_reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", body.ptr, body.n_bytes);
    str_deinit(&body);
}

/* ---- text to ids and back ---- */

/* The ids of a chat's or a completion's prompts, as the worker would make them. Small texts only: this runs on the
 * loop's thread, so a body is at most MAX_INLINE_BYTES. */
#define MAX_INLINE_BYTES ((size_t)256 << 10)

static bool encode_inline(const struct api_server *api, struct api_prompt *prompt, bool is_chat, bool adds_special,
                          struct api_fault *fault) {
    struct status_note note = {0};
    struct id_list ids;
    enum status status;
    if (!prompt->text) return true;
    if (prompt->n_bytes > MAX_INLINE_BYTES)
        return api_fault_set(fault, 413, NULL, NULL, "the text has %zu bytes; this route takes at most %zu",
                             prompt->n_bytes, MAX_INLINE_BYTES);
    id_list_init(&ids, (size_t)1 << 22);
    if (is_chat) {
        status =
            chat_prompt_encode(api->chat_template, api->tokenizer, prompt->text, prompt->n_bytes, 0, &ids, NULL, &note);
    } else {
        bool has_bos = adds_special && tokenizer_adds_bos(api->tokenizer);
        unsigned flags = TOKENIZER_PARSE_SPECIAL | (has_bos ? TOKENIZER_ADD_BOS : 0);
        status = tokenizer_encode(api->tokenizer, prompt->text, prompt->n_bytes, flags, &ids, &note);
    }
    if (!status) {
        prompt->n_ids = (int)ids.n_ids;
        prompt->ids = (uint32_t *)id_list_take(&ids);
    }
    id_list_deinit(&ids);
    if (status) api_fault_from_status(fault, status, &note);
    return status == STATUS_OK;
}

/* Reads the body and makes the ids of its prompts. NULL: the fault was replied. */
static struct api_prompt *read_and_encode(struct api_server *api, struct http_exchange *exchange, bool is_chat,
                                          json_t **out_json, int *out_n) {
    struct api_fault fault = {0};
    struct api_prompt *prompts = NULL;
    bool adds_special = true, is_read = false;
    size_t n_bytes;
    const char *body = http_exchange_body(exchange, &n_bytes);
    json_t *json = json_read_object(body, n_bytes, &fault);
    *out_n = 1;
    if (json && json_read_flag(json, "add_special_tokens", &adds_special, &fault)) {
        if (is_chat)
            prompts = chat_request_prompt(api, json, body, n_bytes, &fault);
        else
            prompts =
                completion_request_prompts(json, "prompt", tokenizer_n_vocab(api->tokenizer), 1 << 22, out_n, &fault);
    }
    for (int i = 0; prompts && i < *out_n; i++) {
        is_read = encode_inline(api, &prompts[i], is_chat, adds_special, &fault);
        if (!is_read) break;
    }
    if (is_read) {
        *out_json = json;
        return prompts;
    }
    completion_request_free_prompts(prompts, *out_n);
    json_decref(json);
    api_fault_reply(&fault, API_OPENAI, exchange);
    return NULL;
}

static void handle_tokenize(void *owner, struct http_exchange *exchange, const char *parameter) {
    struct api_server *api = owner;
    json_t *json_in;
    int n;
    size_t n_bytes;
    const char *body_in = http_exchange_body(exchange, &n_bytes);
    bool is_chat =
        memmem(body_in, n_bytes, "\"messages\"", 10) != NULL && memmem(body_in, n_bytes, "\"prompt\"", 8) == NULL;
    struct json_write json;
    struct str body;
    (void)parameter;
    struct api_prompt *prompts = read_and_encode(api, exchange, is_chat, &json_in, &n);
    if (!prompts) return;
    begin_json(&json, &body);
    json_write_field_int(&json, "count", prompts[0].n_ids);
    json_write_field_int(&json, "max_model_len", engine_max_context(api->engine));
    api_response_write_ids(&json, "tokens", prompts[0].ids, prompts[0].n_ids);
    json_write_end_object(&json);
    completion_request_free_prompts(prompts, n);
    json_decref(json_in);
    reply_json(exchange, &json, &body);
}

static void write_rendered(struct json_write *json, const struct api_prompt *prompt) {
    json_write_object(json);
    api_response_write_ids(json, "token_ids", prompt->ids, prompt->n_ids);
    json_write_field_null(json, "features");
    json_write_end_object(json);
}

static void handle_chat_render(void *owner, struct http_exchange *exchange, const char *parameter) {
    json_t *json_in;
    int n;
    struct json_write json;
    struct str body;
    (void)parameter;
    struct api_prompt *prompts = read_and_encode(owner, exchange, true, &json_in, &n);
    if (!prompts) return;
    str_init(&body, MAX_REPLY_BYTES);
    json_write_init(&json, &body);
    write_rendered(&json, prompts);
    completion_request_free_prompts(prompts, n);
    json_decref(json_in);
    reply_json(exchange, &json, &body);
}

static void handle_completion_render(void *owner, struct http_exchange *exchange, const char *parameter) {
    json_t *json_in;
    int n;
    struct json_write json;
    struct str body;
    (void)parameter;
    struct api_prompt *prompts = read_and_encode(owner, exchange, false, &json_in, &n);
    if (!prompts) return;
    str_init(&body, MAX_REPLY_BYTES);
    json_write_init(&json, &body);
    json_write_array(&json);
    for (int i = 0; i < n; i++) write_rendered(&json, &prompts[i]);
    json_write_end_array(&json);
    completion_request_free_prompts(prompts, n);
    json_decref(json_in);
    reply_json(exchange, &json, &body);
}

static void handle_detokenize(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct api_fault fault = {0};
    struct api_prompt *prompts = NULL;
    struct detokenizer detokenizer;
    struct json_write json;
    struct str body, text;
    size_t n_bytes;
    int n = 0;
    (void)parameter;
    const char *body_in = http_exchange_body(exchange, &n_bytes);
    json_t *json_in = json_read_object(body_in, n_bytes, &fault);
    if (json_in)
        prompts = completion_request_prompts(json_in, "tokens", tokenizer_n_vocab(api->tokenizer), 1 << 22, &n, &fault);
    if (prompts && (n != 1 || prompts[0].text)) {
        completion_request_free_prompts(prompts, n);
        prompts = NULL;
        api_fault_set(&fault, 400, NULL, "tokens", "'tokens' must be one list of token ids");
    }
    json_decref(json_in);
    if (!prompts) {
        api_fault_reply(&fault, API_OPENAI, exchange);
        return;
    }
    str_init(&text, MAX_REPLY_BYTES / 2);
    detokenizer_init(&detokenizer, api->tokenizer, DETOKENIZER_AT_START | DETOKENIZER_SHOW_SPECIAL);
    begin_json(&json, &body);
    for (int i = 0; !json.status && i < prompts[0].n_ids; i++)
        json.status = detokenizer_push(&detokenizer, (int32_t)prompts[0].ids[i], &text);
    if (!json.status) json.status = detokenizer_finish(&detokenizer, &text);
    json_write_key(&json, "prompt");
    json_write_text(&json, text.ptr, text.n_bytes);
    json_write_end_object(&json);
    str_deinit(&text);
    completion_request_free_prompts(prompts, n);
    reply_json(exchange, &json, &body);
}

/* ---- answers ---- */

static void handle_chat(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)parameter;
    chat_request_handle(owner, exchange, key_of(owner, exchange));
}

static void handle_completion(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)parameter;
    completion_request_handle(owner, exchange, key_of(owner, exchange));
}

/* The same body as the route that it asks about. */
static void handle_estimate(void *owner, struct http_exchange *exchange, const char *parameter) {
    size_t n_bytes;
    const char *body = http_exchange_body(exchange, &n_bytes);
    (void)parameter;
    if (memmem(body, n_bytes, "\"messages\"", 10))
        chat_request_handle(owner, exchange, key_of(owner, exchange));
    else
        completion_request_handle(owner, exchange, key_of(owner, exchange));
}

static void handle_embeddings(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)parameter;
    embedding_request_handle(owner, exchange, key_of(owner, exchange));
}

static void handle_messages(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)parameter;
    messages_request_handle(owner, exchange, key_of(owner, exchange));
}

static void handle_count_tokens(void *owner, struct http_exchange *exchange, const char *parameter) {
    struct api_server *api = owner;
    struct api_fault fault = {0};
    struct json_write json;
    struct str body;
    size_t n_bytes;
    (void)parameter;
    const char *body_in = http_exchange_body(exchange, &n_bytes);
    json_t *json_in = json_read_object(body_in, n_bytes, &fault);
    json_t *chat = json_in ? messages_request_to_chat(json_in, &fault) : NULL;
    struct api_prompt *prompt = chat ? messages_request_prompt(api, chat, &fault) : NULL;
    if (prompt && encode_inline(api, prompt, true, true, &fault)) {
        begin_json(&json, &body);
        json_write_field_int(&json, "input_tokens", prompt->n_ids);
        json_write_end_object(&json);
        reply_json(exchange, &json, &body);
    } else {
        api_fault_reply(&fault, API_ANTHROPIC, exchange);
    }
    completion_request_free_prompts(prompt, 1);
    json_decref(chat);
    json_decref(json_in);
}

const struct http_route *api_routes_table(int *out_n) {
    static const struct http_route routes[] = {
        {"GET", "/health", handle_health},
        {"GET", "/ping", handle_health},
        {"POST", "/ping", handle_health},
        {"GET", "/version", handle_version},
        {"GET", "/load", handle_load},
        {"GET", "/get_load", handle_load},
        {"GET", "/metrics", handle_metrics},
        {"GET", "/v1/models", handle_models},
        {"POST", "/v1/chat/completions", handle_chat},
        {"POST", "/v1/completions", handle_completion},
        {"POST", "/v1/chat/completions/render", handle_chat_render},
        {"POST", "/v1/completions/render", handle_completion_render},
        {"POST", API_ESTIMATE_PATH, handle_estimate},
        {"POST", "/v1/embeddings", handle_embeddings},
        {"POST", "/v1/messages", handle_messages},
        {"POST", "/v1/messages/count_tokens", handle_count_tokens},
        {"POST", "/tokenize", handle_tokenize},
        {"POST", "/detokenize", handle_detokenize},
    };
    *out_n = (int)(sizeof routes / sizeof routes[0]);
    return routes;
}
