#include "kernels/kernel_table.h"
#include "kernels/scalar/gemm_q8_scalar.h"

void gemm_wide_32_scalar(const void *w_packed, const struct act_q8 *x, float *out, int out_stride, int n_rows,
                         int n_cols, int k) {
    gemm_q8_scalar(PACK_WIDE_32, w_packed, x, out, out_stride, n_rows, n_cols, k);
}
