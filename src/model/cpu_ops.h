/* cpu_ops: layer_ops on this machine's cores: splits each operation over the pool and calls the chosen kernels.
 *
 * Columns, rows and heads are split, k never is, so the number of threads changes no bit.   Thread: engine. */
#ifndef KVICK_MODEL_CPU_OPS_H
#define KVICK_MODEL_CPU_OPS_H

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "model/layer_ops.h"

/* pool, kernels and store are borrowed and outlive the ops. max_rows rows of at most max_k columns enter matmul.
 * Errors: STATUS_NOMEM. */
WARN_UNUSED enum status cpu_ops_create(struct layer_ops **out_ops, struct thread_pool *pool,
                                       const struct kernel_table *kernels, struct group_store *store, int max_rows,
                                       int max_k);
void cpu_ops_destroy(struct layer_ops **ops);

#endif
