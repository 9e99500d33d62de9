/* diagnose_log: a server's request log (serve --log-format json) into diagnosis.
 *
 * Of each line: a finished request's fields (docs/API.md), or {"time_ms", "engine": {...}} with what GET
 * /debug/diagnosis gives as engine, which whoever keeps a log may write between them, or {"window": {...}} as the first
 * line: buckets other than the server's. Other lines are passed over. Thread: any.   Memory: a line's. */
#ifndef KVICK_CMD_DIAGNOSE_LOG_H
#define KVICK_CMD_DIAGNOSE_LOG_H

#include "observe/diagnosis.h"

/* What was in the log. */
struct diagnose_log_counts {
    int n_lines, n_requests, n_samples;
    int64_t first_ms, last_ms; /* wall clock */
};

/* Reads the whole text; the caller destroys out_diagnosis, also after an error (it may be NULL then). on_change is told
 * of what begins and ends, with times of the log's clock.
 * Errors: STATUS_FORMAT with the line and the field, STATUS_NOMEM. */
WARN_UNUSED enum status diagnose_log_read(const char *text, size_t n_bytes, diagnosis_change_fn *on_change, void *owner,
                                          struct diagnosis **out_diagnosis, struct diagnose_log_counts *out_counts,
                                          struct status_note *note);

#endif
