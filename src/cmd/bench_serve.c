#include "cmd/bench_serve.h"

#include <stdio.h>
#include <time.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "bench/load_page.h"
#include "bench/load_replay.h"
#include "bench/load_rows.h"
#include "bench/svg.h"
#include "bench/workload.h"
#include "cmd/bench_report.h"
#include "cmd/cmd.h"

#define TIMEOUT_MS 600000
#define GAP_MS 60.0 /* what a reader should wait for a token at most: serve's own --target-itl-ms and a fifth */
#define SWEEP_CLIENTS 16
#define MAX_CLIENTS 64
#define MAX_VALUES 6
#define MAX_ADVICE_BYTES 600

static const int clients[] = {1, 4, 8, 16};

#define N_CLIENTS ((int)(sizeof clients / sizeof clients[0]))

struct serve_bench {
    struct bench_report report;
    const char *model; /* NULL: the server is not ours */
    struct load_replay_options replay;
    struct load_rows rows;
    int64_t start_ns;
    int n_done, n_planned, n_failed, n_left_out;
    json_t *results;
    struct status_note note, failure;
};

/* ---- one run ---- */

static enum status print(struct serve_bench *bench, const struct load_row *row) {
    struct str text;
    if (bench->report.options->json) return STATUS_OK;
    str_init(&text, BENCH_REPORT_MAX_BYTES);
    enum status status = row ? load_rows_text(row, &text) : load_rows_head(&text);
    if (!status) fputs(text.ptr, stdout);
    fflush(stdout);
    str_deinit(&text);
    return status ? status_fail(&bench->note, status, "no memory for a line") : STATUS_OK;
}

static enum status keep_row(struct serve_bench *bench, enum load_group group, const char *name, double value,
                            const json_t *summary) {
    const struct load_row *row = load_rows_add(&bench->rows, group, name, value, summary);
    if (!row) return status_fail(&bench->note, STATUS_LIMIT, "more than %d rows of results", LOAD_ROWS_MAX);
    return print(bench, row);
}

/* A row for each label of the trace; one in all where it has none, or where one thing is varied. */
static enum status keep_rows(struct serve_bench *bench, enum load_group group, const char *name, double value,
                             const json_t *result) {
    const char *label;
    json_t *summary, *labels = json_object_get(result, "labels");
    enum status status = STATUS_OK;
    if (group != LOAD_GROUP_SCENARIO || json_object_size(labels) == 0)
        return keep_row(bench, group, name, value, json_object_get(result, "summary"));
    json_object_foreach(labels, label, summary) {
        char row[LOAD_ROWS_NAME_BYTES];
        snprintf(row, sizeof row, "%.40s, %.30s", name, label);
        if (!status) status = keep_row(bench, group, row, value, summary);
    }
    return status;
}

/* What is run: a trace on a server, and what of it is varied. */
struct serve_run {
    const struct load_target *target;
    const struct trace *trace;
    const char *name;
    int n_clients; /* 0: at the trace's times */
    enum load_group group;
    double value;
};

static enum status run_trace(struct serve_bench *bench, const struct serve_run *run) {
    struct outcomes outcomes;
    int n_failed = 0;
    bench->replay.n_clients = run->n_clients;
    bench->replay.seed++;
    enum status status = outcomes_init(&outcomes, run->trace);
    if (status) status_fail(&bench->note, status, "no memory for %d requests", run->trace->n_requests);
    if (!status) status = load_replay_run(run->target, &bench->replay, &outcomes, &n_failed, &bench->note);
    if (n_failed && !bench->n_failed) bench->failure = bench->note;
    bench->n_failed += n_failed;
    json_t *result = status ? NULL : outcomes_json(&outcomes, !bench->report.options->summary);
    outcomes_deinit(&outcomes);
    if (status) return status;
    if (!result || json_object_set_new(bench->results, run->name, result))
        return status_fail(&bench->note, STATUS_NOMEM, "no memory for results");
    bench_report_progress(&bench->report, (double)++bench->n_done / bench->n_planned);
    return keep_rows(bench, run->group, run->name, run->value, result);
}

