#include "api/embedding_request.h"

#include <string.h>

#include "api/api_response.h"
#include "api/completion_request.h"

static bool read_form(const struct api_server *api, const json_t *json, bool *out_is_base64, struct api_fault *fault) {
    int64_t d_model = engine_model(api->engine)->d_model, dimensions = d_model;
    const char *form = "float";
    size_t n_form = 5;
    if (!json_read_text(json, "encoding_format", 32, &form, &n_form, fault) ||
        !json_read_int(json, "dimensions", 1, INT32_MAX, &dimensions, fault))
        return false;
    *out_is_base64 = strcmp(form, "base64") == 0;
    if (!*out_is_base64 && strcmp(form, "float") != 0)
        return api_fault_set(fault, 400, NULL, "encoding_format", "'encoding_format' is '%.32s', not float or base64",
                             form);
    if (dimensions != d_model)
        return api_fault_set(fault, 400, "unsupported_parameter", "dimensions",
                             "'dimensions' is %lld; this model's vectors have %lld, which cannot be cut",
                             (long long)dimensions, (long long)d_model);
    return true;
}

void embedding_request_handle(struct api_server *api, struct http_exchange *exchange, int key_idx) {
    struct api_fault fault = {0};
    struct api_params params = {0};
    struct api_prompt *prompts = NULL;
    struct api_call *call = NULL;
    size_t n_bytes;
    int n_prompts = 0, n_vocab = tokenizer_n_vocab(api->tokenizer);
    bool is_base64 = false;
    const char *body = http_exchange_body(exchange, &n_bytes);
    json_t *json = json_read_object(body, n_bytes, &fault);
    bool is_read = json && api_params_read(&params, json, API_EMBEDDING, n_vocab, &fault) &&
                   read_form(api, json, &is_base64, &fault);
    is_read = is_read && api_server_check_model(api, &params, &fault);
    if (is_read)
        prompts =
            completion_request_prompts(json, "input", n_vocab, engine_max_context(api->engine), &n_prompts, &fault);
    if (prompts) {
        call = api_call_open(api, exchange, json, &params, prompts, n_prompts, &embedding_response, &fault);
    } else {
        api_params_deinit(&params);
        json_decref(json);
    }
    if (!call) {
        api_fault_reply(&fault, API_OPENAI, exchange);
        return;
    }
    call->is_base64 = is_base64;
    call->key_idx = key_idx;
    api_call_start(call);
}
