#include "cmd/plan_verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "bench/speed.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "cmd/plan_sheet.h"
#include "engine/cost_setup.h"

#define MIB 1048576.0
#define MAX_MEMORY_ERROR 0.02
#define MAX_SESSIONS 64
#define N_DECODE 48
#define N_ROUNDS 3
#define STILL_NS INT64_C(1000000000) /* so long without a change */
#define WAIT_NS INT64_C(60000000000)
#define POLL_NS 50000000

/* Lengths that cost_model's probes do not have. */
static const int prompts[] = {300, 1700, 5000};
#define N_PROMPTS ((int)(sizeof prompts / sizeof prompts[0]))

static struct options as_serve(const struct options *options, int n_tokens) {
    struct options served = *options;
    served.kv_cache_dtype = options->kv;
    served.context = n_tokens;
    served.kv_cache_memory_bytes = 0;
    return served;
}

static struct cmd_engine_needs needs_of(const struct options *options) {
    int n = options->sessions < MAX_SESSIONS ? (int)options->sessions : MAX_SESSIONS;
    return (struct cmd_engine_needs){.max_sequences = n, .is_serving = true};
}

bool plan_verify_find_cost(const struct options *options, struct gguf *gguf, struct step_cost *out_cost) {
    struct options served = as_serve(options, 0);
    struct cmd_engine_needs needs = {.max_sequences = 1, .is_serving = true};
    struct cmd_engine seen;
    struct model_config config;
    struct kernel_table kernels;
    struct cost_model cost;
    if (cmd_engine_check(&served, NULL) || cmd_engine_look(&seen, gguf, &served, &needs, NULL) ||
        forward_read_config(&config, gguf, NULL))
        return false;
    kernel_table_choose(&kernels, seen.options.tiers);
    cost_setup_init(&cost, &seen.options, &config, &kernels, (size_t)gguf_file_bytes(gguf));
    cost_model_fill(&cost, out_cost);
    return cost.source == COST_MODEL_READ;
}

/* ---- memory ---- */

/* What the system says that this process holds. 0: it does not say. */
static double resident_bytes(void) {
    char line[128];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %lf kB", &kib) == 1) break;
    if (file) fclose(file);
    return kib * 1024;
}

/* Pools are backed and the file's pages given back while nobody asks: waits for the end of both. */
static double wait_until_still(void) {
    int64_t start_ns = clock_now_ns(), still_since_ns = start_ns;
    double bytes = resident_bytes();
    while (clock_now_ns() - still_since_ns < STILL_NS && clock_now_ns() - start_ns < WAIT_NS) {
        struct timespec pause = {.tv_nsec = POLL_NS};
        nanosleep(&pause, NULL);
        double now = resident_bytes();
        if (fabs(now - bytes) < MIB) continue;
        still_since_ns = clock_now_ns();
        bytes = now;
    }
    return bytes;
}

static bool judge(const char *what, double planned, double measured, double max_error, const char *unit) {
    double error = measured > 0 ? fabs(planned - measured) / measured : INFINITY;
    bool is_good = error <= max_error;
    printf("%-34s %12.2f %12.2f %s %6.1f %%  %s\n", what, planned, measured, unit, 100 * error,
           is_good ? "PASS" : "short");
    return is_good;
}

/* ---- times ---- */

static bool judge_speed(struct cmd_engine *opened, int n_prompt, struct status_note *note, enum status *status) {
    struct step_cost cost;
    struct speed_plan plan = {.n_prefill = n_prompt, .n_decode = N_DECODE, .n_streams = 1, .n_rounds = N_ROUNDS};
    struct speed_rates rates;
    struct step_shape shape = {0};
    char what[64];
    *status = speed_measure(opened->engine, &plan, &rates, note);
    if (*status) return false;
    cost_model_fill(engine_cost(opened->engine), &cost);
    double ttft_ms =
        (double)cost_model_ttft_ns(&cost, n_prompt, 0, opened->options.max_chunk, engine_step_limits(opened->engine)) /
        1e6;
    step_cost_add_decode(&cost, &shape, n_prompt + N_DECODE / 2);
    snprintf(what, sizeof what, "first token of %d", n_prompt);
    bool is_good = judge(what, ttft_ms, 1e3 * n_prompt / rates.prefill_tok_s, PLAN_SHEET_MEASURED_SHARE, "ms ");
    snprintf(what, sizeof what, "each token behind %d", n_prompt);
    return judge(what, (double)step_cost_ns(&cost, &shape) / 1e6, 1e3 / rates.decode_tok_s, PLAN_SHEET_MEASURED_SHARE,
                 "ms ") &&
           is_good;
}

static enum status compare(struct cmd_engine *opened, const struct model_sizes *sizes, double before_bytes,
                           bool *out_good, struct status_note *note) {
    const struct capacity *capacity = &opened->capacity;
    enum status status = STATUS_OK;
    double planned = (double)sizes->weight_bytes + (double)capacity->kv_bytes + (double)capacity->activation_bytes +
                     (double)capacity->logit_bytes;
    printf("%-34s %12s %12s\n", "", "planned", "measured");
    *out_good = true;
    if (!engine_cost(opened->engine)) return status_fail(note, STATUS_INVALID, "no folder to keep step costs in");
    for (int i = 0; i < N_PROMPTS && !status; i++) {
        if (prompts[i] + N_DECODE + 1 > opened->options.max_context) break;
        if (!judge_speed(opened, prompts[i], note, &status)) *out_good = false;
    }
    /* Afterwards: pages of a step's arrays are there once a step has used them. */
    double grown = wait_until_still() - before_bytes;
    if (!judge("weights, KV pool, steps", planned / MIB, grown / MIB, MAX_MEMORY_ERROR, "MiB")) *out_good = false;
    return status;
}

int plan_verify_run(const struct options *options, const char *model, const struct model_sizes *sizes, int n_tokens) {
    struct options served = as_serve(options, n_tokens);
    struct cmd_engine_needs needs = needs_of(options);
    struct cmd_engine opened;
    struct status_note note = {0};
    bool is_good = false;
    double before_bytes = resident_bytes();
    enum status status = cmd_engine_open(&opened, model, &served, &needs, &note);
    if (status) return cmd_fail(NULL, status, &note);
    printf("\n%s: loaded with %d sessions of %d tokens\n", model, needs.max_sequences, n_tokens);
    status = compare(&opened, sizes, before_bytes, &is_good, &note);
    cmd_engine_close(&opened);
    if (status) return cmd_fail(model, status, &note);
    return is_good ? 0 : CMD_EXIT_FAILURE;
}
