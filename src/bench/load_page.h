/* load_page: what bench serve found, as a page: how the times spread under each kind of load, and what batch limit,
 * chunk and cores do to tokens per second and to the wait for the first one, in one picture.   Thread: any. */
#ifndef KVICK_BENCH_LOAD_PAGE_H
#define KVICK_BENCH_LOAD_PAGE_H

#include "bench/load_rows.h"

/* What was measured, in words. */
struct load_page_about {
    const char *model, *server;
    const char *machine; /* NULL: the server may run elsewhere */
    const char *command; /* that makes the page again */
    const char *advice;  /* a sentence; NULL: none */
};

/* One file of HTML, without anything from elsewhere. Errors: those of str_append. */
WARN_UNUSED enum status load_page_html(const struct load_rows *rows, const struct load_page_about *about,
                                       struct str *out);

#endif