static bool has_time(struct serve_bench *bench) {
    bool is_in_time =
        bench->n_done == 0 || (double)(clock_now_ns() - bench->start_ns) / 1e9 < bench->report.options->budget;
    bench->n_left_out += !is_in_time;
    return is_in_time;
}

/* ---- one thing varied ---- */

/* requests: [n] of middle size, all there at once. */
static struct trace many_alike(struct trace_request *requests, int n) {
    for (int i = 0; i < n; i++)
        requests[i] = (struct trace_request){.after = -1, .n_own = 64, .n_prompt = 64, .n_output = 48};
    return (struct trace){.name = "alike", .requests = requests, .n_requests = n};
}

static enum status run_clients(struct serve_bench *bench) {
    struct trace_request requests[2 * SWEEP_CLIENTS];
    enum status status = STATUS_OK;
    for (int i = 0; i < N_CLIENTS && !status; i++) {
        struct trace trace = many_alike(requests, 2 * clients[i]);
        char name[40];
        if (!has_time(bench)) continue;
        snprintf(name, sizeof name, "%d client%s", clients[i], clients[i] == 1 ? "" : "s");
        status = run_trace(bench, &(struct serve_run){&bench->report.target, &trace, name, clients[i],
                                                      LOAD_GROUP_CLIENTS, clients[i]});
    }
    return status;
}

/* What is tried of an option, the usual value first. */
static int sweep_values(enum load_group group, long values[MAX_VALUES]) {
    static const long at_once[] = {16, 1, 4, 64}, chunks[] = {512, 64, 256, 2048, 0};
    int n = 0, n_cores = cpu_n_usable();
    const long *of = group == LOAD_GROUP_AT_ONCE ? at_once : chunks;
    size_t n_of = group == LOAD_GROUP_AT_ONCE ? sizeof at_once / sizeof *at_once : sizeof chunks / sizeof *chunks;
    if (group == LOAD_GROUP_THREADS) {
        for (int cores = n_cores; cores >= 1 && n < MAX_VALUES; cores /= 2) values[n++] = cores;
        return n;
    }
    for (size_t i = 0; i < n_of; i++) values[n++] = of[i];
    return n;
}

/* A server of our own with this value of the option, and the load that shows what it does. */
static enum status run_varied(struct serve_bench *bench, enum load_group group, long value) {
    struct bench_server server;
    struct load_target target;
    struct trace trace = {0};
    struct trace_request requests[2 * MAX_CLIENTS];
    char number[24], name[60];
    struct bench_server_extra extra = {{load_rows_option(group), number}, 2};
    bool has_whales = group == LOAD_GROUP_CHUNK;
    snprintf(number, sizeof number, "%ld", value);
    snprintf(name, sizeof name, "%s %ld", load_rows_option(group), value);
    enum status status = bench_server_start(&server, bench->model, bench->report.options, &extra, &bench->note);
    if (status) return status;
    struct load_target_wishes wishes = {.url = server.url};
    status = load_target_find(&target, &wishes, &bench->note);
    if (!status && has_whales) status = workload_make(&trace, WORKLOAD_interference, target.max_context, &bench->note);
    int n_clients = group == LOAD_GROUP_AT_ONCE ? (int)value : SWEEP_CLIENTS; /* more would be refused */
    struct trace alike = many_alike(requests, 2 * n_clients);
    if (!status)
        status = run_trace(bench, &(struct serve_run){&target, has_whales ? &trace : &alike, name,
                                                      has_whales ? 0 : n_clients, group, (double)value});
    trace_deinit(&trace);
    bench_server_stop(&server);
    return status;
}

static enum status run_sweeps(struct serve_bench *bench) {
    enum status status = STATUS_OK;
    for (int group = 0; group < LOAD_N_GROUPS && bench->model; group++) {
        long values[MAX_VALUES];
        if (!load_rows_option((enum load_group)group)) continue;
        int n = sweep_values((enum load_group)group, values);
        for (int i = 0; i < n && !status; i++)
            if (has_time(bench)) status = run_varied(bench, (enum load_group)group, values[i]);
    }
    return status;
}

