#include "model/arch.h"

/* Llama's layer with rotary halves and biases on q, k and v.   Source: 2407.10671. */

static enum status read_config(struct model_config *config, const struct gguf *gguf, struct status_note *note) {
    config->ropes[0].is_halves = true;
    return model_config_refuse_window(config, gguf, note);
}

const struct arch arch_qwen2 = {.name = "qwen2",
                                .extras = MODEL_WEIGHTS_QKV_BIAS,
                                .read_config = read_config,
                                .run_layer = arch_run_pre_norm_layer};
