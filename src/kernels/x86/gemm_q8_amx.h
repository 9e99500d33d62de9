/* gemm_q8_amx: the one body behind every gemm_<quantized type>_amx: tiles where there are rows enough for them and two
 * tiles of weights, else the kernel of avx512vnni. Types with minima or two scales a block have no such kernel: they
 * win nothing (docs/decisions/amx.md). */
#ifndef KVICK_KERNELS_X86_GEMM_Q8_AMX_H
#define KVICK_KERNELS_X86_GEMM_Q8_AMX_H

#include "kernels/x86/gemm_panel_amx.h"

#define GEMM_AMX_MIN_ROWS 9 /* below, the stream is as fast or faster */

GEMM_INLINE void gemm_q8_amx(enum dtype dtype, gemm_q8_fn *few_rows, const void *w_packed, const struct act_q8 *x,
                             float *out, int out_stride, int n_rows, int n_cols, int k) {
    const size_t tile_bytes = pack_tile_bytes(dtype, k);
    const int panel_cols = n_rows >= GEMM_AMX_MIN_ROWS && !x->q_low ? gemm_panel_cols(n_cols) : 0;
    if (panel_cols) gemm_panel_amx(dtype, w_packed, tile_bytes, x, out, out_stride, n_rows, panel_cols, k);
    if (panel_cols < n_cols)
        few_rows((const uint8_t *)w_packed + tile_bytes * (size_t)(panel_cols / GEMM_TILE_COLS), x, out + panel_cols,
                 out_stride, n_rows, n_cols - panel_cols, k);
}

#endif
