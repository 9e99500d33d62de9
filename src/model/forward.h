/* forward: a loaded model, and one step through it.
 *
 * Thread: engine.   Memory: packed weights and activations, sized at load; none during a step. */
#ifndef KVICK_MODEL_FORWARD_H
#define KVICK_MODEL_FORWARD_H

#include <stdatomic.h>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "kvcache/group_store.h"
#include "model/layer_ops.h"
#include "model/model_weights.h"
#include "weights/gguf.h"

struct forward;

/* What the KV cache must look like, known before the pool exists. */
WARN_UNUSED enum status forward_read_config(struct model_config *out_config, const struct gguf *gguf,
                                            struct status_note *note);

struct forward_limits {
    int max_rows;       /* of a step */
    int max_logit_rows; /* of a step */
    enum activation_form activations;
    bool has_bf16_tables;         /* RoPE frequencies and the embedding's scale rounded to bf16, as in references
                                   made by casting a whole model */
    const atomic_bool *must_stop; /* loading ends early when it becomes true; may be NULL */
};

/* gguf, pool, kernels and store are borrowed and outlive the forward.
 * Errors: STATUS_FORMAT (the file), STATUS_NOMEM, STATUS_CANCELLED. */
WARN_UNUSED enum status forward_create(struct forward **out_forward, const struct gguf *gguf, struct thread_pool *pool,
                                       const struct kernel_table *kernels, struct group_store *store,
                                       const struct forward_limits *limits, struct status_note *note);
void forward_destroy(struct forward **forward);

/* Gives back the next 8 MiB that reading the file took: everything is packed. For moments without work, well below a
 * millisecond. False when nothing is left. */
bool forward_release_file(struct forward *forward);

const struct model_config *forward_config(const struct forward *forward);
size_t forward_weight_bytes(const struct forward *forward); /* packed */
struct layer_ops_counts forward_counts(const struct forward *forward);

/* Asked between layers: true abandons the step. */
typedef bool forward_watch_fn(void *arg);
void forward_watch(struct forward *forward, forward_watch_fn *watch, void *arg);

/* Runs the batch: K and V of all rows enter the cache. False if it was abandoned: what the batch's slots hold is
 * undefined then, and so is *out_logits.
 * *out_logits: [batch->n_logit_rows][n_vocab], valid until the next call. */
bool forward_run(struct forward *forward, const struct model_batch *batch, const float **out_logits);

/* After forward_run of the same batch: hidden states of its hidden_rows after the output norm.
 * out: [batch->n_hidden_rows][d_model] */
void forward_hidden(struct forward *forward, const struct model_batch *batch, float *out);

#endif
