#include "api/json_read.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Brackets, commas and colons outside of strings, counted before a recursive parser sees them. */
static bool check_size(const char *body, size_t n_bytes, struct api_fault *fault) {
    int depth = 0, n_values = 1, n_nodes = 0;
    bool in_text = false;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = body[i];
        if (in_text) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_text = false;
            continue;
        }
        in_text = c == '"';
        bool is_open = c == '{' || c == '[';
        depth += is_open - (c == '}' || c == ']');
        n_values += c == ',';
        n_nodes += is_open || c == ':';
        if (depth > JSON_READ_MAX_DEPTH)
            return api_fault_set(fault, 400, NULL, NULL, "the body is nested deeper than %d levels",
                                 JSON_READ_MAX_DEPTH);
        if (n_values > JSON_READ_MAX_VALUES)
            return api_fault_set(fault, 400, NULL, NULL, "the body has more than %d values", JSON_READ_MAX_VALUES);
        if (n_nodes > JSON_READ_MAX_NODES)
            return api_fault_set(fault, 400, NULL, NULL, "the body has more than %d lists, objects and names",
                                 JSON_READ_MAX_NODES);
    }
    return true;
}

json_t *json_read_object(const char *body, size_t n_bytes, struct api_fault *fault) {
    json_error_t error;
    if (n_bytes == 0) {
        api_fault_set(fault, 400, NULL, NULL, "the body is empty; a JSON object is expected");
        return NULL;
    }
    if (!check_size(body, n_bytes, fault)) return NULL;
    json_t *root = json_loadb(body, n_bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!root) {
        api_fault_set(fault, 400, NULL, NULL, "the body is no valid JSON: %s (line %d, column %d)", error.text,
                      error.line, error.column);
        return NULL;
    }
    if (json_is_object(root)) return root;
    api_fault_set(fault, 400, NULL, NULL, "the body is %s; a JSON object is expected", json_read_type(root));
    json_decref(root);
    return NULL;
}

const char *json_read_type(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "a number";
    case JSON_REAL: return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    case JSON_NULL: return "null";
    }
    return "nothing known";
}

const json_t *json_read_field(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return value && !json_is_null(value) ? value : NULL;
}

bool json_read_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *value,
                   struct api_fault *fault) {
    const json_t *field = json_read_field(object, name);
    if (!field) return true;
    if (!json_is_integer(field))
        return api_fault_set(fault, 400, NULL, name, "'%s' must be a whole number, not %s", name,
                             json_read_type(field));
    json_int_t number = json_integer_value(field);
    if (number < min || number > max)
        return api_fault_set(fault, 400, NULL, name, "'%s' is %lld, which is not within %lld..%lld", name,
                             (long long)number, (long long)min, (long long)max);
    *value = number;
    return true;
}

bool json_read_real(const json_t *object, const char *name, double min, double max, double *value,
                    struct api_fault *fault) {
    const json_t *field = json_read_field(object, name);
    if (!field) return true;
    if (!json_is_number(field))
        return api_fault_set(fault, 400, NULL, name, "'%s' must be a number, not %s", name, json_read_type(field));
    double number = json_number_value(field);
    if (!(number >= min && number <= max))
        return api_fault_set(fault, 400, NULL, name, "'%s' is %g, which is not within %g..%g", name, number, min, max);
    *value = number;
    return true;
}

bool json_read_flag(const json_t *object, const char *name, bool *value, struct api_fault *fault) {
    const json_t *field = json_read_field(object, name);
    if (!field) return true;
    if (!json_is_boolean(field))
        return api_fault_set(fault, 400, NULL, name, "'%s' must be true or false, not %s", name, json_read_type(field));
    *value = json_is_true(field);
    return true;
}

bool json_read_text(const json_t *object, const char *name, size_t max_bytes, const char **text, size_t *n_bytes,
                    struct api_fault *fault) {
    const json_t *field = json_read_field(object, name);
    if (!field) return true;
    if (!json_is_string(field))
        return api_fault_set(fault, 400, NULL, name, "'%s' must be a string, not %s", name, json_read_type(field));
    if (json_string_length(field) > max_bytes)
        return api_fault_set(fault, 400, NULL, name, "'%s' has %zu bytes, at most %zu are taken", name,
                             json_string_length(field), max_bytes);
    *text = json_string_value(field);
    *n_bytes = json_string_length(field);
    return true;
}

const char *json_read_word(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

bool json_read_is_type(const json_t *object, const char *type) {
    const char *is = json_read_word(object, "type");
    return is && strcmp(is, type) == 0;
}

void json_read_copy(json_t *to, const json_t *from, const char *const *names, size_t n_names) {
    for (size_t i = 0; i < n_names; i++) {
        const json_t *field = json_read_field(from, names[i]);
        if (field) json_object_set(to, names[i], (json_t *)field);
    }
}

char *json_read_dump(const json_t *value, size_t *out_n_bytes) {
    size_t n_bytes = json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    char *text = mem_alloc(n_bytes + 1);
    if (text && (n_bytes == 0 || json_dumpb(value, text, n_bytes, JSON_COMPACT | JSON_ENCODE_ANY) != n_bytes)) {
        mem_free(text);
        return NULL;
    }
    *out_n_bytes = n_bytes;
    return text;
}
