/* bench_report: what bench phases and bench serve share: the server they ask, the bar, the files they write. */
#ifndef KVICK_CMD_BENCH_REPORT_H
#define KVICK_CMD_BENCH_REPORT_H

#include "base/progress.h"
#include "base/str.h"
#include "bench/load_target.h"
#include "cmd/bench_server.h"

#define BENCH_REPORT_MAX_BYTES ((size_t)64 << 20)

struct bench_report {
    const struct options *options;
    struct bench_server server; /* our own, with a MODEL */
    struct load_target target;
    char server_name[LOAD_CLIENT_MAX_URL_BYTES + 32];
    char machine[160];
    char command[1024]; /* that makes it again */
    const char *prefix; /* of the files */
    struct progress progress;
};

/* Whether options make sense; the usage is printed if not. 0, or the exit status. what: "phases", "serve". */
int bench_report_check(const char *what, const struct options *options, const char *model);

/* Starts a server of model, or finds the one at --url. Errors: as bench_server_start and load_target_find. */
WARN_UNUSED enum status bench_report_open(struct bench_report *report, const char *what, const struct options *options,
                                          const char *model, const struct bench_server_extra *extra,
                                          struct status_note *note);
void bench_report_close(struct bench_report *report);

/* PREFIX + suffix gets the text. Errors: STATUS_IO with the path in note. */
WARN_UNUSED enum status bench_report_write(const struct bench_report *report, const char *suffix,
                                           const struct str *text, struct status_note *note);

/* share: 0..1 of the work. */
void bench_report_progress(struct bench_report *report, double share);

#endif
