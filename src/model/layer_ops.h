/* layer_ops: whole-tensor operations on handles, the seam to another device.
 *
 * Tensors are row-major float matrices in numbered buffers that the device owns; only tensor_fetch moves
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

/* How often each attention path ran, in calls of one kernel; tests prove with it that both were used. */
struct layer_ops_counts {
    int64_t attention_rows, attention_keys;
};

#define LAYER_OPS_MAX_MATMULS 3

struct layer_ops {
    /* A new buffer of at least n_bytes; its number, or -1 when memory is out. */
    int (*buffer_create)(struct layer_ops *ops, size_t n_bytes);

    void (*tensor_fetch)(struct layer_ops *ops, struct tensor_ref from, float *to);

    /* out[i] = row ids[i] of the table, times scale. ids < table->n_out. */
    void (*embed)(struct layer_ops *ops, const struct weight *table, const uint32_t *ids, float scale,
                  struct tensor_ref out);

    /* RMS norm of every row, or of every piece of weight->k columns. out may be x. */
    void (*rms_norm)(struct layer_ops *ops, struct tensor_ref x, const struct weight *weight, float eps,
                     struct tensor_ref out);

    /* outs[i] = x * weights[i]^T for up to LAYER_OPS_MAX_MATMULS weights on one input. */
    void (*matmul)(struct layer_ops *ops, struct tensor_ref x, int n_weights, const struct weight *const *weights,
                   const struct tensor_ref *outs);

    /* x[row] += bias for every row. */
    void (*add_bias)(struct layer_ops *ops, struct tensor_ref x, const struct weight *bias);

    /* x += y */
    void (*add)(struct layer_ops *ops, struct tensor_ref x, struct tensor_ref y);

    /* x *= factor */
    void (*scale)(struct layer_ops *ops, struct tensor_ref x, float factor);

    /* out[i] = cosine and sine of every pair at positions[i]: [n_rows][2 * n_pairs]. Once per step. */
    void (*rope_angles)(struct layer_ops *ops, const struct rope *rope, const int32_t *positions,
                        struct tensor_ref out);

    /* Rotates the heads of every row by its angles. x: [n_rows][heads * head_dim]. */
    void (*rope)(struct layer_ops *ops, struct tensor_ref x, struct tensor_ref angles, bool is_halves, int head_dim);

    /* K and V of every row into its slot of this layer. */
    void (*kv_store)(struct layer_ops *ops, struct tensor_ref k, struct tensor_ref v, const struct model_batch *batch,
                     int layer);

    /* out = attention of q over the cache; q is scaled already. window as in model_layer. */
    void (*attention)(struct layer_ops *ops, struct tensor_ref q, const struct model_batch *batch, int layer,
                      int window, struct tensor_ref out);

    /* gate = act(gate) * up */
    void (*gate)(struct layer_ops *ops, enum gate_kind kind, struct tensor_ref gate, struct tensor_ref up);

    /* out[i] = x[rows[i]] */
    void (*gather_rows)(struct layer_ops *ops, struct tensor_ref x, const int32_t *rows, struct tensor_ref out);

    struct layer_ops_counts counts;
};

#endif
