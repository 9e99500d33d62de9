#include "api/chat_translate.h"

json_t *chat_translate_text(const json_t *block) {
    return json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(block, "text"));
}

static bool is_text(const json_t *block, const char *const *types) {
    for (; *types; types++)
        if (json_read_is_type(block, *types)) return json_read_word(block, "text") != NULL;
    return false;
}

json_t *chat_translate_content(const json_t *content, const char *where, const char *const *types,
                               struct api_fault *fault) {
    const json_t *block;
    size_t i;
    if (json_is_string(content)) return json_incref((json_t *)content);
    if (!json_is_array(content)) {
        api_fault_set(fault, 400, NULL, where, "'%s' must be a string or a list of blocks", where);
        return NULL;
    }
    json_t *parts = json_array();
    json_array_foreach((json_t *)content, i, block) {
        if (is_text(block, types)) {
            json_array_append_new(parts, chat_translate_text(block));
            continue;
        }
        api_fault_set(fault, 400, NULL, where,
                      "'%s[%zu]' is no block of type %s with a 'text': this model reads text only", where, i, types[0]);
        json_decref(parts);
        return NULL;
    }
    return parts;
}

bool chat_translate_tools(json_t *chat, const json_t *json,
                          json_t *(*function_of)(const json_t *tool, size_t idx, struct api_fault *fault),
                          struct api_fault *fault) {
    const json_t *tools = json_read_field(json, "tools"), *tool;
    size_t i;
    if (!tools) return true;
    if (!json_is_array(tools)) return api_fault_set(fault, 400, NULL, "tools", "'tools' must be a list");
    json_t *out = json_array();
    json_object_set_new(chat, "tools", out);
    json_array_foreach((json_t *)tools, i, tool) {
        json_t *function = function_of(tool, i, fault);
        if (!function) return false;
        json_array_append_new(out, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return true;
}

void chat_translate_tool_choice(json_t *chat, const json_t *choice) {
    json_object_set_new(
        chat, "tool_choice",
        json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", json_object_get(choice, "name")));
}

bool chat_translate_kwargs(json_t *chat, const json_t *json, json_t *is_thinking, struct api_fault *fault) {
    const json_t *given = json_read_field(json, "chat_template_kwargs");
    if (given && !json_is_object(given))
        return api_fault_set(fault, 400, NULL, "chat_template_kwargs",
                             "'chat_template_kwargs' must be an object, not %s", json_read_type(given));
    json_t *kwargs = given ? json_copy((json_t *)given) : json_object();
    if (is_thinking && !json_object_get(kwargs, "enable_thinking"))
        json_object_set(kwargs, "enable_thinking", is_thinking);
    json_object_set_new(chat, "chat_template_kwargs", kwargs);
    return true;
}
