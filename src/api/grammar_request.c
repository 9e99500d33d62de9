#include "api/grammar_request.h"

#include <string.h>

#include "api/pattern_check.h"
#include "base/mem.h"

/* Compiling takes time that grows with the square of what stands beside each other; these bounds keep it far below a
 * second. */
#define MAX_GRAMMAR_BYTES ((size_t)64 << 10)
#define MAX_BESIDE 500

static size_t most_beside(const json_t *value) {
    size_t most = json_is_object(value) ? json_object_size(value) : json_array_size(value), i;
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item) {
        size_t n = most_beside(item);
        if (n > most) most = n;
    }
    json_array_foreach((json_t *)value, i, item) {
        size_t n = most_beside(item);
        if (n > most) most = n;
    }
    return most;
}

static bool is_small(const json_t *wish, const char *field, struct api_fault *fault) {
    size_t n_bytes = json_is_string(wish) ? json_string_length(wish) : json_dumpb(wish, NULL, 0, JSON_ENCODE_ANY);
    size_t n_beside = most_beside(wish);
    if (n_bytes > MAX_GRAMMAR_BYTES)
        return api_fault_set(fault, 400, NULL, field, "'%s' has %zu bytes, at most %zu are taken", field, n_bytes,
                             MAX_GRAMMAR_BYTES);
    if (n_beside > MAX_BESIDE)
        return api_fault_set(fault, 400, NULL, field,
                             "'%s' holds a list or an object of %zu items, at most %d are taken", field, n_beside,
                             MAX_BESIDE);
    return true;
}

/* What the compiler would take for something else. */
static bool is_sound(const json_t *wish, enum grammar_kind kind, const char *field, struct api_fault *fault) {
    struct pattern_fault found = {.pattern = json_is_string(wish) ? json_string_value(wish) : ""};
    size_t n_bytes = json_is_string(wish) ? json_string_length(wish) : 0;
    bool is_schema = kind == GRAMMAR_JSON_SCHEMA;
    if (kind == GRAMMAR_REGEX) found.off = pattern_check_find(found.pattern, n_bytes);
    bool has_fault = is_schema ? !pattern_check_schema(wish, &found) : kind == GRAMMAR_REGEX && found.off < n_bytes;
    if (!has_fault) return true;
    return api_fault_set(fault, 400, "invalid_grammar", field,
                         "'%s' cannot be honoured: the pattern '%.100s' %s%s repeats nothing at byte %zu", field,
                         found.pattern, is_schema ? "at " : "", found.path, found.off);
}

static bool want(struct api_params *params, enum grammar_kind kind, json_t *owned, const char *field,
                 struct api_fault *fault) {
    if (params->grammar_kind) {
        json_decref(owned);
        return api_fault_set(fault, 400, NULL, field, "'%s' demands a form beside '%s'; only one can be had", field,
                             params->grammar_field);
    }
    if (!owned) return api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the request");
    if (!is_small(owned, field, fault) || !is_sound(owned, kind, field, fault)) {
        json_decref(owned);
        return false;
    }
    params->grammar = owned;
    params->grammar_kind = kind;
    params->grammar_field = field;
    return true;
}

static bool read_format(struct api_params *params, const json_t *json, struct api_fault *fault) {
    const json_t *format = json_read_field(json, "response_format");
    if (!format) return true;
    const json_t *type = json_object_get(format, "type");
    if (!json_is_object(format) || !json_is_string(type))
        return api_fault_set(fault, 400, NULL, "response_format", "'response_format' must be an object with a 'type'");
    const char *name = json_string_value(type);
    if (strcmp(name, "text") == 0) return true;
    if (strcmp(name, "json_object") == 0)
        return want(params, GRAMMAR_JSON_SCHEMA, json_pack("{s:s}", "type", "object"), "response_format", fault);
    if (strcmp(name, "json_schema") != 0)
        return api_fault_set(fault, 400, "unsupported_parameter", "response_format",
                             "'response_format' is of type '%.40s', not text, json_object or json_schema", name);
    const json_t *schema = json_read_field(json_object_get(format, "json_schema"), "schema");
    if (!schema)
        return api_fault_set(fault, 400, NULL, "response_format",
                             "'response_format' of type json_schema has no 'json_schema.schema'");
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return api_fault_set(fault, 400, NULL, "response_format",
                             "'response_format.json_schema.schema' must be an object, not %s", json_read_type(schema));
    return want(params, GRAMMAR_JSON_SCHEMA, json_incref((json_t *)schema), "response_format", fault);
}

/* A schema may come as the text of one. */
static bool read_schema(struct api_params *params, const json_t *value, struct api_fault *fault) {
    const char *field = "structured_outputs.json";
    if (!json_is_string(value)) return want(params, GRAMMAR_JSON_SCHEMA, json_incref((json_t *)value), field, fault);
    json_t *schema = json_read_object(json_string_value(value), json_string_length(value), fault);
    return schema && want(params, GRAMMAR_JSON_SCHEMA, schema, field, fault);
}

static bool read_choices(struct api_params *params, const json_t *value, struct api_fault *fault) {
    const char *field = "structured_outputs.choice";
    bool is_sound = json_is_array(value) && json_array_size(value) > 0;
    const json_t *item;
    size_t i;
    json_array_foreach((json_t *)value, i, item) {
        is_sound = is_sound && json_is_string(item) && json_string_length(item) > 0;
    }
    if (!is_sound)
        return api_fault_set(fault, 400, NULL, field, "'%s' must be a list of at least one text, none of them empty",
                             field);
    return want(params, GRAMMAR_CHOICES, json_incref((json_t *)value), field, fault);
}

