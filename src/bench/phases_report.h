/* phases_report: a phases measurement as a page, as a table of requests (CSV) and as data (JSON).   Thread: any. */
#ifndef KVICK_BENCH_PHASES_REPORT_H
#define KVICK_BENCH_PHASES_REPORT_H

#include "bench/phases.h"

/* What was measured, in words. */
struct phases_report_about {
    const char *server;  /* "kvick serve MODEL", or its address */
    const char *machine; /* NULL: the server may run elsewhere */
    const char *command; /* that makes the report again */
};

/* One file of HTML, without anything from elsewhere. Errors: those of str_append. */
WARN_UNUSED enum status phases_report_html(const struct phases *phases, const struct load_target *target,
                                           const struct phases_report_about *about, struct str *out);

/* A line for each request. */
WARN_UNUSED enum status phases_report_csv(const struct phases *phases, struct str *out);

WARN_UNUSED enum status phases_report_json(const struct phases *phases, const struct load_target *target,
                                           const struct phases_report_about *about, struct str *out);

/* The sentences and the points, for a terminal. */
WARN_UNUSED enum status phases_report_text(const struct phases *phases, struct str *out);

#endif
