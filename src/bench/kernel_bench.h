/* kernel_bench: how long a kernel takes, with what it reads coming from memory as it does in a model.
 *
 * Weights, keys and values lie in several copies that are larger together than the last-level cache and are used in
 * turn; activations stay where the previous call left them. Data are random and equal in every run.
 * Thread: the pool's caller.   Memory: taken at open, until close. */
#ifndef KVICK_BENCH_KERNEL_BENCH_H
#define KVICK_BENCH_KERNEL_BENCH_H

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

#define KERNEL_BENCH_MAX_ROWS 512
#define KERNEL_BENCH_MAX_KEYS 16384

struct kernel_bench_plan {
    const struct kernel_table *kernels;
    struct thread_pool *pool; /* products split their columns over it, all else runs on the caller alone */
    int n, k;                 /* columns of the output and length of a dot; k a multiple of 32, both at most 65536 */
    int n_rounds;             /* the best counts, as it does for the limits: whatever disturbs only adds */
    int64_t round_ns;         /* shortest round; calls are repeated until then */
};

/* What one call took and did. */
struct kernel_bench_time {
    double ns;
    double ops;   /* a multiply-add counts as two */
    double bytes; /* weights, keys and values; for rows of floats all that is read and written */
};

struct kernel_bench;

/* Errors: STATUS_NOMEM. */
WARN_UNUSED enum status kernel_bench_open(struct kernel_bench **out_bench, const struct kernel_bench_plan *plan);
void kernel_bench_close(struct kernel_bench **bench);

/* Makes the weights that kernel_bench_gemm multiplies with until attention is timed; pack_is_known(dtype),
 * k is a multiple of its block. */
void kernel_bench_weights(struct kernel_bench *bench, enum dtype dtype);

/* n_rows 1..KERNEL_BENCH_MAX_ROWS; form is of no account for float weights. False, and no time, if that would take so
 * long that it tells nothing (plain C and many rows); more rows need not be tried then. */
bool kernel_bench_gemm(struct kernel_bench *bench, int n_rows, enum act_q8_form form,
                       struct kernel_bench_time *out_time);

/* One head's attention of n_rows queries that see all keys, with keys in lanes for one row and rows in lanes for more.
 * n_keys: a multiple of ATTENTION_PARTITION_KEYS. False as for products. */
bool kernel_bench_attention(struct kernel_bench *bench, enum dtype dtype, int head_dim, int n_rows, int n_keys,
                            struct kernel_bench_time *out_time);

/* Operations over rows of k floats, numbered from 0; false past the last. ns is 0 where a call is too slow. */
bool kernel_bench_row_op(struct kernel_bench *bench, int op_idx, int n_rows, const char **out_name,
                         struct kernel_bench_time *out_time);

#endif
