/* request_log: one line per finished request, with every part of its time; never a text, a key or a salt.
 *
 * Thread: io.   Fields: docs/API.md. */
#ifndef KVICK_OBSERVE_REQUEST_LOG_H
#define KVICK_OBSERVE_REQUEST_LOG_H

#include "base/log.h"
#include "base/str.h"
#include "observe/request_metrics.h"

struct request_log_line {
    int64_t time_ms;                     /* wall clock, since 1970 */
    const char *id, *path, *traceparent; /* traceparent NULL: none */
    const char *key;                     /* its name; NULL: no key */
    int http_code;
    const struct request_record *record; /* NULL: it never reached the engine */
    const char *fault;                   /* NULL: none; one word */
};

/* Appends the line and its end: an object with every phase, or a text with what matters most.
 * Errors: those of str_append. */
WARN_UNUSED enum status request_log_write(const struct request_log_line *line, enum log_format format, struct str *out);

#endif
