#include "cmd/bench_report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "cmd/cmd.h"

#define N_STEPS 1000
#define MAX_BUDGET_S 36000
#define MAX_CONTEXT (1 << 24)

int bench_report_check(const char *what, const struct options *options, const char *model) {
    if (!model == !options->url) {
        if (model) return cmd_usage("bench", "%s: both MODEL and --url are given, one is needed", what);
        return cmd_usage("bench", "%s: a MODEL or --url is needed", what);
    }
    if (!(options->budget >= 1 && options->budget <= MAX_BUDGET_S))
        return cmd_usage("bench", "--budget: %g is not within 1..%d", options->budget, MAX_BUDGET_S);
    if (options->context < 0 || options->context > MAX_CONTEXT)
        return cmd_usage("bench", "--context: %ld is not within 0..%d", options->context, MAX_CONTEXT);
    if (!options->url && (options->endpoint || options->model))
        return cmd_usage("bench", "--endpoint and --model go with --url");
    return 0;
}

/* The processor's name, as the kernel tells it. */
static void name_machine(char *out, size_t n_bytes) {
    char line[256], name[120] = "unknown CPU";
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "model name : %119[^\n]", name) == 1) break;
    if (file) fclose(file);
    int n_cores = cpu_n_usable();
    snprintf(out, n_bytes, "%s, %d core%s", name, n_cores, n_cores == 1 ? "" : "s");
}

static void name_run(struct bench_report *report, const char *what, const char *model) {
    const struct options *options = report->options;
    snprintf(report->command, sizeof report->command, "kvick bench %s %s%.900s --budget %g", what,
             model ? "" : "--url ", model ? model : options->url, options->budget);
    report->prefix = options->report ? options->report : what;
    if (!model) {
        snprintf(report->server_name, sizeof report->server_name, "%.500s", options->url);
        return;
    }
    snprintf(report->server_name, sizeof report->server_name, "kvick " KVICK_VERSION ", %.400s", model);
    name_machine(report->machine, sizeof report->machine);
}

enum status bench_report_open(struct bench_report *report, const char *what, const struct options *options,
                              const char *model, const struct bench_server_extra *extra, struct status_note *note) {
    enum status status = STATUS_OK;
    *report = (struct bench_report){.options = options, .server.fd = -1};
    name_run(report, what, model);
    if (model) status = bench_server_start(&report->server, model, options, extra, note);
    if (status) return status;
    struct load_target_wishes wishes = {.url = model ? report->server.url : options->url,
                                        .model = options->model,
                                        .api_key = options->api_key.n_items ? options->api_key.items[0] : NULL,
                                        .endpoint = options->endpoint,
                                        .max_context = (int)options->context};
    status = load_target_find(&report->target, &wishes, note);
    if (status)
        bench_server_stop(&report->server);
    else
        progress_start_steps(&report->progress, what, N_STEPS);
    return status;
}

void bench_report_close(struct bench_report *report) {
    progress_end(&report->progress);
    bench_server_stop(&report->server);
}

void bench_report_progress(struct bench_report *report, double share) {
    double done = (share < 0 ? 0 : share > 1 ? 1 : share) * N_STEPS;
    progress_set(&report->progress, (uint64_t)done);
}

enum status bench_report_write(const struct bench_report *report, const char *suffix, const struct str *text,
                               struct status_note *note) {
    char path[4096];
    snprintf(path, sizeof path, "%.4000s%s", report->prefix, suffix);
    FILE *file = fopen(path, "w");
    bool is_written = file && fwrite(text->ptr, 1, text->n_bytes, file) == text->n_bytes;
    int why = errno;
    if (file && fclose(file)) {
        is_written = false;
        why = errno;
    }
    return is_written ? STATUS_OK : status_fail(note, STATUS_IO, "%s: %s", path, strerror(why));
}
