/* activations: the tensors of one step, sized once for the largest step.
 *
 * Thread: engine.   Memory: one buffer of the device, so that no page is rounded up for each tensor. */
#ifndef KVICK_MODEL_ACTIVATIONS_H
#define KVICK_MODEL_ACTIVATIONS_H

#include "model/layer_ops.h"

struct activations {
    int max_rows, max_logit_rows;
    struct tensor_ref hidden;                  /* [max_rows][d_model] the residual stream */
    struct tensor_ref part;                    /* [max_rows][d_model] what a part of a layer adds to it */
    struct tensor_ref q, heads;                /* [max_rows][n_heads * head_dim] */
    struct tensor_ref k, v;                    /* [max_rows][n_kv_heads * head_dim] */
    struct tensor_ref gate;                    /* [max_rows][d_ff] */
    struct tensor_ref angles[MODEL_MAX_ROPES]; /* [max_rows][2 * n_pairs] */
    struct tensor_ref logit_hidden;            /* [max_logit_rows][d_model] */
    struct tensor_ref logit_angles;            /* [max_logit_rows][2 * n_pairs] of the last layer */
    struct tensor_ref logits;                  /* [max_logit_rows][n_vocab] */
};

/* Errors: STATUS_NOMEM. */
WARN_UNUSED enum status activations_init(struct activations *act, struct layer_ops *ops,
                                         const struct model_config *config, int max_rows, int max_logit_rows);

/* The first n_rows rows of a tensor. */
struct tensor_ref activations_rows(struct tensor_ref tensor, int n_rows);

#endif
