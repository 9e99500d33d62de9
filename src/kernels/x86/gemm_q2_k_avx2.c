#include "kernels/kernel_table.h"
#include "kernels/x86/gemm_q8_avx2.h"

void gemm_q2_k_avx2(const void *w_packed, const struct act_q8 *x, float *out, int out_stride, int n_rows, int n_cols,
                    int k) {
    gemm_q8_avx2(DTYPE_Q2_K, w_packed, x, out, out_stride, n_rows, n_cols, k);
}
