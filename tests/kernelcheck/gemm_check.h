/* gemm_check: a matrix product of either operand form behind one call. */
#ifndef KVICK_TESTS_KERNELCHECK_GEMM_CHECK_H
#define KVICK_TESTS_KERNELCHECK_GEMM_CHECK_H

#include "kernelcheck/check.h"

/* The right-hand operand; q8 types read act, float types x. */
struct gemm_input {
    const float *x;
    int x_stride;
    struct act_q8 act;
};

/* Runs the table's product for dtype. */
void gemm_check_call(const struct kernel_table *table, enum dtype dtype, const void *packed,
                     const struct gemm_input *input, float *out, int out_stride, int n_rows, int n_cols, int k);

#endif
