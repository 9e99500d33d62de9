#include "cmd/bench_serve.h"

#include <stdio.h>
#include <time.h>

#include <jansson.h>

#include "base/clock.h"
#include "bench/load_replay.h"
#include "bench/svg.h"
#include "bench/workload.h"
#include "cmd/bench_report.h"
#include "cmd/cmd.h"

#define TIMEOUT_MS 600000
#define GAP_MS 50.0 /* what a reader should wait for a token at most: serve's own --target-itl-ms */
#define N_SWEEP 4

struct serve_bench {
    struct bench_report report;
    struct load_replay_options replay;
    int64_t start_ns;
    int n_done, n_planned, n_failed, n_left_out;
    int best_clients; /* of the sweep; 0: none keeps the gaps within GAP_MS */
    double best_tok_s;
    json_t *results;
    struct status_note note, failure;
};

static const int sweep[N_SWEEP] = {1, 4, 8, 16};

/* ---- one scenario ---- */

static double figure(const json_t *summary, const char *distribution, const char *name) {
    const json_t *value = json_object_get(json_object_get(summary, distribution), name);
    return json_is_number(value) ? json_number_value(value) : -1;
}

static const char *ms(const json_t *summary, const char *distribution, const char *name, char out[32]) {
    double value = figure(summary, distribution, name);
    if (value < 0) snprintf(out, 32, "-");
    return value < 0 ? out : svg_ms(value, out);
}

static void print_head(void) {
    printf("%-26s %4s %4s | %-36s | %-36s | %8s\n%-26s %4s %4s | %8s %8s %8s %8s  | %8s %8s %8s %8s  |\n", "", "done",
           "ref.", "first token", "between tokens", "tok/s", "", "", "", "p50", "p95", "p99", "max", "p50", "p95",
           "p99", "max");
}

static void print_row(const char *name, const json_t *summary) {
    char t[8][32], rate[32];
    double tok_s = json_number_value(json_object_get(summary, "new_tok_s"));
    printf("%-26.26s %4d %4d | %8s %8s %8s %8s  | %8s %8s %8s %8s  | %8s\n", name,
           (int)json_integer_value(json_object_get(summary, "finished")),
           (int)json_integer_value(json_object_get(summary, "refused")), ms(summary, "ttft_ms", "p50", t[0]),
           ms(summary, "ttft_ms", "p95", t[1]), ms(summary, "ttft_ms", "p99", t[2]),
           ms(summary, "ttft_ms", "max", t[3]), ms(summary, "gap_ms", "p50", t[4]), ms(summary, "gap_ms", "p95", t[5]),
           ms(summary, "gap_ms", "p99", t[6]), ms(summary, "gap_ms", "max", t[7]), svg_number(tok_s, rate));
    fflush(stdout);
}

static void print_result(const struct serve_bench *bench, const char *name, const json_t *result) {
    const char *label;
    json_t *summary;
    if (bench->report.options->json) return;
    json_object_foreach(json_object_get(result, "labels"), label, summary) {
        char row[80];
        snprintf(row, sizeof row, "%.40s, %.30s", name, label);
        print_row(row, summary);
    }
    if (json_object_size(json_object_get(result, "labels")) == 0) print_row(name, json_object_get(result, "summary"));
}

/* Runs the trace; the result is kept and shown. */
static enum status run_trace(struct serve_bench *bench, const struct trace *trace, const char *name, int n_clients,
                             const json_t **out_result) {
    struct outcomes outcomes;
    int n_failed = 0;
    bench->replay.n_clients = n_clients;
    bench->replay.seed++;
    enum status status = outcomes_init(&outcomes, trace);
    if (status) status_fail(&bench->note, status, "no memory for %d requests", trace->n_requests);
    if (!status) status = load_replay_run(&bench->report.target, &bench->replay, &outcomes, &n_failed, &bench->note);
    if (n_failed && !bench->n_failed) bench->failure = bench->note;
    bench->n_failed += n_failed;
    json_t *result = status ? NULL : outcomes_json(&outcomes, !bench->report.options->summary);
    outcomes_deinit(&outcomes);
    if (status) return status;
    if (!result || json_object_set_new(bench->results, name, result))
        return status_fail(&bench->note, STATUS_NOMEM, "no memory for results");
    print_result(bench, name, result);
    if (out_result) *out_result = result;
    bench_report_progress(&bench->report, (double)++bench->n_done / bench->n_planned);
    return STATUS_OK;
}

static bool has_time(struct serve_bench *bench) {
    bool is_in_time =
        bench->n_done == 0 || (double)(clock_now_ns() - bench->start_ns) / 1e9 < bench->report.options->budget;
    bench->n_left_out += !is_in_time;
    return is_in_time;
}

/* ---- all of them ---- */

