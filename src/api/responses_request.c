#include <stdio.h>
#include <string.h>

#include "api/api_response.h"
#include "api/chat_request.h"
#include "api/chat_translate.h"

/* The JSON of OpenAI's /v1/responses -> the chat request that says the same. Nothing is stored: each request brings its
 * whole conversation, and what would need a stored one is refused by name.
 * Source: OpenAI's API, as its Python client speaks it. */

/* ---- what is not there ---- */

static bool refuse(const char *name, const char *why, struct api_fault *fault) {
    return api_fault_set(fault, 400, "unsupported_parameter", name, "'%s' is not supported by this server: %s", name,
                         why);
}

static bool refuse_state(const json_t *json, struct api_fault *fault) {
    static const struct {
        const char *name, *why;
    } refused[] = {{"previous_response_id", "nothing is stored; send the conversation as 'input'"},
                   {"conversation", "nothing is stored; send the conversation as 'input'"},
                   {"prompt", "there are no stored prompts"},
                   {"context_management", "a conversation is never shortened"}};
    const json_t *store = json_read_field(json, "store"), *background = json_read_field(json, "background");
    const json_t *progress = json_read_field(json, "return_progress");
    const char *truncation = json_read_word(json, "truncation");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (json_read_field(json, refused[i].name)) return refuse(refused[i].name, refused[i].why, fault);
    if (store && !json_is_false(store)) return refuse("store", "nothing is stored; leave it out or say false", fault);
    if (progress && !json_is_false(progress))
        return refuse("return_progress", "this stream has no place for it", fault);
    if (background && !json_is_false(background)) return refuse("background", "an answer needs its reader", fault);
    if (truncation && strcmp(truncation, "disabled") != 0)
        return refuse("truncation", "a conversation is never shortened", fault);
    return true;
}

/* ---- input ---- */

static const char *const text_types[] = {"input_text", "output_text", "text", NULL};

/* The message that calls and reasoning join: the last one, if it is the assistant's, or a new one. */
static json_t *assistant_message(json_t *messages) {
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_read_word(last, "role");
    if (role && strcmp(role, "assistant") == 0) return last;
    last = json_pack("{s:s}", "role", "assistant");
    json_array_append_new(messages, last);
    return last;
}

static bool read_message(json_t *messages, const json_t *item, const char *where, struct api_fault *fault) {
    const char *role = json_read_word(item, "role");
    bool is_assistant = role && strcmp(role, "assistant") == 0;
    if (!role ||
        (!is_assistant && strcmp(role, "user") != 0 && strcmp(role, "system") != 0 && strcmp(role, "developer") != 0))
        return api_fault_set(fault, 400, NULL, "input",
                             "'%s' must have the 'role' user, assistant, system or developer", where);
    json_t *content = chat_translate_content(json_object_get(item, "content"), where, text_types, fault);
    if (!content) return false;
    /* Reasoning stands before the text that it led to. */
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (is_assistant && json_object_get(last, "reasoning_content") && !json_object_get(last, "content")) {
        json_object_set_new(last, "content", content);
        return true;
    }
    const char *known = strcmp(role, "developer") == 0 ? "system" : role; /* what templates call it */
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", known, "content", content));
    return true;
}

static bool read_call(json_t *messages, const json_t *item, const char *where, struct api_fault *fault) {
    const char *id = json_read_word(item, "call_id"), *name = json_read_word(item, "name");
    const char *arguments = json_read_word(item, "arguments");
    if (!id || !name || !arguments)
        return api_fault_set(fault, 400, NULL, "input",
                             "'%s' of type function_call needs the texts 'call_id', 'name' and 'arguments'", where);
    json_t *message = assistant_message(messages), *calls = json_object_get(message, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(message, "tool_calls", calls);
    }
    json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:O}}", "id", id, "type", "function", "function", "name",
                                           name, "arguments", json_object_get(item, "arguments")));
    return true;
}

static bool read_call_output(json_t *messages, const json_t *item, const char *where, struct api_fault *fault) {
    const char *id = json_read_word(item, "call_id");
    if (!id)
        return api_fault_set(fault, 400, NULL, "input", "'%s' of type function_call_output needs a 'call_id'", where);
    json_t *content = chat_translate_content(json_object_get(item, "output"), where, text_types, fault);
    if (!content) return false;
    json_array_append_new(messages,
                          json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id, "content", content));
    return true;
}

