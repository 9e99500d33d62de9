/* progress: a line on stderr that shows how far long work is, on a terminal only.
 *
 * Thread: one owner.   Memory: fixed.   Cost: a clock reading per call, at most ten lines a second. */
#ifndef KVICK_BASE_PROGRESS_H
#define KVICK_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct progress {
    const char *what; /* the caller's, for as long as the progress runs */
    uint64_t total_bytes, done_bytes;
    int64_t start_ns, shown_ns;
    bool is_shown;
    bool has_steps; /* the work is no bytes: no rate is shown */
};

/* total_bytes 0 counts as done. */
void progress_start(struct progress *progress, const char *what, uint64_t total_bytes);

/* Likewise, for work that is counted in steps; progress_set says how many are done. */
void progress_start_steps(struct progress *progress, const char *what, uint64_t n_steps);
void progress_set(struct progress *progress, uint64_t n_done);

/* Errors: STATUS_CANCELLED once a signal has asked to stop; the caller then takes back what it has begun. */
WARN_UNUSED enum status progress_add(struct progress *progress, uint64_t n_bytes, struct status_note *note);

/* SIGINT, SIGTERM and SIGHUP ask to stop from now on, instead of ending the process with work half done. */
void progress_stop_on_signals(void);

/* Removes the line. */
void progress_end(struct progress *progress);

/* The line itself, without line ends: "Q4_0  [####......]  41 %  812 MB/s  2 s left". */
void progress_format(const struct progress *progress, int64_t now_ns, char *out, int out_bytes);

#endif
