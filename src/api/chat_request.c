#include "api/chat_request.h"

#include <stdio.h>
#include <string.h>

#include "api/api_response.h"
#include "base/mem.h"

static bool check_message(const json_t *message, size_t idx, struct api_fault *fault) {
    char param[64];
    const json_t *role = json_is_object(message) ? json_object_get(message, "role") : NULL, *content;
    snprintf(param, sizeof param, "messages[%zu]", idx);
    if (!json_is_object(message))
        return api_fault_set(fault, 400, NULL, param, "'%s' must be an object, not %s", param, json_read_type(message));
    if (!json_is_string(role))
        return api_fault_set(fault, 400, NULL, param, "'%s' has no 'role' that is a string", param);
    content = json_read_field(message, "content");
    /* What an assistant says with a tool may be nothing; everybody else must say something. */
    bool may_be_silent = strcmp(json_string_value(role), "assistant") == 0;
    if (!content && !may_be_silent)
        return api_fault_set(fault, 400, NULL, param, "'%s' of role '%.20s' has no 'content'", param,
                             json_string_value(role));
    if (content && !json_is_string(content) && !json_is_array(content))
        return api_fault_set(fault, 400, NULL, param, "'%s.content' must be a string or a list of parts, not %s", param,
                             json_read_type(content));
    const json_t *part;
    size_t i;
    if (!json_is_array(content)) return true;
    json_array_foreach((json_t *)content, i, part) {
        const json_t *type = json_is_object(part) ? json_object_get(part, "type") : NULL;
        if (json_is_string(type) && strcmp(json_string_value(type), "text") == 0 &&
            json_is_string(json_object_get(part, "text")))
            continue;
        return api_fault_set(
            fault, 400, NULL, param,
            "'%s.content[%zu]' is no part {\"type\": \"text\", \"text\": ...}: this model reads text only", param, i);
    }
    return true;
}

/* Wishes that change what is rendered, and are not honoured here. */
static bool refuse_unknown_wishes(const json_t *json, struct api_fault *fault) {
    const json_t *kwargs = json_read_field(json, "chat_template_kwargs");
    if (json_read_field(json, "chat_template") || (kwargs && json_object_get(kwargs, "chat_template")))
        return api_fault_set(fault, 400, NULL, "chat_template", "a request may not bring its own chat template");
    return true;
}

struct api_prompt *chat_request_prompt(const struct api_server *api, const json_t *json, const char *body,
                                       size_t n_bytes, struct api_fault *fault) {
    const json_t *messages = json_read_field(json, "messages"), *message;
    size_t i;
    if (!api->chat_template) {
        api_fault_set(fault, 400, "no_chat_template", NULL, "%s", api->chat_fault);
        return NULL;
    }
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        api_fault_set(fault, 400, NULL, "messages", "'messages' must be a list of at least one message");
        return NULL;
    }
    json_array_foreach((json_t *)messages, i, message) {
        if (!check_message(message, i, fault)) return NULL;
    }
    if (!refuse_unknown_wishes(json, fault)) return NULL;
    struct api_prompt *prompt = mem_alloc(sizeof *prompt);
    char *text = prompt ? mem_strndup(body, n_bytes) : NULL; /* the exchange, and its body, may end before */
    if (!text) {
        mem_free(prompt);
        api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the request");
        return NULL;
    }
    prompt->text = prompt->own_text = text;
    prompt->n_bytes = n_bytes;
    return prompt;
}

void chat_request_handle(struct api_server *api, struct http_exchange *exchange, int key_idx) {
    struct api_fault fault = {0};
    struct api_params params = {0};
    struct api_prompt *prompt = NULL;
    size_t n_bytes;
    const char *body = http_exchange_body(exchange, &n_bytes);
    json_t *json = json_read_object(body, n_bytes, &fault);
    bool is_read = json && api_params_read(&params, json, API_CHAT, tokenizer_n_vocab(api->tokenizer), &fault);
    is_read = is_read && api_server_check_model(api, &params, &fault);
    if (is_read) prompt = chat_request_prompt(api, json, body, n_bytes, &fault);
    if (!prompt) {
        api_params_deinit(&params);
        json_decref(json);
        api_fault_reply(&fault, API_OPENAI, exchange);
        return;
    }
    struct api_call *call = api_call_open(api, exchange, json, &params, prompt, 1, &chat_response, &fault);
    if (!call) {
        api_fault_reply(&fault, API_OPENAI, exchange);
        return;
    }
    call->key_idx = key_idx;
    api_call_start(call);
}
