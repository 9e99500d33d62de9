#include <math.h>

#include "model/arch.h"

/* Norms before and after each part, q/k norms per head, GELU gates, rotary halves, five windowed layers with a RoPE
 * base of their own to one global layer, embeddings scaled by sqrt(width).   Source: 2503.19786; GGUF stores 1 +
 * weight. */

#define LAYERS_PER_GLOBAL 6
#define DEFAULT_LOCAL_BASE 10000
#define LAYERS_OF_27B 62 /* the one size whose queries are scaled by the width per head */

enum { ROPE_GLOBAL, ROPE_LOCAL };

static enum status read_config(struct model_config *config, const struct gguf *gguf, struct status_note *note) {
    int window;
    double local_base;
    enum status status = model_config_int(config, gguf, "attention.sliding_window", 1, 1 << 24, -1, &window, note);
    if (!status) status = model_config_real(config, gguf, "rope.freq_base_swa", DEFAULT_LOCAL_BASE, &local_base, note);
    if (status) return status;
    if (!(local_base > 1 && local_base < 1e12))
        return status_fail(note, STATUS_FORMAT, "key %s.rope.freq_base_swa is %g", config->arch, local_base);
    config->ropes[ROPE_GLOBAL].is_halves = config->ropes[ROPE_LOCAL].is_halves = true;
    model_config_plain_rope(&config->ropes[ROPE_LOCAL], local_base, config->ropes[ROPE_GLOBAL].n_pairs, NULL);
    for (int i = 0; i < config->n_layers; i++)
        if ((i + 1) % LAYERS_PER_GLOBAL) config->layers[i] = (struct model_layer){ROPE_LOCAL, window};
    config->embed_scale = (float)sqrt((double)config->d_model);
    if (config->n_layers == LAYERS_OF_27B)
        config->query_scale = (float)(1 / sqrt((double)config->d_model / config->n_heads));
    return STATUS_OK;
}

static void run_layer(struct arch_step *step, int layer) {
    const struct layer_weights *weights = &step->weights->layers[layer];
    arch_attention(step, layer);
    arch_add_part(step, &weights->post_attn_norm);
    arch_feed_forward(step, layer, GATE_GELU);
    arch_add_part(step, &weights->post_ffn_norm);
}

const struct arch arch_gemma3 = {.name = "gemma3",
                                 .extras = MODEL_WEIGHTS_QK_NORM | MODEL_WEIGHTS_POST_NORM,
                                 .read_config = read_config,
                                 .run_layer = run_layer};
