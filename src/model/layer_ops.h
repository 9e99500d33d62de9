/* layer_ops: whole-tensor operations on handles, the seam to another device.
 *
 * Tensors are row-major float matrices in numbered buffers that the device owns; only tensor_read shows
 * their bytes to the caller. Operations run in the order of the calls.
 * Thread: engine.   Errors: none; sizes are REQUIREd. */
#ifndef KVICK_MODEL_LAYER_OPS_H
#define KVICK_MODEL_LAYER_OPS_H

#include <stdint.h>

#include "kvcache/group_store.h"
#include "model/model_batch.h"
#include "model/model_config.h"
#include "model/weight.h"

struct tensor_ref {
    int buffer;       /* number of a buffer of this device */
    size_t off_bytes; /* of element [0][0] */
    int n_rows, n_cols;
};

enum gate_kind { GATE_SILU, GATE_GELU };

/* What a product reads: norm(x), or x itself. Where there is an add, x += add comes first, or x += add_norm(add): the
 * residual stream takes in what the last part of a layer made in the pass that reads it anyway. */
struct matmul_input {
    struct tensor_ref x;
    struct tensor_ref add;                /* n_cols 0: none. Its values are lost. */
    const struct weight *add_norm, *norm; /* NULL: none */
    float eps;
};

/* What turns a product into queries, keys or values, in this order: bias added, every head normed, rotated, scaled. */
struct heads_finish {
    struct tensor_ref x;              /* [n_rows][heads * head_dim] */
    const struct weight *bias, *norm; /* k 0: none; norm [head_dim] */
    struct tensor_ref angles;         /* [n_rows][2 * n_pairs]; n_cols 0: not rotated */
    float scale;
};

/* How often each attention path ran, in calls of one kernel; tests prove with it that both were used. */
struct layer_ops_counts {
    int64_t attention_rows, attention_keys;
};

#define LAYER_OPS_MAX_MATMULS 3

struct layer_ops {
    /* A new buffer of at least n_bytes; its number, or -1 when memory is out. */
    int (*buffer_create)(struct layer_ops *ops, size_t n_bytes);

    /* The values, where the caller can read them until the next operation. */
    const float *(*tensor_read)(struct layer_ops *ops, struct tensor_ref from);

    /* out[i] = row ids[i] of the table, times scale. ids < table->n_out. */
    void (*embed)(struct layer_ops *ops, const struct weight *table, const uint32_t *ids, float scale,
                  struct tensor_ref out);

    /* out = norm(x), x taking in its add first; out may be the add. */
    void (*read_input)(struct layer_ops *ops, const struct matmul_input *input, struct tensor_ref out);

    /* outs[i] = input * weights[i]^T for up to LAYER_OPS_MAX_MATMULS weights. */
    void (*matmul)(struct layer_ops *ops, const struct matmul_input *input, int n_weights,
                   const struct weight *const *weights, const struct tensor_ref *outs);

    /* out = act(input * gate^T) * (input * up^T), by elements */
    void (*matmul_gated)(struct layer_ops *ops, const struct matmul_input *input, const struct weight *gate,
                         const struct weight *up, enum gate_kind kind, struct tensor_ref out);

    /* out[i] = cosine and sine of every pair at positions[i]: [n_rows][2 * n_pairs]. Once per step. */
    void (*rope_angles)(struct layer_ops *ops, const struct rope *rope, const int32_t *positions,
                        struct tensor_ref out);

    /* Up to LAYER_OPS_MAX_MATMULS tensors in one pass. */
    void (*finish_heads)(struct layer_ops *ops, int n_tensors, const struct heads_finish *tensors, float eps,
                         bool is_halves, int head_dim);

    /* K and V of every row into its slot of this layer. */
    void (*kv_store)(struct layer_ops *ops, struct tensor_ref k, struct tensor_ref v, const struct model_batch *batch,
                     int layer);

    /* out = attention of q over the cache; q is scaled already. window as in model_layer. */
    void (*attention)(struct layer_ops *ops, struct tensor_ref q, const struct model_batch *batch, int layer,
                      int window, struct tensor_ref out);

    /* out[i] = x[rows[i]] */
    void (*gather_rows)(struct layer_ops *ops, struct tensor_ref x, const int32_t *rows, struct tensor_ref out);

    struct layer_ops_counts counts;
};

#endif
