/* json_write: JSON text, written straight into a str; no tree, so that a streamed token costs microseconds.
 *
 * Commas are its business. Texts must be UTF-8 and may hold NUL. The first failure is kept and told by finish.
 * Thread: one owner. */
#ifndef KVICK_BASE_JSON_WRITE_H
#define KVICK_BASE_JSON_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct json_write {
    struct str *out;
    enum status status;
    bool needs_comma;
};

void json_write_init(struct json_write *json, struct str *out);
WARN_UNUSED enum status json_write_finish(const struct json_write *json);

void json_write_object(struct json_write *json);
void json_write_end_object(struct json_write *json);
void json_write_array(struct json_write *json);
void json_write_end_array(struct json_write *json);

/* key: plain ASCII without quotes. The next value belongs to it. */
void json_write_key(struct json_write *json, const char *key);

void json_write_text(struct json_write *json, const char *text, size_t n_bytes);
void json_write_int(struct json_write *json, int64_t value);
/* Shortest of at most 9 digits; what is no finite number becomes null. */
void json_write_real(struct json_write *json, double value);
void json_write_flag(struct json_write *json, bool value);
void json_write_null(struct json_write *json);
/* A value that is JSON already. */
void json_write_raw(struct json_write *json, const char *text, size_t n_bytes);

/* Key and value. */
void json_write_field_text(struct json_write *json, const char *key, const char *text);
void json_write_field_int(struct json_write *json, const char *key, int64_t value);
void json_write_field_real(struct json_write *json, const char *key, double value);
void json_write_field_flag(struct json_write *json, const char *key, bool value);
void json_write_field_null(struct json_write *json, const char *key);
void json_write_field_str(struct json_write *json, const char *key, const struct str *text);
/* Opened; json_write_end_object, json_write_end_array. */
void json_write_field_object(struct json_write *json, const char *key);
void json_write_field_array(struct json_write *json, const char *key);

#endif
