#include <stdio.h>
#include <string.h>

#include "api/api_response.h"
#include "api/chat_request.h"
#include "api/chat_translate.h"
#include "base/mem.h"

/* The JSON of Anthropic's /v1/messages -> the chat request that says the same: templates and parameters know one form,
 * OpenAI's; the answer is written in Anthropic's (messages_response).
 * Source: Anthropic's API, as its Python client speaks it. */

/* ---- blocks ---- */

static const char *const text_types[] = {"text", NULL};

/* One message of ours while its blocks are read. */
struct open_message {
    json_t *messages; /* it goes here */
    const char *role;
    json_t *parts, *calls, *thoughts;
};

/* Ends the message, so that another may follow it. */
static void flush(struct open_message *open) {
    bool has_calls = json_array_size(open->calls) > 0;
    if (json_array_size(open->parts) > 0 || has_calls || json_array_size(open->thoughts) > 0) {
        json_t *message = json_pack("{s:s, s:O}", "role", open->role, "content", open->parts);
        if (has_calls) json_object_set(message, "tool_calls", open->calls);
        if (json_array_size(open->thoughts) > 0)
            json_object_set(message, "reasoning_content", json_array_get(open->thoughts, 0));
        json_array_append_new(open->messages, message);
    }
    json_decref(open->parts);
    json_decref(open->calls);
    json_decref(open->thoughts);
    open->parts = json_array();
    open->calls = json_array();
    open->thoughts = json_array();
}

static bool read_call(struct open_message *open, const json_t *block, const char *where, struct api_fault *fault) {
    const json_t *input = json_object_get(block, "input");
    const char *id = json_read_word(block, "id"), *name = json_read_word(block, "name");
    if (strcmp(open->role, "assistant") != 0 || !id || !name || !json_is_object(input))
        return api_fault_set(
            fault, 400, NULL, where,
            "'%s' of type 'tool_use' needs an 'id', a 'name' and an 'input' that is an object, and may "
            "only be the assistant's",
            where);
    size_t n_bytes;
    char *arguments = json_read_dump(input, &n_bytes);
    if (!arguments) return api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the request");
    json_array_append_new(open->calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function",
                                                 "name", name, "arguments", arguments));
    mem_free(arguments);
    return true;
}

static bool read_result(struct open_message *open, const json_t *block, const char *where, struct api_fault *fault) {
    const char *id = json_read_word(block, "tool_use_id");
    const json_t *content = json_read_field(block, "content");
    if (strcmp(open->role, "user") != 0 || !id)
        return api_fault_set(fault, 400, NULL, where,
                             "'%s' of type 'tool_result' needs a 'tool_use_id' and may only be the user's", where);
    json_t *parts = content ? chat_translate_content(content, where, text_types, fault) : json_string("");
    if (!parts) return false;
    flush(open);
    json_array_append_new(open->messages,
                          json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id, "content", parts));
    return true;
}

static bool read_block(struct open_message *open, const json_t *block, const char *where, struct api_fault *fault) {
    if (json_read_is_type(block, "tool_use")) return read_call(open, block, where, fault);
    if (json_read_is_type(block, "tool_result")) return read_result(open, block, where, fault);
    if (json_read_is_type(block, "thinking") && json_read_word(block, "thinking")) {
        json_array_append(open->thoughts, json_object_get(block, "thinking"));
        return true;
    }
    if (json_read_is_type(block, "text") && json_read_word(block, "text")) {
        json_array_append_new(open->parts, chat_translate_text(block));
        return true;
    }
    return api_fault_set(fault, 400, NULL, where,
                         "'%s' is no block of type text, thinking, tool_use or tool_result: this model reads text only",
                         where);
}

static bool read_message(json_t *messages, const json_t *message, size_t idx, struct api_fault *fault) {
    char where[64];
    const char *role = json_is_object(message) ? json_read_word(message, "role") : NULL;
    const json_t *content = json_is_object(message) ? json_object_get(message, "content") : NULL, *block;
    bool is_read = true;
    size_t i;
    snprintf(where, sizeof where, "messages[%zu]", idx);
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        return api_fault_set(fault, 400, NULL, where, "'%s' must be an object with the 'role' user or assistant",
                             where);
    if (json_is_string(content)) {
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", role, "content", content));
        return true;
    }
    if (!json_is_array(content) || json_array_size(content) == 0)
        return api_fault_set(fault, 400, NULL, where, "'%s.content' must be a string or a list of blocks", where);
    struct open_message open = {messages, role, json_array(), json_array(), json_array()};
    json_array_foreach((json_t *)content, i, block) {
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", idx, i);
        is_read = is_read && read_block(&open, block, where, fault);
    }
    flush(&open);
    json_decref(open.parts);
    json_decref(open.calls);
    json_decref(open.thoughts);
    return is_read;
}

/* ---- the request ---- */

