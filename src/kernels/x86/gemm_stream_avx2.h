/* gemm_stream_avx2: few rows, where reading the weights is the work. They are unpacked in registers, half a tile at a
 * time, and used at once for up to four rows, never stored; a second group of rows finds the tile in L1. */
#ifndef KVICK_KERNELS_X86_GEMM_STREAM_AVX2_H
#define KVICK_KERNELS_X86_GEMM_STREAM_AVX2_H

#include "kernels/pack.h"
#include "kernels/x86/gemm_step_avx2.h"

#define GEMM_STREAM_GROUP 4    /* rows of one pass over a tile */
#define GEMM_STREAM_AHEAD 4096 /* bytes */

/* Beyond that many rows a panel is faster: each group unpacks again, and two scales, scales of few bits or a minimum
 * cost most. */
GEMM_INLINE int gemm_stream_max_rows(enum dtype dtype) {
    bool has_small_scales = dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K;
    if (gemm_block_n_scales(dtype) == 2 || has_small_scales) return GEMM_STREAM_GROUP;
    return gemm_block_n_mins(dtype) ? 2 * GEMM_STREAM_GROUP : 3 * GEMM_STREAM_GROUP;
}

GEMM_INLINE void gemm_stream_ahead(const uint8_t *src, size_t n_bytes) {
#pragma GCC unroll 1
    for (size_t i = 0; i < n_bytes; i += 64)
        _mm_prefetch((const char *)((uintptr_t)src + GEMM_STREAM_AHEAD + i), _MM_HINT_T0);
}

/* One tile and up to four rows: x, out are those of the first row. */
GEMM_INLINE void gemm_stream_rows(enum dtype dtype, enum act_q8_form form, int n_rows, const uint8_t *tile,
                                  size_t tile_bytes, int n_blocks, struct gemm_act x, const struct gemm_out *out) {
    const size_t step_bytes = tile_bytes / (size_t)n_blocks;
    __m256 acc[2][GEMM_MAX_ROWS][2], whole[GEMM_MAX_ROWS][2];
    gemm_out_zero(n_rows, 1, acc[0]);
    gemm_out_zero(n_rows, 1, acc[1]);
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++) {
        gemm_stream_ahead(tile + step_bytes * (size_t)b, step_bytes);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            struct gemm_block block;
            __asm__ volatile("" ::: "memory"); /* else gcc keeps the quads for the other half, in memory */
            gemm_block_load(dtype, tile, b, h, &block);
            gemm_step(dtype, form, n_rows, 1, &block, &x, acc[h]);
        }
        gemm_step_next(dtype, &x);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) whole[i][0] = acc[0][i][0], whole[i][1] = acc[1][i][0];
    gemm_out_store(out, n_rows, 2, whole);
}

/* n_rows becomes a constant. */
GEMM_INLINE void gemm_stream_group(enum dtype dtype, enum act_q8_form form, int n_rows, const uint8_t *tile,
                                   size_t tile_bytes, int n_blocks, struct gemm_act x, const struct gemm_out *out) {
    switch (n_rows) {
    case 1: gemm_stream_rows(dtype, form, 1, tile, tile_bytes, n_blocks, x, out); break;
    case 2: gemm_stream_rows(dtype, form, 2, tile, tile_bytes, n_blocks, x, out); break;
    case 3: gemm_stream_rows(dtype, form, 3, tile, tile_bytes, n_blocks, x, out); break;
    default: gemm_stream_rows(dtype, form, 4, tile, tile_bytes, n_blocks, x, out); break;
    }
}

GEMM_INLINE void gemm_stream(enum dtype dtype, enum act_q8_form form, const uint8_t *w_packed, size_t tile_bytes,
                             const struct act_q8 *x, float *out, int out_stride, int n_rows, int n_cols, int k) {
    const int n_blocks = k / ACT_Q8_BLOCK, n_groups = (n_rows + GEMM_STREAM_GROUP - 1) / GEMM_STREAM_GROUP;
    for (int col = 0; col < n_cols; col += GEMM_TILE_COLS) {
        const uint8_t *tile = w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS);
        for (int g = 0, row = 0; g < n_groups; g++) {
            const int group_rows = (n_rows - row + n_groups - g - 1) / (n_groups - g);
            struct gemm_out place = {out + (int64_t)row * out_stride + col, out_stride, n_cols - col};
            gemm_stream_group(dtype, form, group_rows, tile, tile_bytes, n_blocks, gemm_act_at(dtype, x, row, 0, k),
                              &place);
            row += group_rows;
        }
    }
}

#endif
