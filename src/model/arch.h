/* arch: what one model architecture adds to the common parts: its keys and the order of operations of a layer.
 *
 * arch_<name>.c defines one row; forward.c chooses by general.architecture. */
#ifndef KVICK_MODEL_ARCH_H
#define KVICK_MODEL_ARCH_H

#include "model/activations.h"
#include "model/model_weights.h"

/* Everything a step touches. */
struct arch_step {
    struct layer_ops *ops;
    const struct model_config *config;
    const struct model_weights *weights;
    const struct activations *act;
    const struct model_batch *batch;
};

struct arch {
    const char *name; /* general.architecture */
    unsigned extras;  /* enum model_weights_extra */

    /* Own keys, after model_config_read. Errors: STATUS_FORMAT. */
    enum status (*read_config)(struct model_config *config, const struct gguf *gguf, struct status_note *note);

    /* One layer: reads and writes act->hidden, stores K and V of every row. */
    void (*run_layer)(const struct arch_step *step, int layer);
};

extern const struct arch arch_llama, arch_gemma3, arch_qwen2, arch_qwen3;

/* The pieces that layers share. */

/* normed = norm(hidden) */
void arch_norm(const struct arch_step *step, const struct weight *weight);

/* q, k, v = normed times their weights; rotated, q scaled; K and V stored; heads = attention; normed = heads * attn_out
 */
void arch_attention(const struct arch_step *step, int layer);

/* normed = down(act(gate(normed)) * up(normed)) */
void arch_feed_forward(const struct arch_step *step, int layer, enum gate_kind kind);

/* normed = norm(normed), for architectures that norm what a part adds */
void arch_post_norm(const struct arch_step *step, const struct weight *weight);

/* A whole layer of the common kind: norm, attention, residual, norm, SwiGLU, residual. */
void arch_run_pre_norm_layer(const struct arch_step *step, int layer);

/* hidden += normed */
void arch_add_residual(const struct arch_step *step);

#endif
