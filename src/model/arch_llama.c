#include "model/arch.h"

/* Pre-norm blocks, SwiGLU, rotary pairs (2i, 2i+1): GGUF's llama rows are permuted for them. Mistral's files are of
 * this kind; the early ones had a window in every layer.   Source: 2302.13971, 2310.06825. */

static enum status read_config(struct model_config *config, const struct gguf *gguf, struct status_note *note) {
    int n_experts, window;
    enum status status = model_config_int(config, gguf, "expert_count", 0, 1 << 16, 0, &n_experts, note);
    if (status) return status;
    if (n_experts)
        return status_fail(note, STATUS_FORMAT, "key %s.expert_count is %d: mixtures of experts are not supported",
                           config->arch, n_experts);
    status = model_config_int(config, gguf, "attention.sliding_window", 0, 1 << 24, 0, &window, note);
    for (int i = 0; i < config->n_layers && !status; i++) config->layers[i].window = window;
    return status;
}

const struct arch arch_llama = {.name = "llama", .read_config = read_config, .run_layer = arch_run_pre_norm_layer};
