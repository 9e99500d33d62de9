#include "bench/simulate.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "cmd/cmd_trace.h"
#include "engine/cost_setup.h"
#include "weights/gguf.h"

static int read_n_vocab(const struct gguf *gguf) {
    const struct gguf_tensor *embed = gguf_tensor_find(gguf, "token_embd.weight");
    return embed && embed->n_dims == 2 && embed->dims[1] <= INT32_MAX ? (int)embed->dims[1] : 0;
}

static enum status simulate(const struct options *options, struct cmd_trace *opened, const struct cmd_engine *model,
                            struct status_note *note) {
    struct outcomes outcomes;
    struct model_config config;
    struct kernel_table kernels;
    struct cost_model cost;
    enum status status = forward_read_config(&config, model->gguf, note);
    config.n_vocab = read_n_vocab(model->gguf);
    if (!status && config.n_vocab == 0) status = status_fail(note, STATUS_FORMAT, "token_embd.weight is missing");
    if (!status) status = trace_check_ids(&opened->trace, config.n_vocab, note);
    if (status) return status;
    kernel_table_choose(&kernels, model->options.tiers);
    cost_setup_init(&cost, &model->options, &config, &kernels, gguf_file_bytes(model->gguf));
    struct simulate_options how = cmd_trace_simulation(&model->options, &cost, config.n_vocab);
    status = cmd_trace_weigh(opened, &how, cost.source, note);
    if (status) return status;
    if (outcomes_init(&outcomes, &opened->trace))
        status = status_fail(note, STATUS_NOMEM, "no memory for %d requests", opened->trace.n_requests);
    if (!status) status = simulate_run(&how, opened->scale, opened->solo_ns, &outcomes, note);
    if (!status) status = cmd_trace_print(opened, &outcomes, !options->summary);
    outcomes_deinit(&outcomes);
    return status;
}

int cmd_sim(const struct options *options, int n_words, const char **words) {
    return cmd_trace_run("sim", cmd_engine_open_file, simulate, options, n_words, words);
}
