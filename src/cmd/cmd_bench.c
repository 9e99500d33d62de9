#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/cpu.h"
#include "bench/speed.h"
#include "cmd/bench_controls.h"
#include "cmd/bench_kernels.h"
#include "cmd/bench_phases.h"
#include "cmd/bench_serve.h"
#include "cmd/bench_start.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "planner/hw_profile.h"

#define MAX_TOKENS (1 << 24)
#define MAX_STREAMS 1024
#define MAX_ROUNDS 10000

struct bench {
    const struct options *options;
    struct speed_plan plan;
    struct cmd_engine model;
    int n_threads;
    struct thread_pool *pool;
    struct kernel_table kernels;
    struct hw_peak peak;
    double read_gb_s;
    struct speed_rates rates;
    struct status_note note;
};

/* A share of a limit; NAN where none can be given. */
struct shares {
    double prefill_peak, decode_bandwidth;
    const char *why_none; /* NULL: they stand */
};

/* ---- measuring ---- */

static enum status measure_peak(struct bench *bench) {
    struct hw_peak peak;
    enum status status = hw_profile_int8_peak(bench->pool, &bench->kernels, HW_PROFILE_PEAK_NS, &peak);
    if (status) return status_fail(&bench->note, status, "no memory to measure the machine with");
    bench->peak = hw_profile_better_peak(bench->peak, peak);
    return STATUS_OK;
}

static enum status measure_read(struct bench *bench) {
    enum status status = hw_profile_read_gb_s(bench->pool, HW_PROFILE_READ_BYTES, &bench->read_gb_s);
    return status ? status_fail(&bench->note, status, "no memory for %u bytes to read", HW_PROFILE_READ_BYTES) : status;
}

static enum status measure(struct bench *bench) {
    enum status status = thread_pool_create(&bench->pool, bench->n_threads);
    if (status) return status_fail(&bench->note, status, "cannot start %d threads", bench->n_threads);
    status = measure_read(bench);
    if (!status) status = measure_peak(bench);
    if (!status) status = speed_measure(bench->model.engine, &bench->plan, &bench->rates, &bench->note);
    return status ? status : measure_peak(bench);
}

/* ---- shares ---- */

/* Of what a step reads: all tensors, but of an embedding that is no output layer only single rows. */
static double weight_bytes(const struct gguf *gguf) {
    double n_bytes = 0;
    bool has_output = gguf_tensor_find(gguf, "output.weight") != NULL;
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) n_bytes += (double)gguf_tensor_at(gguf, i)->n_bytes;
    const struct gguf_tensor *embed = gguf_tensor_find(gguf, "token_embd.weight");
    return has_output && embed ? n_bytes - (double)embed->n_bytes : n_bytes;
}

static struct shares shares_of(const struct bench *bench) {
    const struct speed_plan *plan = &bench->plan;
    const struct model_config *config = engine_model(bench->model.engine);
    struct shares shares = {NAN, NAN, NULL};
    double prefill_s = plan->n_prefill / bench->rates.prefill_tok_s,
           steps_s = bench->rates.decode_tok_s / plan->n_streams;
    double prefill_gops = 2e-9 * speed_prefill_macs(config, plan->n_prefill) / prefill_s;
    double kv_bytes = speed_kv_bytes(config, plan, bench->model.options.kv_dtype);
    if (hw_profile_is_disturbed(&bench->peak))
        shares.why_none = "something else runs on this machine";
    else if (prefill_gops > bench->peak.gops)
        shares.why_none = "the model ran faster than the measured peak";
    if (shares.why_none) return shares;
    shares.prefill_peak = prefill_gops / bench->peak.gops;
    if (plan->n_decode)
        shares.decode_bandwidth =
            steps_s * (weight_bytes(bench->model.gguf) + plan->n_streams * kv_bytes) * 1e-9 / bench->read_gb_s;
    return shares;
}

/* ---- result ---- */

static json_t *number_or_null(double value) {
    return isfinite(value) && value >= 0 ? json_real(value) : json_null();
}

static enum status print_json(const struct bench *bench, const struct shares *shares) {
    double decode = bench->plan.n_decode ? bench->rates.decode_tok_s : NAN;
    json_t *root = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:i}", "prefill_tok_s", number_or_null(bench->rates.prefill_tok_s),
        "decode_tok_s", number_or_null(decode), "int8_peak_gops", number_or_null(bench->peak.gops), "read_gb_s",
        number_or_null(bench->read_gb_s), "prefill_peak_share", number_or_null(shares->prefill_peak),
        "decode_bandwidth_share", number_or_null(shares->decode_bandwidth), "is_disturbed", shares->why_none != NULL,
        "undisturbed_gops", number_or_null(bench->peak.undisturbed_gops), "threads", bench->n_threads);
    if (!root) return STATUS_NOMEM;
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(root);
    return STATUS_OK;
}

static void print_share(const char *of, double share) {
    if (isfinite(share))
        printf("   %.1f %% of %s\n", 100 * share, of);
    else
        putchar('\n');
}