static bool read_messages(json_t *chat, const json_t *json, struct api_fault *fault) {
    const json_t *system = json_read_field(json, "system"), *messages = json_read_field(json, "messages"), *message;
    size_t i;
    json_t *out = json_array();
    json_object_set_new(chat, "messages", out);
    if (system) {
        json_t *parts = chat_translate_content(system, "system", text_types, fault);
        if (!parts) return false;
        json_array_append_new(out, json_pack("{s:s, s:o}", "role", "system", "content", parts));
    }
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return api_fault_set(fault, 400, NULL, "messages", "'messages' must be a list of at least one message");
    json_array_foreach((json_t *)messages, i, message) {
        if (!read_message(out, message, i, fault)) return false;
    }
    return true;
}

static json_t *function_of(const json_t *tool, size_t idx, struct api_fault *fault) {
    const json_t *schema = json_object_get(tool, "input_schema"), *about = json_read_field(tool, "description");
    if (!json_read_word(tool, "name") || !json_is_object(schema) || (about && !json_is_string(about)) ||
        (json_read_field(tool, "type") && !json_read_is_type(tool, "custom"))) {
        api_fault_set(fault, 400, NULL, "tools",
                      "'tools[%zu]' must have a 'name' and an 'input_schema', and no 'type' but 'custom'", idx);
        return NULL;
    }
    json_t *function = json_pack("{s:O, s:O}", "name", json_object_get(tool, "name"), "parameters", schema);
    if (about) json_object_set(function, "description", (json_t *)about);
    return function;
}

static bool read_tool_choice(json_t *chat, const json_t *json, struct api_fault *fault) {
    const json_t *choice = json_read_field(json, "tool_choice");
    if (!choice) return true;
    if (json_read_is_type(choice, "auto") || json_read_is_type(choice, "none"))
        json_object_set(chat, "tool_choice", json_object_get(choice, "type"));
    else if (json_read_is_type(choice, "any"))
        json_object_set_new(chat, "tool_choice", json_string("required"));
    else if (json_read_is_type(choice, "tool") && json_read_word(choice, "name"))
        chat_translate_tool_choice(chat, choice);
    else
        return api_fault_set(fault, 400, NULL, "tool_choice",
                             "'tool_choice' must be an object of type auto, any, none, or tool with a 'name'");
    return true;
}

static bool read_stops(json_t *chat, const json_t *json, struct api_fault *fault) {
    const json_t *stops = json_read_field(json, "stop_sequences"), *stop;
    size_t i;
    if (!stops) return true;
    if (!json_is_array(stops) || json_array_size(stops) > API_MAX_STOPS)
        return api_fault_set(fault, 400, NULL, "stop_sequences",
                             "'stop_sequences' must be a list of at most %d strings", API_MAX_STOPS);
    json_array_foreach((json_t *)stops, i, stop) {
        if (json_is_string(stop) && json_string_length(stop) > 0 && json_string_length(stop) <= API_MAX_STOP_BYTES)
            continue;
        return api_fault_set(fault, 400, NULL, "stop_sequences",
                             "'stop_sequences[%zu]' must be a string of 1 to %d bytes", i, API_MAX_STOP_BYTES);
    }
    json_object_set(chat, "stop", (json_t *)stops);
    return true;
}

/* "thinking" switches the reasoning of a template that has a switch. */
static bool read_thinking(json_t *chat, const json_t *json, struct api_fault *fault) {
    const json_t *thinking = json_read_field(json, "thinking");
    bool is_on = json_read_is_type(thinking, "enabled") || json_read_is_type(thinking, "adaptive");
    if (thinking && !is_on && !json_read_is_type(thinking, "disabled"))
        return api_fault_set(fault, 400, NULL, "thinking",
                             "'thinking' must be an object of type enabled, adaptive or disabled");
    return chat_translate_kwargs(chat, json, thinking ? json_boolean(is_on) : NULL, fault);
}

static json_t *to_chat(const json_t *json, struct api_fault *fault) {
    static const char *const same[] = {"model",      "max_tokens",    "temperature",  "top_p",
                                       "top_k",      "min_p",         "stream",       "seed",
                                       "cache_salt", "service_tier",  "ignore_eos",   "min_tokens",
                                       "priority",   "return_phases", "cache_prompt", "return_progress"};
    json_t *chat = json_object();
    json_read_copy(chat, json, same, sizeof same / sizeof same[0]);
    if (read_messages(chat, json, fault) && chat_translate_tools(chat, json, function_of, fault) &&
        read_tool_choice(chat, json, fault) && read_stops(chat, json, fault) && read_thinking(chat, json, fault))
        return chat;
    json_decref(chat);
    return NULL;
}

/* What Anthropic's API asks for beyond OpenAI's. */
static bool check(struct api_request *request, struct api_fault *fault) {
    const json_t *messages = json_object_get(request->json, "messages");
    const char *last = json_read_word(json_array_get(messages, json_array_size(messages) - 1), "role");
    if (request->params.max_tokens < 1)
        return api_fault_set(fault, 400, NULL, "max_tokens", "'max_tokens' must be given and at least 1");
    if (last && strcmp(last, "assistant") == 0)
        return api_fault_set(fault, 400, "unsupported_parameter", "messages",
                             "the last of 'messages' is the assistant's; an answer's beginning cannot be given");
    return true;
}

const struct api_ask messages_request = {
    .response = &messages_response, .translate = to_chat, .check = check, .read_prompts = chat_request_read_prompts};
