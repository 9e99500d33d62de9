/* request_log: one JSON line per finished request, with every part of its time; never a text, a key or a salt.
 *
 * Thread: io.   Fields: docs/API.md. */
#ifndef KVICK_OBSERVE_REQUEST_LOG_H
#define KVICK_OBSERVE_REQUEST_LOG_H

#include "base/str.h"
#include "observe/request_metrics.h"

struct request_log_line {
    int64_t time_ms;                     /* wall clock, since 1970 */
    const char *id, *path, *traceparent; /* traceparent NULL: none */
    int key_idx;                         /* -1: no key */
    int http_code;
    const struct request_record *record; /* NULL: it never reached the engine */
    const char *fault;                   /* NULL: none; one word */
};

/* Appends the line and its end. Errors: those of str_append. */
WARN_UNUSED enum status request_log_write(const struct request_log_line *line, struct str *out);

#endif
