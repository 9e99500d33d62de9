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

bool chat_request_read_prompts(struct api_request *request, struct api_fault *fault) {
    const json_t *messages = json_read_field(request->json, "messages"), *message;
    size_t i, n_bytes = request->n_bytes;
    if (!request->api->chat_template)
        return api_fault_set(fault, 400, "no_chat_template", NULL, "%s", request->api->chat_fault);
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return api_fault_set(fault, 400, NULL, "messages", "'messages' must be a list of at least one message");
    json_array_foreach((json_t *)messages, i, message) {
        if (!check_message(message, i, fault)) return false;
    }
    if (!refuse_unknown_wishes(request->json, fault)) return false;
    struct api_prompt *prompt = mem_alloc(sizeof *prompt);
    /* The exchange, and its body, may end before. */
    char *text = request->body ? mem_strndup(request->body, n_bytes) : json_read_dump(request->json, &n_bytes);
    if (!text || !prompt) {
        mem_free(text);
        mem_free(prompt);
        return api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the request");
    }
    prompt->text = prompt->own_text = text;
    prompt->n_bytes = n_bytes;
    request->prompts = prompt;
    request->n_prompts = 1;
    return true;
}

const struct api_ask chat_request = {.response = &chat_response, .read_prompts = chat_request_read_prompts};
