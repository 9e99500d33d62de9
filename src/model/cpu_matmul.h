/* cpu_matmul: matrix products over the pool, with what comes right before and after them fused: the input's rows are
 * added, normed and quantized in one pass, and the gate of a feed-forward is applied to a strip while it is in the
 * cache.
 *
 * A task is a strip of columns over all rows: k is never split, so neither threads nor strips change a bit.
 * Thread: engine.   Memory: fixed at init: integer activations, and scratch for each worker. */
#ifndef KVICK_MODEL_CPU_MATMUL_H
#define KVICK_MODEL_CPU_MATMUL_H

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "model/layer_ops.h"

struct cpu_matmul {
    struct thread_pool *pool;
    const struct kernel_table *kernels;
    int max_rows, max_k;
    void *act_memory; /* of act_q8, for max_rows x max_k */
    size_t act_bytes;
    float *normed; /* [max_rows][max_k] for weights that are not quantized */
    size_t normed_bytes;
    float *scratch; /* [n_threads][scratch_floats] */
    size_t scratch_floats;
};

/* pool and kernels are borrowed. Errors: STATUS_NOMEM; deinit afterwards. */
WARN_UNUSED enum status cpu_matmul_init(struct cpu_matmul *matmul, struct thread_pool *pool,
                                        const struct kernel_table *kernels, int max_rows, int max_k);
void cpu_matmul_deinit(struct cpu_matmul *matmul);

/* As struct matmul_input of layer_ops.h. */
struct cpu_matmul_input {
    float *x;   /* [n_rows][k] */
    float *add; /* [n_rows][k] or NULL; its bytes are used up */
    const struct weight *add_norm, *norm;
    float eps;
    int n_rows, k;
};

/* out: [n_rows][k] norm(x), which there must be; out may be input->add. */
void cpu_matmul_read_input(struct cpu_matmul *matmul, const struct cpu_matmul_input *input, float *out);

/* outs[i]: [n_rows][weights[i]->n_out] */
void cpu_matmul_run(struct cpu_matmul *matmul, const struct cpu_matmul_input *input, int n_weights,
                    const struct weight *const *weights, float *const *outs);

/* out = act(input * gate^T) * (input * up^T): [n_rows][gate->n_out] */
void cpu_matmul_run_gated(struct cpu_matmul *matmul, const struct cpu_matmul_input *input, const struct weight *gate,
                          const struct weight *up, enum gate_kind kind, float *out);

#endif
