#include "model/arch.h"

/* Llama's layer with rotary halves and norms of q and k per head.   Source: 2505.09388. */

static enum status read_config(struct model_config *config, const struct gguf *gguf, struct status_note *note) {
    config->ropes[0].is_halves = true;
    return model_config_refuse_window(config, gguf, note);
}

const struct arch arch_qwen3 = {
    .name = "qwen3", .extras = MODEL_WEIGHTS_QK_NORM, .read_config = read_config, .run_layer = arch_run_pre_norm_layer};