static bool read_structured(struct api_params *params, const json_t *json, struct api_fault *fault) {
    const json_t *wishes = json_read_field(json, "structured_outputs"), *value;
    const char *key;
    if (!wishes) return true;
    if (!json_is_object(wishes))
        return api_fault_set(fault, 400, NULL, "structured_outputs", "'structured_outputs' must be an object, not %s",
                             json_read_type(wishes));
    json_object_foreach((json_t *)wishes, key, value) {
        bool is_read, is_text = json_is_string(value) && json_string_length(value) > 0;
        if (json_is_null(value) || json_is_false(value)) continue;
        if (strcmp(key, "json") == 0)
            is_read = read_schema(params, value, fault);
        else if (strcmp(key, "json_object") == 0)
            is_read = want(params, GRAMMAR_JSON_SCHEMA, json_pack("{s:s}", "type", "object"),
                           "structured_outputs.json_object", fault);
        else if (strcmp(key, "regex") == 0 && is_text)
            is_read = want(params, GRAMMAR_REGEX, json_incref((json_t *)value), "structured_outputs.regex", fault);
        else if (strcmp(key, "grammar") == 0 && is_text)
            is_read = want(params, GRAMMAR_LARK, json_incref((json_t *)value), "structured_outputs.grammar", fault);
        else if (strcmp(key, "choice") == 0)
            is_read = read_choices(params, value, fault);
        else
            return api_fault_set(fault, 400, "unsupported_parameter", "structured_outputs",
                                 "'structured_outputs' holds '%.40s', which is no json, json_object, regex, choice or "
                                 "grammar, or of another type",
                                 key);
        if (!is_read) return false;
    }
    return true;
}

/* The schema of a call: {"name": one of them, "arguments": as its parameters say}. name NULL: any of the tools. */
static json_t *call_schema(const json_t *tools, const char *name) {
    json_t *forms = json_array();
    const json_t *tool;
    size_t i;
    json_array_foreach((json_t *)tools, i, tool) {
        const json_t *function = json_object_get(tool, "function"), *its = json_object_get(function, "name");
        const json_t *parameters = json_read_field(function, "parameters");
        if (!json_is_string(its) || (name && strcmp(json_string_value(its), name) != 0)) continue;
        json_t *arguments = json_is_object(parameters) && json_object_size(parameters)
                                ? json_incref((json_t *)parameters)
                                : json_pack("{s:s}", "type", "object");
        json_array_append_new(forms, json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s,s], s:b}", "type", "object", "properties",
                                               "name", "const", its, "arguments", arguments, "required", "name",
                                               "arguments", "additionalProperties", 0));
    }
    return json_pack("{s:o}", "anyOf", forms);
}

static bool read_tool_choice(struct api_params *params, const json_t *json, struct api_fault *fault) {
    const json_t *choice = json_read_field(json, "tool_choice"), *tools = json_read_field(json, "tools");
    const json_t *name = json_object_get(json_object_get(choice, "function"), "name");
    const char *word = json_is_string(choice) ? json_string_value(choice) : "";
    if (!choice || strcmp(word, "auto") == 0 || strcmp(word, "none") == 0) return true;
    if (strcmp(word, "required") != 0 && !json_is_string(name))
        return api_fault_set(fault, 400, NULL, "tool_choice",
                             "'tool_choice' must be auto, none, required, or an object that names a function");
    json_t *schema = call_schema(tools, json_string_value(name));
    if (json_array_size(json_object_get(schema, "anyOf")) == 0) {
        json_decref(schema);
        return api_fault_set(fault, 400, NULL, "tool_choice",
                             "'tool_choice' demands a call of '%.40s', and 'tools' has no such function",
                             name ? json_string_value(name) : "any");
    }
    params->is_call_forced = true;
    return want(params, GRAMMAR_JSON_SCHEMA, schema, "tool_choice", fault);
}

bool grammar_request_read(struct api_params *params, const json_t *json, enum api_kind kind, struct api_fault *fault) {
    if (!read_structured(params, json, fault)) return false;
    return kind != API_CHAT || (read_format(params, json, fault) && read_tool_choice(params, json, fault));
}

/* A schema with the compiler's own switches, whatever the client wrote in their place: no space but one behind a comma
 * or a colon, since small models write blank lines without end where they may, and nothing taken leniently. */
static json_t *with_switches(const json_t *schema) {
    json_t *own = json_copy((json_t *)schema);
    json_object_set_new(own, "x-guidance",
                        json_pack("{s:b, s:s, s:s, s:b}", "whitespace_flexible", 0, "item_separator", ", ",
                                  "key_separator", ": ", "lenient", 0));
    return own;
}

char *grammar_request_text(const struct api_params *params, size_t *out_n_bytes) {
    if (params->grammar_kind == GRAMMAR_JSON_SCHEMA && json_is_object(params->grammar)) {
        json_t *schema = with_switches(params->grammar);
        char *text = json_read_dump(schema, out_n_bytes);
        json_decref(schema);
        return text;
    }
    if (params->grammar_kind != GRAMMAR_REGEX && params->grammar_kind != GRAMMAR_LARK)
        return json_read_dump(params->grammar, out_n_bytes);
    *out_n_bytes = json_string_length(params->grammar);
    return mem_strndup(json_string_value(params->grammar), *out_n_bytes);
}
