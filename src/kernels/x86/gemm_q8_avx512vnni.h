/* gemm_q8_avx512vnni: the one body behind every gemm_<quantized type>_avx512vnni. How the work is cut depends on the
 * number of rows; the sums of a row do not. */
#ifndef KVICK_KERNELS_X86_GEMM_Q8_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_Q8_AVX512VNNI_H

#include "kernels/x86/gemm_panel_avx512vnni.h"
#include "kernels/x86/gemm_stream_avx512vnni.h"

/* Up to here the stream is as fast or faster. */
#define GEMM_STREAM_MAX_ROWS 20
_Static_assert(GEMM_STREAM_MAX_ROWS + 1 >= GEMM_PANEL_MIN_ROWS, "the panel has no kernel for smaller groups");

/* form becomes a constant: a test of it inside the loops costs registers. */
GEMM_INLINE void gemm_q8_form(enum dtype dtype, enum act_q8_form form, const void *w_packed, const struct act_q8 *x,
                              float *out, int out_stride, int n_rows, int n_cols, int k) {
    const size_t tile_bytes = pack_tile_bytes(dtype, k);
    const int panel_cols = n_rows > GEMM_STREAM_MAX_ROWS ? gemm_panel_cols(n_cols) : 0;
    if (panel_cols) gemm_panel(dtype, form, w_packed, tile_bytes, x, out, out_stride, n_rows, panel_cols, k);
    if (panel_cols < n_cols)
        gemm_stream(dtype, form, (const uint8_t *)w_packed + tile_bytes * (size_t)(panel_cols / GEMM_TILE_COLS),
                    tile_bytes, x, out + panel_cols, out_stride, n_rows, n_cols - panel_cols, k);
}

GEMM_INLINE void gemm_q8_avx512vnni(enum dtype dtype, const void *w_packed, const struct act_q8 *x, float *out,
                                    int out_stride, int n_rows, int n_cols, int k) {
    if (x->q_low)
        gemm_q8_form(dtype, ACT_INT16, w_packed, x, out, out_stride, n_rows, n_cols, k);
    else
        gemm_q8_form(dtype, ACT_INT8, w_packed, x, out, out_stride, n_rows, n_cols, k);
}

#endif
