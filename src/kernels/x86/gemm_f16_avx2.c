#include "kernels/kernel_table.h"
#include "kernels/x86/gemm_float_avx2.h"

void gemm_f16_avx2(const void *w_packed, const float *x, int x_stride, float *out, int out_stride, int n_rows,
                   int n_cols, int k) {
    gemm_float_avx2(DTYPE_F16, w_packed, x, x_stride, out, out_stride, n_rows, n_cols, k);
}
