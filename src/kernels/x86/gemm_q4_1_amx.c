#include "kernels/kernel_table.h"
#include "kernels/x86/gemm_q8_amx.h"

void gemm_q4_1_amx(const void *w_packed, const struct act_q8 *x, float *out, int out_stride, int n_rows, int n_cols,
                   int k) {
    gemm_q8_amx(DTYPE_Q4_1, gemm_q4_1_avx512vnni, w_packed, x, out, out_stride, n_rows, n_cols, k);
}
