/* report_page: an HTML page in one file: no network, no scripts, light and dark as the reader likes it, wide and
 * narrow.
 *
 * The first failure is kept and told by report_page_end.   Thread: one owner. */
#ifndef KVICK_BENCH_REPORT_PAGE_H
#define KVICK_BENCH_REPORT_PAGE_H

#include "base/str.h"

struct report_page {
    struct str *out;
    enum status status;
};

void report_page_begin(struct report_page *page, struct str *out, const char *title);
WARN_UNUSED enum status report_page_end(struct report_page *page);

/* An element with this text, made harmless. tag: "p", "h2", "p class=lead", ... */
void report_page_text(struct report_page *page, const char *tag, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* What was measured and when: now. machine: NULL, it may run elsewhere. */
void report_page_lead(struct report_page *page, const char *server, const char *machine);

/* The command that makes the page again. */
void report_page_command(struct report_page *page, const char *command);

/* Takes the drawing, which is freed. status: of drawing it. */
void report_page_figure(struct report_page *page, struct str *figure, enum status status, const char *caption);

/* HTML as it is. */
void report_page_raw(struct report_page *page, const char *html);

/* headers: [n] of the columns, the first of which is of words, the others of numbers. */
void report_page_table(struct report_page *page, const char *caption, const char *const *headers, int n);
void report_page_row(struct report_page *page);                                          /* begins one */
void report_page_cell(struct report_page *page, const char *fmt, ...) PRINTF_LIKE(2, 3); /* the next of it */
void report_page_end_table(struct report_page *page);

#endif
