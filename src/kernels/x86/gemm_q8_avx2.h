/* gemm_q8_avx2: the one body behind every gemm_<quantized type>_avx2. How the work is cut depends on the number of
 * rows; the sums of a row do not. */
#ifndef KVICK_KERNELS_X86_GEMM_Q8_AVX2_H
#define KVICK_KERNELS_X86_GEMM_Q8_AVX2_H

#include "kernels/x86/gemm_panel_avx2.h"
#include "kernels/x86/gemm_stream_avx2.h"

/* form becomes a constant. */
GEMM_INLINE void gemm_q8_form(enum dtype dtype, enum act_q8_form form, const void *w_packed, const struct act_q8 *x,
                              float *out, int out_stride, int n_rows, int n_cols, int k) {
    const size_t tile_bytes = pack_tile_bytes(dtype, k);
    if (n_rows <= gemm_stream_max_rows(dtype))
        gemm_stream(dtype, form, w_packed, tile_bytes, x, out, out_stride, n_rows, n_cols, k);
    else
        gemm_panel(dtype, form, w_packed, tile_bytes, x, out, out_stride, n_rows, n_cols, k);
}

GEMM_INLINE void gemm_q8_avx2(enum dtype dtype, const void *w_packed, const struct act_q8 *x, float *out,
                              int out_stride, int n_rows, int n_cols, int k) {
    if (x->q_low)
        gemm_q8_form(dtype, ACT_INT16, w_packed, x, out, out_stride, n_rows, n_cols, k);
    else
        gemm_q8_form(dtype, ACT_INT8, w_packed, x, out, out_stride, n_rows, n_cols, k);
}

#endif
