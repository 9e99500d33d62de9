#include "api/text_request.h"

#include "api/api_reply.h"
#include "api/api_request.h"
#include "api/api_response.h"
#include "api/completion_request.h"

#define MAX_IDS (1 << 22)

static bool encode(struct api_request *request, enum api_kind kind, bool adds_special, struct api_fault *fault) {
    for (int i = 0; i < request->n_prompts; i++) {
        struct api_prompt *prompt = &request->prompts[i];
        struct status_note note = {0};
        if (prompt->text && prompt->n_bytes > TEXT_REQUEST_MAX_BYTES)
            return api_fault_set(fault, 413, NULL, NULL, "the text has %zu bytes; this route takes at most %zu",
                                 prompt->n_bytes, TEXT_REQUEST_MAX_BYTES);
        enum status status = tokenize_worker_encode(request->api, kind, adds_special, prompt, NULL, &note);
        if (!status) continue;
        api_fault_from_status(fault, status, &note);
        return false;
    }
    return true;
}

/* Reads the body and makes the ids of its prompts. False: the fault was replied, and request is empty. */
static bool read_ids(struct api_request *request, struct api_server *api, struct http_exchange *exchange,
                     const struct api_ask *ask) {
    struct api_fault fault = {0};
    bool adds_special = true;
    size_t n_bytes;
    const char *body = http_exchange_body(exchange, &n_bytes);
    bool is_parsed = api_request_parse(request, api, ask, body, n_bytes, &fault);
    request->max_ids = MAX_IDS;
    if (is_parsed && json_read_flag(request->json, "add_special_tokens", &adds_special, &fault) &&
        ask->read_prompts(request, &fault) && encode(request, ask->response->kind, adds_special, &fault))
        return true;
    api_request_deinit(request);
    api_fault_reply(&fault, ask->response->shape, exchange);
    return false;
}

/* "token_strs": what each id stands for, with U+FFFD where it is a part of a character. */
static void write_texts(struct json_write *json, const struct api_server *api, const struct api_prompt *prompt) {
    struct str text;
    str_init(&text, API_REPLY_MAX_BYTES);
    json_write_field_array(json, "token_strs");
    for (int i = 0; i < prompt->n_ids && !json->status; i++) {
        json->status = api_response_token_text(api, prompt->ids[i], &text);
        json_write_text(json, text.ptr, text.n_bytes);
    }
    json_write_end_array(json);
    str_deinit(&text);
}

void text_request_tokenize(void *owner, struct http_exchange *exchange, const char *parameter) {
    struct api_server *api = owner;
    struct api_request request;
    struct api_fault fault = {0};
    struct json_write json;
    struct str body;
    bool has_texts = false;
    size_t n_bytes;
    const char *asked = http_exchange_body(exchange, &n_bytes);
    (void)parameter;
    if (!read_ids(&request, api, exchange, api_request_is_chat(asked, n_bytes) ? &chat_request : &completion_request))
        return;
    if (request.n_prompts > 1)
        api_fault_set(&fault, 400, NULL, "prompt", "'prompt' holds %d prompts; this route takes one",
                      request.n_prompts);
    if (fault.http_code || !json_read_flag(request.json, "return_token_strs", &has_texts, &fault)) {
        api_request_deinit(&request);
        api_fault_reply(&fault, API_OPENAI, exchange);
        return;
    }
    api_reply_begin(&json, &body);
    json_write_field_int(&json, "count", request.prompts->n_ids);
    struct api_key_terms terms = api_auth_terms(&api->auth, api_auth_key_of(&api->auth, exchange));
    json_write_field_int(&json, "max_model_len", api_call_max_context(api, &terms));
    api_response_write_ids(&json, "tokens", request.prompts->ids, request.prompts->n_ids);
    if (has_texts) write_texts(&json, api, request.prompts);
    api_request_deinit(&request);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}

