/* model_weights: finds a model's tensors by name, checks their shapes, and packs them once.
 *
 * Thread: engine while loading, any afterwards.   Memory: one pool for all packed bytes; once packed nothing is read
 * from the file. */
#ifndef KVICK_MODEL_MODEL_WEIGHTS_H
#define KVICK_MODEL_MODEL_WEIGHTS_H

#include <stdatomic.h>

#include "base/thread_pool.h"
#include "model/model_config.h"
#include "model/weight.h"
#include "weights/gguf.h"

/* Absent optional tensors have k = 0. */
struct layer_weights {
    struct weight attn_norm, attn_q, attn_k, attn_v, attn_out;
    struct weight q_norm, k_norm;         /* [head_dim] */
    struct weight q_bias, k_bias, v_bias; /* vectors */
    struct weight post_attn_norm, post_ffn_norm;
    struct weight ffn_norm, ffn_gate, ffn_up, ffn_down;
};

struct model_weights {
    struct weight embed;  /* [n_vocab][d_model], read row by row */
    struct weight output; /* the same packed bytes when the file has no output.weight */
    struct weight output_norm;
    struct layer_weights *layers; /* [n_layers] */
    int n_layers;
    void *pool; /* packed bytes */
    size_t pool_bytes;
};

/* What an architecture has besides the common tensors. */
enum model_weights_extra { MODEL_WEIGHTS_QK_NORM = 1, MODEL_WEIGHTS_POST_NORM = 2, MODEL_WEIGHTS_QKV_BIAS = 4 };

/* Sets config->n_vocab from the embedding, n_tokens from the tokenizer's list (without one: as many).
 * Errors: STATUS_FORMAT with the tensor's name for a missing tensor or a shape that disagrees with config. */
WARN_UNUSED enum status model_weights_bind(struct model_weights *weights, struct model_config *config,
                                           const struct gguf *gguf, unsigned extras, struct status_note *note);

/* The form of the inputs of matrix products with quantized weights; part of the model's identity. */
enum activation_form {
    ACTIVATIONS_AUTO, /* int8, and int16 for the output layer, where it costs next to nothing: few rows need it */
    ACTIVATIONS_INT8,
    ACTIVATIONS_INT16, /* nearly as exact as f32; the integer work of a prefill doubles */
    ACTIVATIONS_F32    /* weights are dequantized: for comparisons */
};

/* Packs everything, split over the pool. must_stop: ends it early when it becomes true; may be NULL.
 * Errors: STATUS_NOMEM, STATUS_CANCELLED. */
WARN_UNUSED enum status model_weights_pack(struct model_weights *weights, struct thread_pool *pool,
                                           enum activation_form activations, const atomic_bool *must_stop,
                                           struct status_note *note);

void model_weights_deinit(struct model_weights *weights);

#endif
