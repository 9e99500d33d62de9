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
    return cmd_trace_run("replay", cmd_engine_open, replay, options, n_words, words);
}
