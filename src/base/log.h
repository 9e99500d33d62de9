/* log: lines for the operator, on stderr.   Thread: any; one line is one write. */
#ifndef KVICK_BASE_LOG_H
#define KVICK_BASE_LOG_H

#include "base/status.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Lines above this level are dropped; LOG_WARN at start. */
void log_set_level(enum log_level level);

/* "kvick: warning: ..." and a newline, cut at 1024 bytes; control bytes become '?'. Never prompts, keys or salts. */
void log_line(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
