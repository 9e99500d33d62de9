/* log: lines for the operator, on stderr.   Thread: any; one line is one write. */
#ifndef KVICK_BASE_LOG_H
#define KVICK_BASE_LOG_H

#include <stddef.h>

#include "base/status.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* LOG_TEXT: "kvick: warning: ..."; LOG_JSON: one object with time_ms, level and message. */
enum log_format { LOG_TEXT, LOG_JSON };

/* LOG_TEXT at start. Before other threads run. */
void log_set_format(enum log_format format);

/* Lines above this level are dropped; LOG_WARN at start. */
void log_set_level(enum log_level level);

/* A line, cut at 1024 bytes; control bytes become '?'. Never prompts, keys or salts. */
void log_line(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* A whole line as it is, with its end, at most LOG_MAX_RAW_BYTES (longer ones are dropped). Never waits: when nobody
 * reads standard error the line is dropped, and the next one that goes out is preceded by how many were. */
#define LOG_MAX_RAW_BYTES 4096 /* what a pipe takes at once */
void log_raw(const char *line, size_t n_bytes);

#endif
