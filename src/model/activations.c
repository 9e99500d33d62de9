#include "model/activations.h"

#define ALIGN_BYTES 64u

struct wanted {
    struct tensor_ref *tensor;
    int n_rows, n_cols;
};

enum status activations_init(struct activations *act, struct layer_ops *ops, const struct model_config *config,
                             int max_rows, int max_logit_rows) {
    *act = (struct activations){.max_rows = max_rows, .max_logit_rows = max_logit_rows};
    int q_dim = config->n_heads * config->head_dim, kv_dim = config->n_kv_heads * config->head_dim;
    const struct model_layer *last = &config->layers[config->n_layers - 1];
    const struct wanted wanted[] = {
        {&act->hidden, max_rows, config->d_model},
        {&act->part, max_rows, config->d_model},
        {&act->q, max_rows, q_dim},
        {&act->heads, max_rows, q_dim},
        {&act->k, max_rows, kv_dim},
        {&act->v, max_rows, kv_dim},
        {&act->gate, max_rows, config->d_ff},
        {&act->angles[0], max_rows, 2 * config->ropes[0].n_pairs},
        {&act->angles[1], max_rows, 2 * config->ropes[1].n_pairs},
        {&act->logit_hidden, max_logit_rows, config->d_model},
        {&act->logit_angles, max_logit_rows, 2 * config->ropes[last->rope_idx].n_pairs},
        {&act->logits, max_logit_rows, config->n_vocab},
    };
    size_t n_bytes = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].tensor = (struct tensor_ref){0, n_bytes, wanted[i].n_rows, wanted[i].n_cols};
        size_t own_bytes = (size_t)wanted[i].n_rows * (size_t)wanted[i].n_cols * sizeof(float);
        n_bytes += (own_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
    int buffer = ops->buffer_create(ops, n_bytes);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) wanted[i].tensor->buffer = buffer;
    return buffer < 0 ? STATUS_NOMEM : STATUS_OK;
}

struct tensor_ref activations_rows(struct tensor_ref tensor, int n_rows) {
    REQUIRE(n_rows <= tensor.n_rows);
    tensor.n_rows = n_rows;
    return tensor;
}
