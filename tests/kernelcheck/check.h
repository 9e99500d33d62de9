/* check: one operation of one tier under test, in a process of its own.
 *
 * A check that finds a difference says so in one line and ends its process. */
#ifndef KVICK_TESTS_KERNELCHECK_CHECK_H
#define KVICK_TESTS_KERNELCHECK_CHECK_H

#include <stdbool.h>

#include "base/status.h"
#include "kernelcheck/gen.h"
#include "kernelcheck/guard.h"
#include "kernels/kernel_table.h"

struct check {
    const char *op;
    enum dtype dtype;                  /* of the weights or of the KV cache; else F32 */
    const struct kernel_table *scalar; /* the specification */
    const struct kernel_table *tested; /* holds the kernel under test as its field op */
    struct gen gen;
    long *n_cases; /* shared with the parent */
    bool is_slow;  /* sanitizers: fewer cases of the same kinds */
};

typedef void check_fn(struct check *check);

struct check_row {
    const char *op;
    check_fn *spec; /* the scalar kernel against double or against its definition */
    check_fn *same; /* any tier, scalar too, against one plain scalar run, bit by bit */
    enum dtype dtype;
};

/* Every operation of ops.inc has a row here; NULL if it has none. */
const struct check_row *check_find(const char *op);

_Noreturn void check_fail(const struct check *check, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* ---- comparing ---- */

enum check_zeros { CHECK_ZEROS_DIFFER, CHECK_ZEROS_EQUAL };

/* Index of the first float that differs, -1 if none does. Two NaNs are equal unless one is a canary: which NaN a sum
 * of infinities gives is no part of the contract. */
long check_first_difference(const float *expected, const float *got, size_t n, enum check_zeros zeros);

/* Fails the check on a difference. what, and three numbers that say where: all free words of the caller. */
void check_equal(const struct check *check, const float *expected, const float *got, size_t n, const char *fmt, ...)
    PRINTF_LIKE(5, 6);

/* Fails unless |got - want| <= bound; want in double. A want that float cannot hold passes. */
void check_near(const struct check *check, double want, float got, double bound, const char *what, long idx);

/* The output as painted before the call: fails if a byte around it changed. */
void check_intact(const struct check *check, const struct guard *guard, const void *output, size_t n_bytes,
                  const char *what);

/* ---- the checks ---- */
check_fn gemm_check_spec, gemm_check_same;
check_fn quantize_check_spec, quantize_check_same;
check_fn rows_check_norm_spec, rows_check_norm_same;
check_fn rows_check_gate_spec, rows_check_gate_same;
check_fn rows_check_add_spec, rows_check_add_same;
check_fn rows_check_weights_spec, rows_check_weights_same;
check_fn rows_check_rope_spec, rows_check_rope_same;
check_fn state_check_kv_spec, state_check_kv_same;
check_fn state_check_kv_i8_spec, state_check_kv_q8_0_spec;
check_fn state_check_hadamard_spec, state_check_hadamard_same;
check_fn rows_check_exp_spec, rows_check_exp2_spec;
check_fn fold_check_spec, fold_check_same;
check_fn state_check_merge_spec, state_check_merge_same;
check_fn state_check_finish_spec, state_check_finish_same;
check_fn peak_check_spec;

/* Median times; op NULL: every operation. Returns the exit status. */
int bench_run(const char *op);

#endif
