#include "cmd/cmd_trace.h"

#include <stdio.h>

#include "base/mem.h"
#include "cmd/cmd.h"

#define DEFAULT_MODEL "smollm2"
#define MAX_SEQUENCES 4096

/* Whether the words and options make sense; prints the usage and returns its exit status if not, else 0. */
static int check(const char *command, const struct options *options, int n_words) {
    struct status_note note = {0};
    if (n_words < 1 || n_words > 2) return cmd_usage(command, "TRACE.jsonl [MODEL] are needed, %d given", n_words);
    if (options->max_num_seqs < 1 || options->max_num_seqs > MAX_SEQUENCES)
        return cmd_usage(command, "--max-num-seqs: %ld is not within 1..%d", options->max_num_seqs, MAX_SEQUENCES);
    return cmd_engine_check(options, &note) ? cmd_usage(command, "%s", note.text) : 0;
}

int cmd_trace_run(const char *command, cmd_trace_open_fn *open_model, cmd_trace_fn *run, const struct options *options,
                  int n_words, const char **words) {
    struct status_note note = {0};
    struct cmd_trace opened = {.scale = 1};
    struct cmd_engine model = {0};
    int exit_code = check(command, options, n_words);
    if (exit_code) return exit_code;
    enum status status = trace_read(&opened.trace, words[0], &note);
    if (status) {
        status_note_prefix(&note, words[0]);
        return cmd_fail(NULL, status, &note);
    }
    struct cmd_engine_needs needs = {
        .min_context = opened.trace.max_context, .max_sequences = (int)options->max_num_seqs, .is_serving = true};
    status = open_model(&model, n_words > 1 ? words[1] : DEFAULT_MODEL, options, &needs, &note);
    if (!status) {
        status = run(options, &opened, &model, &note);
        cmd_engine_close(&model);
    }
    mem_free(opened.work);
    mem_free(opened.solo_ns);
    trace_deinit(&opened.trace);
    return status ? cmd_fail(NULL, status, &note) : 0;
}

struct simulate_options cmd_trace_simulation(const struct engine_options *options, const struct cost_model *cost,
                                             int n_vocab) {
    struct simulate_options how = {.step = {.is_unbounded = !options->target_itl_ns && !options->max_step_ns,
                                            .target_itl_ns = options->target_itl_ns,
                                            .max_step_ns = options->max_step_ns,
                                            .batch_step_ns = engine_batch_step_ns(options)},
                                   .policy = options->policy,
                                   .admission = options->admission,
                                   .max_chunk = options->max_chunk,
                                   .block_tokens = options->block_tokens,
                                   .max_context = options->max_context,
                                   .max_sequences = options->max_sequences,
                                   .kv_tokens = options->kv_tokens,
                                   .n_vocab = n_vocab,
                                   .has_prefix_cache = options->has_prefix_cache};
    cost_model_fill(cost, &how.cost);
    return how;
}

/* The capacity: all requests are there at once, and are served as they came. */
static enum status measure_busy(struct cmd_trace *opened, const struct simulate_options *how,
                                struct status_note *note) {
    struct simulate_options saturated = *how;
    struct outcomes outcomes;
    opened->busy_ns = work_sum_ns(&opened->trace, opened->work);
    if (!work_has_bound(&opened->trace)) return STATUS_OK;
    saturated.policy = POLICY_FCFS;
    saturated.admission = (struct admission_limits){0};
    if (saturated.max_sequences < opened->trace.n_requests) saturated.max_sequences = opened->trace.n_requests;
    enum status status = outcomes_init(&outcomes, &opened->trace);
    if (status) status_fail(note, status, "no memory for %d requests", opened->trace.n_requests);
    if (!status) status = simulate_run(&saturated, 0, NULL, &outcomes, note);
    if (!status) opened->busy_ns = outcomes.totals.wall_ms * 1e6;
    outcomes_deinit(&outcomes);
    return status;
}

enum status cmd_trace_weigh(struct cmd_trace *opened, const struct simulate_options *how, enum cost_model_source source,
                            struct status_note *note) {
    static const char *const sources[] = {
        [COST_MODEL_GUESSED] = "guessed", [COST_MODEL_READ] = "read", [COST_MODEL_MEASURED] = "measured"};
    size_t n = (size_t)opened->trace.n_requests;
    opened->cost_source = sources[source];
    opened->work = mem_alloc_array(n, sizeof *opened->work);
    opened->solo_ns = mem_alloc_array(n, sizeof *opened->solo_ns);
    if (!opened->work || !opened->solo_ns) return status_fail(note, STATUS_NOMEM, "no memory for %zu requests", n);
    work_of_trace(&opened->trace, &how->cost, how->max_chunk, how->has_prefix_cache, opened->work);
    for (size_t i = 0; i < n; i++) opened->solo_ns[i] = opened->work[i].solo_ns;
    enum status status = measure_busy(opened, how, note);
    if (status) return status;
    opened->scale = work_scale(&opened->trace, opened->busy_ns);
    status = work_bound(&opened->trace, opened->work, opened->scale, opened->busy_ns, &opened->n_bound);
    return status ? status_fail(note, status, "no memory for %zu requests", n) : STATUS_OK;
}

enum status cmd_trace_print(const struct cmd_trace *opened, const struct outcomes *outcomes, bool with_requests) {
    json_t *json = outcomes_json(outcomes, with_requests);
    json_t *cost =
        json_pack("{s:s, s:f, s:f, s:f, s:o}", "source", opened->cost_source, "work_ms",
                  work_sum_ns(&opened->trace, opened->work) / 1e6, "busy_ms", opened->busy_ns / 1e6, "scale",
                  opened->scale, "bound_in_time", opened->n_bound >= 0 ? json_real(opened->n_bound) : json_null());
    if (!json || !cost || json_object_set_new(json, "cost", cost)) {
        json_decref(json);
        return STATUS_NOMEM;
    }
    json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(json);
    return STATUS_OK;
}
