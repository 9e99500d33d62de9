/* json_read: fields of a client's JSON with their types and ranges; every fault names field, range and value.
 *
 * Absent and null are the same: the value stays as it was. Thread: any. */
#ifndef KVICK_API_JSON_READ_H
#define KVICK_API_JSON_READ_H

#include <jansson.h>
#include <stdint.h>

#include "api/api_fault.h"

#define JSON_READ_MAX_DEPTH 100
/* What parsing costs is bounded before it begins: it happens on the event loop, and small values take much memory. */
#define JSON_READ_MAX_VALUES (1 << 18)
#define JSON_READ_MAX_NODES (1 << 16) /* lists, objects and names */

/* The body as an object; the caller's reference. NULL: fault tells (not UTF-8, no JSON, too deep, too many values, no
 * object, duplicate names). */
WARN_UNUSED json_t *json_read_object(const char *body, size_t n_bytes, struct api_fault *fault);

/* The field, or NULL if it is absent or null. */
const json_t *json_read_field(const json_t *object, const char *name);

/* False: fault is set. Numbers that are whole (3.0 is not: it must be written as one). */
WARN_UNUSED bool json_read_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *value,
                               struct api_fault *fault);
WARN_UNUSED bool json_read_real(const json_t *object, const char *name, double min, double max, double *value,
                                struct api_fault *fault);
WARN_UNUSED bool json_read_flag(const json_t *object, const char *name, bool *value, struct api_fault *fault);
/* Borrowed from the object. max_bytes: longest that is taken. */
WARN_UNUSED bool json_read_text(const json_t *object, const char *name, size_t max_bytes, const char **text,
                                size_t *n_bytes, struct api_fault *fault);

/* For translations between clients' forms: the field's text without its length, NULL if it is absent or no text;
 * whether the object's "type" is this one; and fields [n_names] that are there, taken over as they are. */
const char *json_read_word(const json_t *object, const char *name);
bool json_read_is_type(const json_t *object, const char *type);
void json_read_copy(json_t *to, const json_t *from, const char *const *names, size_t n_names);

/* The value as compact JSON text; mem. NULL: no memory. */
WARN_UNUSED char *json_read_dump(const json_t *value, size_t *out_n_bytes);

/* "a number", "a string", ...: what a value is, for messages. */
const char *json_read_type(const json_t *value);

#endif
