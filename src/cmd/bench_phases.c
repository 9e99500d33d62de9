#include "cmd/bench_phases.h"

#include <stdio.h>

#include "base/mem.h"
#include "bench/phases_figures.h"
#include "bench/phases_report.h"
#include "cmd/bench_report.h"
#include "cmd/cmd.h"

#define SHARED_TOKENS 1024

static void on_progress(void *owner, double share) {
    bench_report_progress(owner, share);
}

/* One file: what make puts into a text. */
static enum status write_files(const struct bench_report *report, const struct phases *phases,
                               struct status_note *note) {
    static const char *const suffixes[PHASES_FIGURES_N] = {"-ttft.svg", "-decode.svg", "-cases.svg"};
    struct phases_report_about about = {report->server_name, report->machine[0] ? report->machine : NULL,
                                        report->command};
    struct str text;
    str_init(&text, BENCH_REPORT_MAX_BYTES);
    enum status status = phases_report_html(phases, &report->target, &about, &text);
    if (!status) status = bench_report_write(report, ".html", &text, note);
    for (int i = 0; i < PHASES_FIGURES_N && !status; i++) {
        str_clear(&text);
        status = phases_figures_draw(phases, i, true, &text);
        if (!status) status = bench_report_write(report, suffixes[i], &text, note);
    }
    str_clear(&text);
    if (!status) status = phases_report_csv(phases, &text);
    if (!status) status = bench_report_write(report, ".csv", &text, note);
    str_clear(&text);
    if (!status) status = phases_report_json(phases, &report->target, &about, &text);
    if (!status) status = bench_report_write(report, ".json", &text, note);
    if (!status && report->options->json) fputs(text.ptr, stdout);
    str_clear(&text);
    if (!status && !report->options->json) {
        status = phases_report_text(phases, &text);
        printf("%s\n%s.html has the report; %s.csv and .json the data, three .svg the figures\n", text.ptr,
               report->prefix, report->prefix);
    }
    str_deinit(&text);
    return status;
}

int bench_phases(const struct options *options, const char *model) {
    struct bench_report report;
    struct status_note note = {0};
    struct phases_options how = {.budget_s = options->budget, .shared_tokens = SHARED_TOKENS};
    int exit_code = bench_report_check("phases", options, model);
    if (exit_code) return exit_code;
    enum status status = bench_report_open(&report, "phases", options, model, NULL, &note);
    if (status) return cmd_fail(model ? model : options->url, status, &note);
    struct phases *phases = mem_alloc(sizeof *phases);
    status = phases ? phases_measure(phases, &report.target, &how, on_progress, &report, &note)
                    : status_fail(&note, STATUS_NOMEM, "no memory for the samples");
    bench_report_close(&report);
    if (!status) status = write_files(&report, phases, &note);
    mem_free(phases);
    return status ? cmd_fail(report.server_name, status, &note) : 0;
}
