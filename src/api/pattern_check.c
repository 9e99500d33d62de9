#include "api/pattern_check.h"

#include <stdio.h>
#include <string.h>

/* Behind an opening bracket's "?": "?:", "?=", "?<name>" and their like. Returns what follows. */
static size_t skip_group_kind(const char *pattern, size_t n_bytes, size_t at) {
    if (at >= n_bytes || pattern[at] != '?') return at;
    at++;
    if (at < n_bytes && (pattern[at] == '<' || pattern[at] == 'P')) {
        while (at < n_bytes && pattern[at] != '>' && pattern[at] != '=' && pattern[at] != '!') at++;
    } else {
        while (at < n_bytes && pattern[at] != ':' && pattern[at] != '=' && pattern[at] != '!' && pattern[at] != ')')
            at++;
        if (at < n_bytes && pattern[at] == ')') return at;
    }
    return at < n_bytes ? at + 1 : at;
}

/* at: behind the opening bracket of a class. Returns what follows the class. */
static size_t skip_class(const char *pattern, size_t n_bytes, size_t at) {
    if (at < n_bytes && pattern[at] == '^') at++;
    if (at < n_bytes && pattern[at] == ']') at++;
    for (; at < n_bytes && pattern[at] != ']'; at++)
        if (pattern[at] == '\\') at++;
    return at < n_bytes ? at + 1 : n_bytes;
}

/* Behind a quantifier at off. */
static size_t skip_quantifier(const char *pattern, size_t n_bytes, size_t off) {
    size_t at = off + 1;
    if (pattern[off] == '{') {
        while (at < n_bytes && pattern[at] != '}') at++;
        if (at < n_bytes) at++;
    }
    if (at < n_bytes && pattern[at] == '?') at++; /* as few as possible */
    return at;
}

/* "{2}", "{2,}" or "{2,5}"; any other brace is a character. */
static bool is_count(const char *pattern, size_t n_bytes, size_t off) {
    size_t at = off + 1, n_digits = 0;
    for (; at < n_bytes && pattern[at] >= '0' && pattern[at] <= '9'; at++) n_digits++;
    if (at < n_bytes && pattern[at] == ',')
        for (at++; at < n_bytes && pattern[at] >= '0' && pattern[at] <= '9'; at++) continue;
    return n_digits && at < n_bytes && pattern[at] == '}';
}

size_t pattern_check_find(const char *pattern, size_t n_bytes) {
    bool has_atom = false;
    for (size_t at = 0; at < n_bytes;) {
        char c = pattern[at];
        bool is_quantifier = c == '*' || c == '+' || c == '?' || (c == '{' && is_count(pattern, n_bytes, at));
        if (is_quantifier) {
            if (!has_atom) return at;
            at = skip_quantifier(pattern, n_bytes, at);
            has_atom = false;
        } else if (c == '\\') {
            has_atom = at + 1 < n_bytes && pattern[at + 1] != 'b' && pattern[at + 1] != 'B';
            at += 2;
        } else if (c == '[') {
            at = skip_class(pattern, n_bytes, at + 1);
            has_atom = true;
        } else if (c == '(') {
            at = skip_group_kind(pattern, n_bytes, at + 1);
            has_atom = false;
        } else {
            has_atom = c != '^' && c != '$' && c != '|';
            at++;
        }
    }
    return n_bytes;
}

/* ---- schemas ---- */

static bool check_pattern(const char *pattern, size_t n_bytes, const char *path, struct pattern_fault *fault) {
    size_t off = pattern_check_find(pattern, n_bytes);
    if (off == n_bytes) return true;
    *fault = (struct pattern_fault){.pattern = pattern, .off = off};
    snprintf(fault->path, sizeof fault->path, "%s", path);
    return false;
}

/* Values of these are data, whatever they look like. */
static bool is_data(const char *keyword) {
    static const char *const names[] = {"const", "enum", "default", "examples"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(keyword, names[i]) == 0) return true;
    return false;
}

/* Keys of these are names, not keywords. */
static bool is_map(const char *keyword) {
    static const char *const names[] = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(keyword, names[i]) == 0) return true;
    return false;
}

static bool check_names(const json_t *map, const char *path, struct pattern_fault *fault) {
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)map, name, item) {
        if (!check_pattern(name, strlen(name), path, fault)) return false;
    }
    return true;
}

/* Depth is bounded by the reader of JSON. */
static bool check_value(const json_t *value, const char *path, bool has_keywords, struct pattern_fault *fault) {
    char inner[sizeof fault->path];
    const char *key;
    json_t *item;
    size_t i;
    json_array_foreach((json_t *)value, i, item) {
        snprintf(inner, sizeof inner, "%.100s/%zu", path, i);
        if (!check_value(item, inner, true, fault)) return false;
    }
    json_object_foreach((json_t *)value, key, item) {
        snprintf(inner, sizeof inner, "%.100s/%.50s", path, key);
        if (has_keywords && is_data(key)) continue;
        if (has_keywords && strcmp(key, "pattern") == 0 && json_is_string(item) &&
            !check_pattern(json_string_value(item), json_string_length(item), inner, fault))
            return false;
        if (has_keywords && strcmp(key, "patternProperties") == 0 && !check_names(item, inner, fault)) return false;
        if (!check_value(item, inner, !has_keywords || !is_map(key), fault)) return false;
    }
    return true;
}

bool pattern_check_schema(const json_t *schema, struct pattern_fault *out_fault) {
    return check_value(schema, "", true, out_fault);
}
