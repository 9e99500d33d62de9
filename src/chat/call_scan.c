#include "chat/call_scan.h"

#include <jansson.h>
#include <string.h>

#define MAX_KEY_BYTES 4096
#define MAX_NAME_BYTES 4096
#define MAX_ARGUMENT_BYTES ((size_t)64 << 20)
#define MAX_DEPTH 200

void call_scan_init(struct call_scan *scan) {
    *scan = (struct call_scan){0};
    str_init(&scan->key, MAX_KEY_BYTES);
    str_init(&scan->name, MAX_NAME_BYTES);
    str_init(&scan->arguments, MAX_ARGUMENT_BYTES);
}

void call_scan_deinit(struct call_scan *scan) {
    str_deinit(&scan->key);
    str_deinit(&scan->name);
    str_deinit(&scan->arguments);
}

void call_scan_begin(struct call_scan *scan, bool is_apart) {
    struct str key = scan->key, name = scan->name, arguments = scan->arguments;
    *scan = (struct call_scan){.key = key, .name = name, .arguments = arguments, .is_apart = is_apart};
    str_clear(&scan->key);
    str_clear(&scan->arguments);
    if (!is_apart) str_clear(&scan->name);
    if (!is_apart) return;
    scan->place = CALL_BEFORE_VALUE;
    scan->field = CALL_ARGUMENTS;
    scan->has_name = true;
}

static bool is_space(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* A string with its quotes and escapes -> its bytes, in place. False: it is none. */
static bool unquote(struct str *text) {
    json_t *value = json_loadb(text->ptr, text->n_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool is_text = json_is_string(value);
    size_t n_bytes = is_text ? json_string_length(value) : 0;
    str_clear(text);
    if (is_text && str_append(text, json_string_value(value), n_bytes)) is_text = false;
    json_decref(value);
    return is_text;
}

static void end_key(struct call_scan *scan) {
    if (!unquote(&scan->key)) {
        scan->place = CALL_BROKEN;
        return;
    }
    const char *key = scan->key.ptr;
    scan->field = CALL_OTHER;
    if (strcmp(key, "name") == 0 && !scan->has_name) scan->field = CALL_NAME;
    if ((strcmp(key, "arguments") == 0 || strcmp(key, "parameters") == 0) && !scan->has_arguments)
        scan->field = CALL_ARGUMENTS;
    str_clear(&scan->key);
    scan->place = CALL_BEFORE_COLON;
}

static void end_value(struct call_scan *scan) {
    scan->place = scan->is_apart ? CALL_END : CALL_AFTER_VALUE;
    if (scan->field == CALL_NAME) {
        scan->has_name = scan->is_value_text && unquote(&scan->name) && scan->name.n_bytes > 0;
        if (!scan->has_name) scan->place = CALL_BROKEN;
    }
    if (scan->field == CALL_ARGUMENTS) {
        scan->has_arguments = true;
        if (scan->is_value_text && !unquote(&scan->arguments)) scan->place = CALL_BROKEN;
    }
}

static enum status keep(struct call_scan *scan, char byte) {
    if (scan->key.n_bytes == MAX_KEY_BYTES || scan->name.n_bytes == MAX_NAME_BYTES) {
        scan->place = CALL_BROKEN;
        return STATUS_OK;
    }
    if (scan->place == CALL_KEY) return str_append(&scan->key, &byte, 1);
    if (scan->field == CALL_NAME) return str_append(&scan->name, &byte, 1);
    if (scan->field == CALL_ARGUMENTS) return str_append(&scan->arguments, &byte, 1);
    return STATUS_OK;
}

/* A byte of a string; true: it closes it. */
static bool is_closing(struct call_scan *scan, char byte) {
    bool is_end = byte == '"' && !scan->is_escaped;
    scan->is_escaped = byte == '\\' && !scan->is_escaped;
    return is_end;
}

/* The first byte of a value. */
static enum status begin_value(struct call_scan *scan, char byte) {
    bool is_object = byte == '{' || byte == '[';
    if (byte == '}' || byte == ']' || byte == ',' || byte == ':' || (scan->is_apart && !is_object)) {
        scan->place = CALL_BROKEN;
        return STATUS_OK;
    }
    scan->place = CALL_VALUE;
    scan->is_value_text = scan->in_text = byte == '"';
    scan->depth = is_object;
    return keep(scan, byte);
}

static enum status push_value(struct call_scan *scan, char byte) {
    bool is_over = false;
    if (scan->in_text) {
        scan->in_text = !is_closing(scan, byte);
        is_over = !scan->in_text && scan->depth == 0;
    } else if (scan->depth == 0 && (is_space(byte) || byte == ',' || byte == '}')) {
        end_value(scan); /* a number, true, false or null: this byte is no part of it */
        return call_scan_push(scan, byte);
    } else if (byte == '"') {
        scan->in_text = true;
        if (scan->depth == 0) scan->place = CALL_BROKEN;
    } else if (byte == '{' || byte == '[') {
        if (++scan->depth > MAX_DEPTH) scan->place = CALL_BROKEN;
    } else if (byte == '}' || byte == ']') {
        is_over = --scan->depth == 0;
    }
    enum status status = keep(scan, byte);
    if (!status && is_over) end_value(scan);
    return status;
}

enum status call_scan_push(struct call_scan *scan, char byte) {
    enum status status = STATUS_OK;
    if (scan->place == CALL_VALUE) return push_value(scan, byte);
    if (scan->place == CALL_KEY) {
        status = keep(scan, byte);
        if (!status && is_closing(scan, byte)) end_key(scan);
        return status;
    }
    if (is_space(byte)) return STATUS_OK;
    switch (scan->place) {
    case CALL_BEFORE_OBJECT: scan->place = byte == '{' ? CALL_BEFORE_KEY : CALL_BROKEN; break;
    case CALL_BEFORE_KEY:
        scan->place = byte == '"' ? CALL_KEY : byte == '}' ? CALL_END : CALL_BROKEN;
        if (byte == '"') status = keep(scan, byte);
        break;
    case CALL_BEFORE_COLON: scan->place = byte == ':' ? CALL_BEFORE_VALUE : CALL_BROKEN; break;
    case CALL_BEFORE_VALUE: status = begin_value(scan, byte); break;
    case CALL_AFTER_VALUE: scan->place = byte == ',' ? CALL_BEFORE_KEY : byte == '}' ? CALL_END : CALL_BROKEN; break;
    default: scan->place = CALL_BROKEN; break;
    }
    return status;
}

bool call_scan_has_news(const struct call_scan *scan) {
    bool is_open_text = scan->is_value_text && scan->field == CALL_ARGUMENTS && scan->place == CALL_VALUE;
    return scan->arguments.n_bytes > 0 && !is_open_text && scan->place != CALL_BROKEN;
}
