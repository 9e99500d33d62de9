/* model_batch: one step laid out as arrays; decode is a sequence with one new row, prefill one with many.
 *
 * Thread: engine.   Memory: the step's; everything is borrowed by forward. */
#ifndef KVICK_MODEL_MODEL_BATCH_H
#define KVICK_MODEL_MODEL_BATCH_H

#include <stdint.h>

#include "kvcache/kv_layers.h"

struct batch_sequence {
    int row_begin, n_rows; /* its rows in the batch, in order of position */
    int first_pos;         /* position of the first of them */
    /* Block table per KV group: entry i holds positions i * block_tokens and up, as far as the last row. Entries that
     * lie before every row's window are not valid. */
    const uint32_t *blocks[KV_LAYERS_MAX_GROUPS];
};

struct model_batch {
    int n_rows;
    const uint32_t *tokens;   /* [n_rows] */
    const int32_t *positions; /* [n_rows] */
    /* [n_rows] per KV group: where the row's K and V go, block * block_tokens + slot in the block */
    const uint32_t *slots[KV_LAYERS_MAX_GROUPS];
    int n_sequences;
    const struct batch_sequence *sequences; /* [n_sequences] */
    int n_logit_rows;
    const int32_t *logit_rows; /* [n_logit_rows] rows whose logits are wanted, ascending */
    int n_hidden_rows;
    const int32_t *hidden_rows; /* [n_hidden_rows] rows whose last hidden state is wanted, ascending */
};

#endif
