/* arch: what one model architecture adds to the common parts: its keys and the order of operations of a layer.
 *
 * arch_<name>.c defines one row; forward.c chooses by general.architecture. */
#ifndef KVICK_MODEL_ARCH_H
#define KVICK_MODEL_ARCH_H

#include "model/activations.h"
#include "model/model_weights.h"

/* Everything a step touches, and how far it is. */
struct arch_step {
    struct layer_ops *ops;
    const struct model_config *config;
    const struct model_weights *weights;
    const struct activations *act;
    const struct model_batch *batch; /* all rows: their K and V are stored in every layer */
    const struct model_batch *kept;  /* those whose logits are wanted; the last layer drops the others */

    struct tensor_ref hidden; /* the residual stream of the rows that are left; n_rows 0: the step is over */
    struct tensor_ref part;   /* what the last part made; n_cols 0: it is in hidden already */
    const struct weight *part_norm;
};

struct arch {
    const char *name; /* general.architecture */
    unsigned extras;  /* enum model_weights_extra */

    /* Own keys, after model_config_read. Errors: STATUS_FORMAT. */
    enum status (*read_config)(struct model_config *config, const struct gguf *gguf, struct status_note *note);

    /* One layer: takes hidden on, stores K and V of every row. */
    void (*run_layer)(struct arch_step *step, int layer);
};

extern const struct arch arch_llama, arch_gemma3, arch_qwen2, arch_qwen3;

/* The pieces that layers share. A part's output waits in step->part until the next reader of hidden adds it. */

/* part = attention(norm(hidden)) * attn_out; K and V stored. In the last layer only the kept rows go on. */
void arch_attention(struct arch_step *step, int layer);

/* part = down(act(gate(norm(hidden))) * up(norm(hidden))) */
void arch_feed_forward(struct arch_step *step, int layer, enum gate_kind kind);

/* hidden += norm(part); norm NULL: hidden += part */
void arch_add_part(struct arch_step *step, const struct weight *norm);

/* What reads norm(hidden) next: it adds the part on the way. */
struct matmul_input arch_input(struct arch_step *step, const struct weight *norm);

/* A whole layer of the common kind: attention, residual, SwiGLU, residual. */
void arch_run_pre_norm_layer(struct arch_step *step, int layer);

#endif