static void write_rendered(struct json_write *json, const struct api_prompt *prompt) {
    json_write_object(json);
    api_response_write_ids(json, "token_ids", prompt->ids, prompt->n_ids);
    json_write_field_null(json, "features");
    json_write_end_object(json);
}

/* A chat is one object, completions a list of them, as routers read it. */
static void render(struct api_server *api, struct http_exchange *exchange, const struct api_ask *ask) {
    struct api_request request;
    struct json_write json;
    struct str body;
    bool is_list = ask->response->kind == API_COMPLETION;
    if (!read_ids(&request, api, exchange, ask)) return;
    str_init(&body, API_REPLY_MAX_BYTES);
    json_write_init(&json, &body);
    if (is_list) json_write_array(&json);
    for (int i = 0; i < request.n_prompts; i++) write_rendered(&json, &request.prompts[i]);
    if (is_list) json_write_end_array(&json);
    api_request_deinit(&request);
    api_reply_json(exchange, API_OPENAI, &json, &body);
}

void text_request_render(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)parameter;
    render(owner, exchange, &completion_request);
}

void text_request_render_chat(void *owner, struct http_exchange *exchange, const char *parameter) {
    (void)parameter;
    render(owner, exchange, &chat_request);
}

void text_request_count(void *owner, struct http_exchange *exchange, const char *parameter) {
    struct api_request request;
    struct json_write json;
    struct str body;
    (void)parameter;
    if (!read_ids(&request, owner, exchange, &messages_request)) return;
    api_reply_begin(&json, &body);
    json_write_field_int(&json, "input_tokens", request.prompts->n_ids);
    api_request_deinit(&request);
    api_reply_end(exchange, API_ANTHROPIC, &json, &body);
}

/* ---- back ---- */

static bool read_tokens(struct api_request *request, struct api_fault *fault) {
    if (!completion_request_read(request, "tokens", fault)) return false;
    if (request->n_prompts == 1 && !request->prompts->text) return true;
    return api_fault_set(fault, 400, NULL, "tokens", "'tokens' must be one list of token ids");
}

void text_request_detokenize(void *owner, struct http_exchange *exchange, const char *parameter) {
    static const struct api_ask ask = {.response = &completion_response, .read_prompts = read_tokens};
    struct api_server *api = owner;
    struct api_request request;
    struct detokenizer detokenizer;
    struct json_write json;
    struct str body, text;
    (void)parameter;
    if (!read_ids(&request, api, exchange, &ask)) return;
    str_init(&text, API_REPLY_MAX_BYTES / 2);
    detokenizer_init(&detokenizer, api->tokenizer, DETOKENIZER_AT_START | DETOKENIZER_SHOW_SPECIAL);
    api_reply_begin(&json, &body);
    for (int i = 0; !json.status && i < request.prompts->n_ids; i++)
        json.status = detokenizer_push(&detokenizer, (int32_t)request.prompts->ids[i], &text);
    if (!json.status) json.status = detokenizer_finish(&detokenizer, &text);
    json_write_field_str(&json, "prompt", &text);
    str_deinit(&text);
    api_request_deinit(&request);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}

/* ---- what there is to say of the tokenizer ---- */

static void write_special(struct json_write *json, const char *key, const struct tokenizer *tokenizer, int32_t id) {
    size_t n_bytes;
    const char *text = id < 0 ? NULL : tokenizer_text_of(tokenizer, id, &n_bytes);
    json_write_key(json, key);
    if (text)
        json_write_text(json, text, n_bytes);
    else
        json_write_null(json);
}

void text_request_tokenizer(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct json_write json;
    struct str body;
    (void)parameter;
    api_reply_begin(&json, &body);
    write_special(&json, "bos_token", api->tokenizer, tokenizer_bos(api->tokenizer));
    write_special(&json, "eos_token", api->tokenizer, tokenizer_eos(api->tokenizer));
    json_write_field_int(&json, "vocab_size", tokenizer_n_vocab(api->tokenizer));
    api_reply_end(exchange, API_OPENAI, &json, &body);
}