/* Its text as a model's template takes it; one that was summed up only, or encrypted, has none to give back. */
static void read_reasoning(json_t *messages, const json_t *item) {
    const json_t *part;
    size_t i;
    json_array_foreach(json_object_get(item, "content"), i, part) {
        if (!json_read_is_type(part, "reasoning_text") || !json_read_word(part, "text")) continue;
        json_t *message =
            json_pack("{s:s, s:O}", "role", "assistant", "reasoning_content", json_object_get(part, "text"));
        json_array_append_new(messages, message);
        return;
    }
}

static bool read_item(json_t *messages, const json_t *item, size_t idx, struct api_fault *fault) {
    char where[32];
    snprintf(where, sizeof where, "input[%zu]", idx);
    if (!json_is_object(item))
        return api_fault_set(fault, 400, NULL, "input", "'%s' must be an object, not %s", where, json_read_type(item));
    if (!json_object_get(item, "type") || json_read_is_type(item, "message"))
        return read_message(messages, item, where, fault);
    if (json_read_is_type(item, "function_call")) return read_call(messages, item, where, fault);
    if (json_read_is_type(item, "function_call_output")) return read_call_output(messages, item, where, fault);
    if (json_read_is_type(item, "reasoning")) {
        read_reasoning(messages, item);
        return true;
    }
    return api_fault_set(fault, 400, "unsupported_parameter", "input",
                         "'%s' is of type '%.40s', not message, function_call, function_call_output or reasoning",
                         where, json_read_word(item, "type") ? json_read_word(item, "type") : "?");
}

static bool read_input(json_t *chat, const json_t *json, struct api_fault *fault) {
    const json_t *input = json_read_field(json, "input"), *item, *instructions = json_read_field(json, "instructions");
    json_t *messages = json_array();
    size_t i;
    json_object_set_new(chat, "messages", messages);
    if (instructions && !json_is_string(instructions))
        return api_fault_set(fault, 400, NULL, "instructions", "'instructions' must be a string, not %s",
                             json_read_type(instructions));
    if (instructions)
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    if (json_is_string(input)) {
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
        return true;
    }
    if (!json_is_array(input) || json_array_size(input) == 0)
        return api_fault_set(fault, 400, NULL, "input", "'input' must be a string or a list of at least one item");
    json_array_foreach((json_t *)input, i, item) {
        if (!read_item(messages, item, i, fault)) return false;
    }
    return true;
}

/* ---- tools and forms ---- */

static json_t *function_of(const json_t *tool, size_t idx, struct api_fault *fault) {
    static const char *const same[] = {"name", "description", "parameters", "strict"};
    if (!json_read_is_type(tool, "function") || !json_read_word(tool, "name")) {
        api_fault_set(fault, 400, "unsupported_parameter", "tools",
                      "'tools[%zu]' is no tool of type function with a 'name'; this server runs no tools of its own",
                      idx);
        return NULL;
    }
    json_t *function = json_object();
    json_read_copy(function, tool, same, sizeof same / sizeof same[0]);
    return function;
}

static bool read_tool_choice(json_t *chat, const json_t *json, struct api_fault *fault) {
    const json_t *choice = json_read_field(json, "tool_choice");
    if (!choice) return true;
    if (json_is_string(choice)) return json_object_set(chat, "tool_choice", (json_t *)choice) == 0;
    if (!json_read_is_type(choice, "function") || !json_read_word(choice, "name"))
        return api_fault_set(fault, 400, NULL, "tool_choice",
                             "'tool_choice' must be auto, none, required, or an object of type function with a 'name'");
    chat_translate_tool_choice(chat, choice);
    return true;
}

/* "text": {"format": ...}, which has the schema one level higher than a chat's response_format. */
static bool read_format(json_t *chat, const json_t *json, struct api_fault *fault) {
    const json_t *text = json_read_field(json, "text");
    if (text && !json_is_object(text))
        return api_fault_set(fault, 400, NULL, "text", "'text' must be an object, not %s", json_read_type(text));
    const json_t *format = text ? json_read_field(text, "format") : NULL;
    if (!format) return true;
    if (!json_read_is_type(format, "json_schema"))
        return json_object_set(chat, "response_format", (json_t *)format) == 0;
    json_t *inner = json_object();
    const json_t *schema = json_read_field(format, "schema");
    if (schema) json_object_set(inner, "schema", (json_t *)schema);
    json_object_set_new(chat, "response_format", json_pack("{s:s, s:o}", "type", "json_schema", "json_schema", inner));
    return true;
}

