/* gemm_stream_avx2: one or two rows, where reading the weights is the work. They are unpacked in registers, half a tile
 * at a time, and used at once, never stored. */
#ifndef KVICK_KERNELS_X86_GEMM_STREAM_AVX2_H
#define KVICK_KERNELS_X86_GEMM_STREAM_AVX2_H

#include "kernels/pack.h"
#include "kernels/x86/gemm_step_avx2.h"

#define GEMM_STREAM_ROWS 2
#define GEMM_STREAM_AHEAD 4096 /* bytes */

GEMM_INLINE void gemm_stream_ahead(const uint8_t *src, size_t n_bytes) {
#pragma GCC unroll 1
    for (size_t i = 0; i < n_bytes; i += 64)
        _mm_prefetch((const char *)((uintptr_t)src + GEMM_STREAM_AHEAD + i), _MM_HINT_T0);
}

GEMM_INLINE void gemm_stream_rows(enum dtype dtype, enum act_q8_form form, int n_rows, const uint8_t *w_packed,
                                  size_t tile_bytes, const struct act_q8 *x, float *out, int out_stride, int n_cols,
                                  int k) {
    const int n_blocks = k / ACT_Q8_BLOCK;
    const size_t step_bytes = tile_bytes / (size_t)n_blocks;
    for (int col = 0; col < n_cols; col += GEMM_TILE_COLS) {
        const uint8_t *tile = w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS);
        struct gemm_act act = gemm_act_at(dtype, x, 0, 0, k);
        struct gemm_out place = {out + col, out_stride, n_cols - col};
        __m256 acc[2][GEMM_MAX_ROWS][2], whole[GEMM_MAX_ROWS][2];
        gemm_out_zero(n_rows, 1, acc[0]);
        gemm_out_zero(n_rows, 1, acc[1]);
#pragma GCC unroll 1
        for (int b = 0; b < n_blocks; b++) {
            gemm_stream_ahead(tile + step_bytes * (size_t)b, step_bytes);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                struct gemm_block block;
                gemm_block_load(dtype, tile, b, h, &block);
                gemm_step(dtype, form, n_rows, 1, &block, &act, acc[h]);
            }
            gemm_step_next(dtype, &act);
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) whole[i][0] = acc[0][i][0], whole[i][1] = acc[1][i][0];
        gemm_out_store(&place, n_rows, 2, whole);
    }
}

GEMM_INLINE void gemm_stream(enum dtype dtype, enum act_q8_form form, const uint8_t *w_packed, size_t tile_bytes,
                             const struct act_q8 *x, float *out, int out_stride, int n_rows, int n_cols, int k) {
    if (n_rows == 1)
        gemm_stream_rows(dtype, form, 1, w_packed, tile_bytes, x, out, out_stride, n_cols, k);
    else
        gemm_stream_rows(dtype, form, 2, w_packed, tile_bytes, x, out, out_stride, n_cols, k);
}

#endif
