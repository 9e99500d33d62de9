#include "api/completion_request.h"

#include <string.h>

#include "api/api_response.h"
#include "base/mem.h"

void completion_request_free_prompts(struct api_prompt *prompts, int n_prompts) {
    for (int i = 0; prompts && i < n_prompts; i++) {
        mem_free(prompts[i].ids);
        mem_free(prompts[i].own_text);
    }
    mem_free(prompts);
}

static bool read_ids(const json_t *list, const char *name, int n_vocab, int max_ids, struct api_prompt *prompt,
                     struct api_fault *fault) {
    size_t n = json_array_size(list), i;
    const json_t *item;
    if (n == 0) return api_fault_set(fault, 400, NULL, name, "'%s' is an empty list of token ids", name);
    if (n > (size_t)max_ids)
        return api_fault_set(fault, 400, "context_length_exceeded", name,
                             "the context holds %d tokens; the prompt has %zu and the answer may have 1", max_ids, n);
    prompt->ids = mem_alloc_array(n, sizeof *prompt->ids);
    if (!prompt->ids) return api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the prompt");
    json_array_foreach((json_t *)list, i, item) {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id >= n_vocab)
            return api_fault_set(fault, 400, NULL, name, "'%s' holds at place %zu %s that is not within 0..%d", name, i,
                                 json_is_integer(item) ? "a token id" : json_read_type(item), n_vocab - 1);
        prompt->ids[prompt->n_ids++] = (uint32_t)id;
    }
    return true;
}

static bool read_prompt(const json_t *item, const char *name, int n_vocab, int max_ids, struct api_prompt *prompt,
                        struct api_fault *fault) {
    if (json_is_array(item)) return read_ids(item, name, n_vocab, max_ids, prompt, fault);
    if (!json_is_string(item))
        return api_fault_set(fault, 400, NULL, name,
                             "'%s' must be a string, a list of token ids, or a list of either, not %s", name,
                             json_read_type(item));
    prompt->text = json_string_value(item);
    prompt->n_bytes = json_string_length(item);
    return true;
}

struct api_prompt *completion_request_prompts(const json_t *json, const char *name, int n_vocab, int max_ids,
                                              int *out_n, struct api_fault *fault) {
    const json_t *field = json_read_field(json, name);
    if (!field || (json_is_array(field) && json_array_size(field) == 0)) {
        api_fault_set(fault, 400, NULL, name, "'%s' is %s", name, field ? "an empty list" : "missing");
        return NULL;
    }
    /* A list of numbers is one prompt; what begins with anything else is a list of prompts. */
    bool is_list = json_is_array(field) && !json_is_number(json_array_get(field, 0));
    size_t n = is_list ? json_array_size(field) : 1;
    if (n > API_MAX_PROMPTS) {
        api_fault_set(fault, 400, NULL, name, "'%s' holds %zu prompts, at most %d are taken", name, n, API_MAX_PROMPTS);
        return NULL;
    }
    struct api_prompt *prompts = mem_alloc_array(n, sizeof *prompts);
    if (!prompts) {
        api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the request");
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (read_prompt(is_list ? json_array_get(field, i) : field, name, n_vocab, max_ids, &prompts[i], fault))
            continue;
        completion_request_free_prompts(prompts, (int)n);
        return NULL;
    }
    *out_n = (int)n;
    return prompts;
}

static bool read_echo(const json_t *json, const struct api_params *params, bool *out_has_echo,
                      struct api_fault *fault) {
    *out_has_echo = false;
    if (!json_read_flag(json, "echo", out_has_echo, fault)) return false;
    if (*out_has_echo && params->has_logprobs)
        return api_fault_set(fault, 501, "unsupported_parameter", "echo",
                             "'echo' together with 'logprobs' is not supported by this server");
    return true;
}

void completion_request_handle(struct api_server *api, struct http_exchange *exchange, int key_idx) {
    struct api_fault fault = {0};
    struct api_params params = {0};
    struct api_prompt *prompts = NULL;
    size_t n_bytes;
    int n_prompts = 0, n_vocab = tokenizer_n_vocab(api->tokenizer);
    bool has_echo = false;
    const char *body = http_exchange_body(exchange, &n_bytes);
    json_t *json = json_read_object(body, n_bytes, &fault);
    bool is_read = json && api_params_read(&params, json, API_COMPLETION, n_vocab, &fault) &&
                   read_echo(json, &params, &has_echo, &fault);
    is_read = is_read && api_server_check_model(api, &params, &fault);
    if (is_read)
        prompts =
            completion_request_prompts(json, "prompt", n_vocab, engine_max_context(api->engine), &n_prompts, &fault);
    if (!prompts) {
        api_params_deinit(&params);
        json_decref(json);
        api_fault_reply(&fault, API_OPENAI, exchange);
        return;
    }
    struct api_call *call =
        api_call_open(api, exchange, json, &params, prompts, n_prompts, &completion_response, &fault);
    if (!call) {
        api_fault_reply(&fault, API_OPENAI, exchange);
        return;
    }
    call->key_idx = key_idx;
    call->has_echo = has_echo;
    api_call_start(call);
}