/* "include" may bring log-probabilities; reasoning is given in plain, so nothing need be encrypted. */
static bool read_include(json_t *chat, const json_t *json, struct api_fault *fault) {
    const json_t *include = json_read_field(json, "include"), *item;
    const json_t *top = json_read_field(json, "top_logprobs");
    size_t i;
    if (include && !json_is_array(include))
        return api_fault_set(fault, 400, NULL, "include", "'include' must be a list, not %s", json_read_type(include));
    json_array_foreach((json_t *)include, i, item) {
        const char *name = json_is_string(item) ? json_string_value(item) : "";
        if (strcmp(name, "reasoning.encrypted_content") == 0) continue;
        if (strcmp(name, "message.output_text.logprobs") != 0)
            return api_fault_set(fault, 400, "unsupported_parameter", "include",
                                 "'include' holds '%.60s'; this server can include message.output_text.logprobs", name);
        json_object_set_new(chat, "logprobs", json_true());
    }
    if (top) json_object_set(chat, "top_logprobs", (json_t *)top);
    if (top && json_is_integer(top) && json_integer_value(top) > 0) json_object_set_new(chat, "logprobs", json_true());
    return true;
}

/* Templates that can reason have a switch, and no degrees. */
static bool read_reasoning_effort(json_t *chat, const json_t *json, struct api_fault *fault) {
    const json_t *reasoning = json_read_field(json, "reasoning");
    if (reasoning && !json_is_object(reasoning))
        return api_fault_set(fault, 400, NULL, "reasoning", "'reasoning' must be an object, not %s",
                             json_read_type(reasoning));
    const char *effort = json_read_word(reasoning, "effort");
    return chat_translate_kwargs(chat, json, effort && strcmp(effort, "none") == 0 ? json_false() : NULL, fault);
}

/* What the answer repeats of the request: all but the conversation. */
static json_t *echo_of(const json_t *json) {
    static const char *const repeated[] = {"instructions", "max_output_tokens", "metadata", "reasoning",
                                           "text",         "tool_choice",       "tools",    "user"};
    json_t *echo = json_object();
    json_read_copy(echo, json, repeated, sizeof repeated / sizeof repeated[0]);
    return echo;
}

static json_t *to_chat(const json_t *json, struct api_fault *fault) {
    static const char *const same[] = {"model",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "stream",
                                       "seed",
                                       "priority",
                                       "cache_salt",
                                       "service_tier",
                                       "ignore_eos",
                                       "min_tokens",
                                       "return_phases",
                                       "cache_prompt",
                                       "parallel_tool_calls",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "repetition_penalty",
                                       "structured_outputs"};
    const json_t *max_tokens = json_read_field(json, "max_output_tokens");
    json_t *chat = json_object();
    json_read_copy(chat, json, same, sizeof same / sizeof same[0]);
    if (max_tokens) json_object_set(chat, "max_completion_tokens", (json_t *)max_tokens);
    bool is_read = refuse_state(json, fault) && read_input(chat, json, fault) &&
                   chat_translate_tools(chat, json, function_of, fault) && read_tool_choice(chat, json, fault) &&
                   read_format(chat, json, fault) && read_include(chat, json, fault) &&
                   read_reasoning_effort(chat, json, fault);
    if (is_read) {
        json_object_set_new(chat, API_REQUEST_ECHO, echo_of(json));
        return chat;
    }
    json_decref(chat);
    return NULL;
}

static bool check(struct api_request *request, struct api_fault *fault) {
    if (request->params.max_tokens != 0) return true;
    return api_fault_set(fault, 400, NULL, "max_output_tokens", "'max_output_tokens' must be at least 1");
}

const struct api_ask responses_request = {
    .response = &responses_response, .translate = to_chat, .check = check, .read_prompts = chat_request_read_prompts};