static int count_runs(const char *model) {
    int n = N_CLIENTS + WORKLOAD_N_KINDS;
    long values[MAX_VALUES];
    for (int group = 0; group < LOAD_N_GROUPS && model; group++)
        if (load_rows_option((enum load_group)group)) n += sweep_values((enum load_group)group, values);
    return n;
}

/* ---- all of them ---- */

static enum status run_kinds(struct serve_bench *bench) {
    enum status status = STATUS_OK;
    for (int kind = 0; kind < WORKLOAD_N_KINDS && !status; kind++) {
        struct trace trace;
        bool is_serial = kind == WORKLOAD_length || kind == WORKLOAD_prefix || kind == WORKLOAD_unique;
        if (!has_time(bench)) continue;
        status = workload_make(&trace, (enum workload_kind)kind, bench->report.target.max_context, &bench->note);
        if (status) break;
        status =
            run_trace(bench, &(struct serve_run){&bench->report.target, &trace, workload_name((enum workload_kind)kind),
                                                 is_serial ? 1 : 0, LOAD_GROUP_SCENARIO, 0});
        trace_deinit(&trace);
    }
    return status;
}

/* How many tokens a word is, from one answer's usage. */
static enum status calibrate(struct serve_bench *bench) {
    struct trace_request request = {.after = -1, .n_own = 200, .n_prompt = 200, .n_output = 2};
    struct trace trace = {.name = "calibration", .requests = &request, .n_requests = 1};
    struct outcomes outcomes;
    int n_failed = 0;
    enum status status = outcomes_init(&outcomes, &trace);
    if (!status) status = load_replay_run(&bench->report.target, &bench->replay, &outcomes, &n_failed, &bench->note);
    if (!status && n_failed) status = STATUS_PEER;
    if (!status && outcomes.of[0].n_prompt > 400) bench->replay.tokens_per_word = outcomes.of[0].n_prompt / 200.0;
    outcomes_deinit(&outcomes);
    return status;
}

static bool has_words(const struct trace *trace) {
    for (int i = 0; i < trace->n_requests; i++)
        if (!trace->requests[i].ids) return true;
    return false;
}

/* At the trace's own arrivals, or with --clients as fast as those ask. */
static enum status run_file(struct serve_bench *bench, const struct options *options) {
    struct trace trace;
    enum status status = trace_read(&trace, options->trace, &bench->note);
    if (!status && has_words(&trace)) status = calibrate(bench);
    if (!status)
        status =
            run_trace(bench, &(struct serve_run){&bench->report.target, &trace, trace.name[0] ? trace.name : "trace",
                                                 (int)options->clients, LOAD_GROUP_SCENARIO, 0});
    if (status) status_note_prefix(&bench->note, options->trace);
    trace_deinit(&trace);
    return status;
}

/* What was found about the limits of this server; empty after a trace. */
static enum status write_advice(const struct serve_bench *bench, struct str *out) {
    const struct load_row *best = load_rows_best(&bench->rows, LOAD_GROUP_CLIENTS, GAP_MS);
    char rate[32];
    if (!best) return STATUS_OK;
    enum status status = str_append_fmt(
        out,
        best->gap.p95 <= GAP_MS ? "Most tokens with 95 %% of the gaps within %.0f ms: %s at a time (%s tokens/s). "
                                : "At no number of clients that was tried 95 %% of the gaps are within %.0f ms; "
                                  "shortest with %s (%s tokens/s). ",
        GAP_MS, best->name, svg_number(best->new_tok_s, rate));
    if (!status) status = str_append_fmt(out, "Recommended: kvick serve %.200s", bench->model ? bench->model : "MODEL");
    if (!status) status = load_rows_flags(&bench->rows, GAP_MS, out);
    return status;
}

static enum status run_all(struct serve_bench *bench) {
    const struct options *options = bench->report.options;
    enum status status = print(bench, NULL);
    if (!status && options->trace) return run_file(bench, options);
    if (!status) status = calibrate(bench);
    if (!status) status = run_clients(bench);
    if (!status) status = run_kinds(bench);
    return status ? status : run_sweeps(bench);
}