static void print_table(const struct bench *bench, const struct shares *shares) {
    const struct speed_plan *plan = &bench->plan;
    char what[64];
    printf("%d threads, %s kernels, medians of %d rounds\n", bench->n_threads, bench->kernels.tier, plan->n_rounds);
    snprintf(what, sizeof what, "prefill, %d tokens", plan->n_prefill);
    printf("%-28s %10.1f tok/s", what, bench->rates.prefill_tok_s);
    print_share("int8 peak", shares->prefill_peak);
    if (plan->n_decode) {
        snprintf(what, sizeof what, "decode, %d stream%s", plan->n_streams, plan->n_streams == 1 ? "" : "s");
        printf("%-28s %10.1f tok/s", what, bench->rates.decode_tok_s);
        print_share("memory bandwidth", shares->decode_bandwidth);
    }
    printf("%-28s %10.1f GOPS%s\n", "int8 peak", bench->peak.gops,
           bench->peak.has_cycles ? "" : "    (cycles cannot be counted here)");
    printf("%-28s %10.1f GB/s\n", "memory read", bench->read_gb_s);
    if (shares->why_none)
        printf("no shares: the machine is disturbed: %s (int8 peak %.0f GOPS, undisturbed %.0f)\n", shares->why_none,
               bench->peak.gops, bench->peak.undisturbed_gops);
}

/* ---- the command ---- */

static enum status read_count(const char *name, long value, long min, long max, int *out, struct status_note *note) {
    if (value < min || value > max)
        return status_fail(note, STATUS_INVALID, "--%s: %ld is not within %ld..%ld", name, value, min, max);
    *out = (int)value;
    return STATUS_OK;
}

static enum status read_plan(const struct options *options, struct speed_plan *plan, struct status_note *note) {
    enum status status = read_count("prefill", options->prefill, 1, MAX_TOKENS, &plan->n_prefill, note);
    if (!status) status = read_count("decode", options->decode, 0, MAX_TOKENS, &plan->n_decode, note);
    if (!status) status = read_count("streams", options->streams, 1, MAX_STREAMS, &plan->n_streams, note);
    if (!status) status = read_count("rounds", options->rounds, 1, MAX_ROUNDS, &plan->n_rounds, note);
    return status;
}

/* What the engine made of the options; it has checked them. */
static void resolve(struct bench *bench) {
    const struct options *options = bench->options;
    unsigned tiers = cpu_detect();
    if (options->isa && cpu_mask(tiers, options->isa, &tiers, NULL)) BUG("a tier that the engine took is unknown");
    kernel_table_choose(&bench->kernels, tiers);
    bench->n_threads = options->threads ? (int)options->threads : cpu_n_usable();
}

static int run_speed(struct bench *bench, const char *model) {
    enum status status = read_plan(bench->options, &bench->plan, &bench->note);
    if (status) return cmd_usage("bench", "%s", bench->note.text);
    struct cmd_engine_needs needs = {.min_context = speed_context_tokens(&bench->plan),
                                     .max_sequences = bench->plan.n_streams};
    status = cmd_engine_open(&bench->model, model, bench->options, &needs, &bench->note);
    if (status) return cmd_fail(NULL, status, &bench->note);
    resolve(bench);
    status = measure(bench);
    if (status) return cmd_fail(bench->model.path, status, &bench->note);
    struct shares shares = shares_of(bench);
    if (bench->options->json) {
        status = print_json(bench, &shares);
        return status ? cmd_fail(NULL, status, NULL) : 0;
    }
    print_table(bench, &shares);
    return 0;
}

/* Measurements that are made over HTTP, by a MODEL or --url. */
static int run_over_http(const struct options *options, int n_words, const char **words) {
    if (n_words > 2) return cmd_usage("bench", "one MODEL or --url is needed, %d words given", n_words - 1);
    const char *model = n_words == 2 ? words[1] : NULL;
    if (strcmp(words[0], "serve") == 0) return bench_serve(options, model);
    return options->controls ? bench_controls(options, model) : bench_phases(options, model);
}

int cmd_bench(const struct options *options, int n_words, const char **words) {
    const char *what = n_words > 0 ? words[0] : "";
    if (strcmp(what, "phases") == 0 || strcmp(what, "serve") == 0) return run_over_http(options, n_words, words);
    if (strcmp(what, "kernels") == 0)
        return n_words == 1 ? bench_kernels(options) : cmd_usage("bench", "'kernels' takes no MODEL");
    if (strcmp(what, "speed") != 0 && strcmp(what, "start") != 0)
        return cmd_usage("bench", "'%s' is not a measurement (known: phases, serve, speed, start, kernels)", what);
    if (n_words != 2) return cmd_usage("bench", "one MODEL is needed, %d given", n_words - 1);
    if (strcmp(what, "start") == 0) return bench_start(options, words[1]);
    struct bench bench = {.options = options};
    int exit_code = run_speed(&bench, words[1]);
    if (bench.pool) thread_pool_destroy(&bench.pool);
    cmd_engine_close(&bench.model);
    return exit_code;
}
