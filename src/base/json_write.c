#include "base/json_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void json_write_init(struct json_write *json, struct str *out) {
    *json = (struct json_write){.out = out};
}

enum status json_write_finish(const struct json_write *json) {
    return json->status;
}

static void put(struct json_write *json, const char *bytes, size_t n_bytes) {
    if (!json->status) json->status = str_append(json->out, bytes, n_bytes);
}

/* Before every value and key. */
static void separate(struct json_write *json) {
    if (json->needs_comma) put(json, ",", 1);
    json->needs_comma = true;
}

static void open_with(struct json_write *json, const char *bracket) {
    separate(json);
    put(json, bracket, 1);
    json->needs_comma = false;
}

static void close_with(struct json_write *json, const char *bracket) {
    put(json, bracket, 1);
    json->needs_comma = true;
}

void json_write_object(struct json_write *json) {
    open_with(json, "{");
}

void json_write_end_object(struct json_write *json) {
    close_with(json, "}");
}

void json_write_array(struct json_write *json) {
    open_with(json, "[");
}

void json_write_end_array(struct json_write *json) {
    close_with(json, "]");
}

void json_write_key(struct json_write *json, const char *key) {
    separate(json);
    put(json, "\"", 1);
    put(json, key, strlen(key));
    put(json, "\":", 2);
    json->needs_comma = false;
}

static void put_escape(struct json_write *json, unsigned char c) {
    static const char *const short_forms[] = {['\b'] = "\\b", ['\f'] = "\\f", ['\n'] = "\\n", ['\r'] = "\\r",
                                              ['\t'] = "\\t", ['"'] = "\\\"", ['\\'] = "\\\\"};
    char text[8];
    if (c < sizeof short_forms / sizeof short_forms[0] && short_forms[c]) {
        put(json, short_forms[c], 2);
        return;
    }
    snprintf(text, sizeof text, "\\u%04x", c);
    put(json, text, 6);
}

void json_write_text(struct json_write *json, const char *text, size_t n_bytes) {
    separate(json);
    put(json, "\"", 1);
    size_t from = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
        put(json, text + from, i - from);
        put_escape(json, c);
        from = i + 1;
    }
    put(json, text + from, n_bytes - from);
    put(json, "\"", 1);
}

void json_write_raw(struct json_write *json, const char *text, size_t n_bytes) {
    separate(json);
    put(json, text, n_bytes);
}

void json_write_int(struct json_write *json, int64_t value) {
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)value);
    json_write_raw(json, text, (size_t)n);
}

void json_write_real(struct json_write *json, double value) {
    char text[40];
    int n = isfinite(value) ? snprintf(text, sizeof text, "%.9g", value) : snprintf(text, sizeof text, "null");
    json_write_raw(json, text, (size_t)n);
}

void json_write_flag(struct json_write *json, bool value) {
    json_write_raw(json, value ? "true" : "false", value ? 4 : 5);
}

void json_write_null(struct json_write *json) {
    json_write_raw(json, "null", 4);
}

void json_write_field_text(struct json_write *json, const char *key, const char *text) {
    json_write_key(json, key);
    json_write_text(json, text, strlen(text));
}

void json_write_field_int(struct json_write *json, const char *key, int64_t value) {
    json_write_key(json, key);
    json_write_int(json, value);
}

void json_write_field_real(struct json_write *json, const char *key, double value) {
    json_write_key(json, key);
    json_write_real(json, value);
}

void json_write_field_flag(struct json_write *json, const char *key, bool value) {
    json_write_key(json, key);
    json_write_flag(json, value);
}

void json_write_field_null(struct json_write *json, const char *key) {
    json_write_key(json, key);
    json_write_null(json);
}

void json_write_field_str(struct json_write *json, const char *key, const struct str *text) {
    json_write_key(json, key);
    json_write_text(json, text->ptr, text->n_bytes);
}

void json_write_field_object(struct json_write *json, const char *key) {
    json_write_key(json, key);
    json_write_object(json);
}

void json_write_field_array(struct json_write *json, const char *key) {
    json_write_key(json, key);
    json_write_array(json);
}