static int append(const char *bytes, size_t n_bytes, void *text) {
    return str_append(text, bytes, n_bytes) ? -1 : 0;
}

static enum status write_page(struct serve_bench *bench, const char *advice) {
    const struct bench_report *report = &bench->report;
    struct load_page_about about = {.model = report->target.model,
                                    .server = report->server_name,
                                    .machine = report->machine[0] ? report->machine : NULL,
                                    .command = report->command,
                                    .advice = advice[0] ? advice : NULL};
    struct str page;
    str_init(&page, BENCH_REPORT_MAX_BYTES);
    enum status status = load_page_html(&bench->rows, &about, &page);
    if (status) status_fail(&bench->note, status, "the page has more than %zu bytes", BENCH_REPORT_MAX_BYTES);
    if (!status) status = bench_report_write(report, ".html", &page, &bench->note);
    str_deinit(&page);
    return status;
}

static enum status write_results(struct serve_bench *bench) {
    struct str text;
    str_init(&text, BENCH_REPORT_MAX_BYTES);
    enum status status = STATUS_OK;
    if (json_dump_callback(bench->results, append, &text, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) ||
        str_append_text(&text, "\n"))
        status = status_fail(&bench->note, STATUS_LIMIT, "the results have more than %zu bytes; --summary has less",
                             BENCH_REPORT_MAX_BYTES);
    if (!status) status = bench_report_write(&bench->report, ".json", &text, &bench->note);
    if (!status && bench->report.options->json) fputs(text.ptr, stdout);
    str_deinit(&text);
    return status;
}

/* Files, and the last words. */
static enum status conclude(struct serve_bench *bench) {
    struct str advice;
    str_init(&advice, MAX_ADVICE_BYTES);
    enum status status = write_results(bench);
    if (!status && write_advice(bench, &advice))
        status = status_fail(&bench->note, STATUS_NOMEM, "no memory for advice");
    if (!status) status = write_page(bench, advice.ptr);
    if (!status && !bench->report.options->json) {
        if (bench->n_left_out)
            printf("%d runs were left out: --budget %g was used up\n", bench->n_left_out,
                   bench->report.options->budget);
        if (advice.n_bytes) printf("%s\n", advice.ptr);
        printf("%s.html has the report, %s.json the data\n", bench->report.prefix, bench->report.prefix);
    }
    str_deinit(&advice);
    return status;
}

int bench_serve(const struct options *options, const char *model) {
    struct serve_bench bench = {.model = model, .replay = {.scale = 1, .tokens_per_word = 1, .timeout_ms = TIMEOUT_MS}};
    int exit_code = bench_report_check("serve", options, model);
    if (exit_code) return exit_code;
    if (options->clients < 0 || options->clients > LOAD_REPLAY_MAX_CLIENTS)
        return cmd_usage("bench", "--clients: %ld is not within 0..%d", options->clients, LOAD_REPLAY_MAX_CLIENTS);
    if (options->clients && !options->trace) return cmd_usage("bench", "--clients goes with --trace");
    enum status status = bench_report_open(&bench.report, "serve", options, model, NULL, &bench.note);
    if (status) return cmd_fail(model ? model : options->url, status, &bench.note);
    bench.replay.seed = (uint64_t)time(NULL) << 16; /* other texts each time: the server may remember */
    bench.start_ns = clock_now_ns();
    bench.n_planned = options->trace ? 1 : count_runs(model);
    bench.results = json_object();
    status = bench.results ? run_all(&bench) : status_fail(&bench.note, STATUS_NOMEM, "no memory");
    bench_report_close(&bench.report);
    if (!status) status = conclude(&bench);
    json_decref(bench.results);
    if (status) return cmd_fail(bench.report.server_name, status, &bench.note);
    if (bench.n_failed)
        fprintf(stderr, "kvick: %d requests failed; the first: %s\n", bench.n_failed, bench.failure.text);
    return bench.n_failed ? CMD_EXIT_FAILURE : 0;
}
