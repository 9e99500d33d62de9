#include "bench/replay.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "cmd/cmd_trace.h"

/* On an engine that is there. */
static enum status replay(const struct options *options, struct cmd_trace *opened, const struct cmd_engine *model,
                          struct status_note *note) {
    struct outcomes outcomes;
    const struct cost_model *costs = engine_cost(model->engine);
    int n_vocab = engine_model(model->engine)->n_vocab;
    enum status status = trace_check_ids(&opened->trace, n_vocab, note);
    struct simulate_options how = cmd_trace_simulation(&model->options, costs, n_vocab);
    if (!status) status = cmd_trace_weigh(opened, &how, costs->source, note);
    if (status) return status;
    if (outcomes_init(&outcomes, &opened->trace))
        status = status_fail(note, STATUS_NOMEM, "no memory for %d requests", opened->trace.n_requests);
    if (!status) status = replay_run(model->engine, opened->scale, opened->solo_ns, &outcomes, note);
    if (!status) status = cmd_trace_print(opened, &outcomes, !options->summary);
    outcomes_deinit(&outcomes);
    return status;
}

int cmd_replay(const struct options *options, int n_words, const char **words) {
    struct status_note note = {0};
    struct cmd_trace opened;
    struct cmd_engine model = {0};
    int exit_code = cmd_trace_check("replay", options, n_words);
    if (exit_code) return exit_code;
    enum status status = cmd_trace_open(&opened, words[0], &note);
    if (!status) {
        struct cmd_engine_needs needs = {
            .min_context = opened.trace.max_context, .max_sequences = (int)options->max_num_seqs, .is_serving = true};
        status = cmd_engine_open(&model, n_words > 1 ? words[1] : CMD_TRACE_DEFAULT_MODEL, options, &needs, &note);
        if (!status) {
            status = replay(options, &opened, &model, &note);
            cmd_engine_close(&model);
        }
        cmd_trace_close(&opened);
    }
    return status ? cmd_fail(NULL, status, &note) : 0;
}