static enum status run_sweep(struct serve_bench *bench) {
    struct trace_request requests[32];
    struct trace trace = {.name = "clients", .requests = requests, .n_requests = 32};
    enum status status = STATUS_OK;
    for (int i = 0; i < N_SWEEP && !status; i++) {
        char name[40];
        const json_t *result = NULL;
        if (!has_time(bench)) continue;
        trace.n_requests = 2 * sweep[i];
        for (int k = 0; k < trace.n_requests; k++)
            requests[k] = (struct trace_request){.after = -1, .n_own = 64, .n_prompt = 64, .n_output = 48};
        snprintf(name, sizeof name, "%d client%s", sweep[i], sweep[i] == 1 ? "" : "s");
        status = run_trace(bench, &trace, name, sweep[i], &result);
        if (status) break;
        const json_t *summary = json_object_get(result, "summary");
        double gap_ms = figure(summary, "gap_ms", "p95"),
               tok_s = json_number_value(json_object_get(summary, "new_tok_s"));
        if (gap_ms < 0 || gap_ms > GAP_MS || tok_s <= bench->best_tok_s) continue;
        bench->best_tok_s = tok_s;
        bench->best_clients = sweep[i];
    }
    return status;
}

static enum status run_kinds(struct serve_bench *bench) {
    enum status status = STATUS_OK;
    for (int kind = 0; kind < WORKLOAD_N_KINDS && !status; kind++) {
        struct trace trace;
        bool is_serial = kind == WORKLOAD_length || kind == WORKLOAD_prefix || kind == WORKLOAD_unique;
        if (!has_time(bench)) continue;
        status = workload_make(&trace, (enum workload_kind)kind, bench->report.target.max_context, &bench->note);
        if (status) break;
        status = run_trace(bench, &trace, workload_name((enum workload_kind)kind), is_serial ? 1 : 0, NULL);
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
        status = run_trace(bench, &trace, trace.name[0] ? trace.name : "trace", (int)options->clients, NULL);
    if (status) status_note_prefix(&bench->note, options->trace);
    trace_deinit(&trace);
    return status;
}

static void print_advice(const struct serve_bench *bench) {
    if (bench->n_left_out)
        printf("%d runs were left out: --budget %g was used up\n", bench->n_left_out, bench->report.options->budget);
    if (bench->best_clients)
        printf(
            "most tokens with 95 %% of the gaps within %.0f ms: %d answers at a time (%.0f tok/s): --max-num-seqs %d\n",
            GAP_MS, bench->best_clients, bench->best_tok_s, bench->best_clients);
    else if (bench->best_tok_s == 0)
        printf("at no number of clients that was tried 95 %% of the gaps are within %.0f ms: --max-num-seqs 1\n",
               GAP_MS);
}

static enum status run_all(struct serve_bench *bench) {
    const struct options *options = bench->report.options;
    if (!options->json) print_head();
    if (options->trace) return run_file(bench, options);
    enum status status = calibrate(bench);
    if (!status) status = run_sweep(bench);
    return status ? status : run_kinds(bench);
}

static int append(const char *bytes, size_t n_bytes, void *text) {
    return str_append(text, bytes, n_bytes) ? -1 : 0;
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

int bench_serve(const struct options *options, const char *model) {
    struct serve_bench bench = {.replay = {.scale = 1, .tokens_per_word = 1, .timeout_ms = TIMEOUT_MS}};
    int exit_code = bench_report_check("serve", options, model);
    if (exit_code) return exit_code;
    if (options->clients < 0 || options->clients > LOAD_REPLAY_MAX_CLIENTS)
        return cmd_usage("bench", "--clients: %ld is not within 0..%d", options->clients, LOAD_REPLAY_MAX_CLIENTS);
    if (options->clients && !options->trace) return cmd_usage("bench", "--clients goes with --trace");
    enum status status = bench_report_open(&bench.report, "serve", options, model, NULL, &bench.note);
    if (status) return cmd_fail(model ? model : options->url, status, &bench.note);
    bench.replay.seed = (uint64_t)time(NULL) << 16; /* other texts each time: the server may remember */
    bench.start_ns = clock_now_ns();
    bench.n_planned = options->trace ? 1 : N_SWEEP + WORKLOAD_N_KINDS;
    bench.results = json_object();
    status = bench.results ? run_all(&bench) : status_fail(&bench.note, STATUS_NOMEM, "no memory");
    bench_report_close(&bench.report);
    if (!status) status = write_results(&bench);
    json_decref(bench.results);
    if (status) return cmd_fail(bench.report.server_name, status, &bench.note);
    if (!options->json && !options->trace) print_advice(&bench);
    if (bench.n_failed)
        fprintf(stderr, "kvick: %d requests failed; the first: %s\n", bench.n_failed, bench.failure.text);
    return bench.n_failed ? CMD_EXIT_FAILURE : 0;
}
