/* cpu_attention: writes K and V into the paged cache and attends over it, split over sequences, kv heads and rows.
 *
 * The query heads that share a kv head are rows of one kernel call. With many rows the kernel has rows in its lanes,
 * with few it has keys; both give equal bits (exactness rules 4 and 10).   Thread: engine. */
#ifndef KVICK_MODEL_CPU_ATTENTION_H
#define KVICK_MODEL_CPU_ATTENTION_H

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "model/layer_ops.h"

/* store, group and layer: of the layer's KV group, the layer being numbered among those of the group. */

/* k, v: [batch->n_rows][n_kv_heads * head_dim] into the rows' slots. */
void cpu_attention_store(struct thread_pool *pool, const struct kernel_table *kernels, struct block_store *store,
                         const float *k, const float *v, const struct model_batch *batch, int group, int layer);

/* q, out: [batch->n_rows][n_heads * head_dim], q scaled already. */
void cpu_attention_run(struct thread_pool *pool, const struct kernel_table *kernels, const struct block_store *store,
                       const float *q, int n_heads, const struct model_batch *batch, int group, int layer, int window,
                       float *out, struct layer_ops_counts *counts);

#endif
