/* gemm_stream_avx512vnni: few rows, where reading the weights is the work. They are unpacked in registers and used at
 * once, never stored. */
#ifndef KVICK_KERNELS_X86_GEMM_STREAM_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_STREAM_AVX512VNNI_H

#include "kernels/pack.h"
#include "kernels/x86/gemm_step_avx512vnni.h"

#define GEMM_STREAM_ROWS 12
#define GEMM_STREAM_ROWS_TWO 8 /* two scales take the registers of four rows */
#define GEMM_STREAM_NEAR 4096  /* bytes ahead, into L1 */
#define GEMM_STREAM_FAR 8192   /* bytes ahead, into L2 */

/* Up to three rows wait for memory alone and want the lines in L1; with more the multiplications give L2 time to pass
 * them on, and lines that wait in L1's few miss slots would hold up the activations' loads. */
GEMM_INLINE void gemm_stream_ahead(int n_rows, const uint8_t *src, size_t n_bytes) {
#pragma GCC unroll 1
    for (size_t i = 0; i < n_bytes; i += 64) {
        if (n_rows <= 3)
            _mm_prefetch((const char *)((uintptr_t)src + GEMM_STREAM_NEAR + i), _MM_HINT_T0);
        else
            _mm_prefetch((const char *)((uintptr_t)src + GEMM_STREAM_FAR + i), _MM_HINT_T1);
    }
}

/* One tile and up to twelve rows: x, out are those of the first row. */
GEMM_INLINE void gemm_stream_rows(enum dtype dtype, enum act_q8_form form, int n_rows, const uint8_t *tile,
                                  size_t tile_bytes, int n_blocks, struct gemm_act x, const struct gemm_out *out) {
    const size_t step_bytes = tile_bytes / (size_t)n_blocks;
    __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES];
    gemm_out_zero(n_rows, 1, acc);
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++) {
        struct gemm_block block;
        gemm_stream_ahead(n_rows, tile + step_bytes * (size_t)b, step_bytes);
        gemm_block_load(dtype, tile, b, &block);
        gemm_step(dtype, form, n_rows, 1, &block, &x, acc);
        gemm_step_next(dtype, &x);
    }
    gemm_out_store(out, n_rows, 1, acc);
}

/* n_rows 1..12 becomes a constant. */
GEMM_INLINE void gemm_stream_group(enum dtype dtype, enum act_q8_form form, int n_rows, const uint8_t *tile,
                                   size_t tile_bytes, int n_blocks, struct gemm_act x, const struct gemm_out *out) {
    switch (n_rows) {
    case 1: gemm_stream_rows(dtype, form, 1, tile, tile_bytes, n_blocks, x, out); break;
    case 2: gemm_stream_rows(dtype, form, 2, tile, tile_bytes, n_blocks, x, out); break;
    case 3: gemm_stream_rows(dtype, form, 3, tile, tile_bytes, n_blocks, x, out); break;
    case 4: gemm_stream_rows(dtype, form, 4, tile, tile_bytes, n_blocks, x, out); break;
    case 5: gemm_stream_rows(dtype, form, 5, tile, tile_bytes, n_blocks, x, out); break;
    case 6: gemm_stream_rows(dtype, form, 6, tile, tile_bytes, n_blocks, x, out); break;
    case 7: gemm_stream_rows(dtype, form, 7, tile, tile_bytes, n_blocks, x, out); break;
    case 8: gemm_stream_rows(dtype, form, 8, tile, tile_bytes, n_blocks, x, out); break;
    case 9: gemm_stream_rows(dtype, form, 9, tile, tile_bytes, n_blocks, x, out); break;
    case 10: gemm_stream_rows(dtype, form, 10, tile, tile_bytes, n_blocks, x, out); break;
    case 11: gemm_stream_rows(dtype, form, 11, tile, tile_bytes, n_blocks, x, out); break;
    default: gemm_stream_rows(dtype, form, 12, tile, tile_bytes, n_blocks, x, out); break;
    }
}

GEMM_INLINE void gemm_stream(enum dtype dtype, enum act_q8_form form, const uint8_t *w_packed, size_t tile_bytes,
                             const struct act_q8 *x, float *out, int out_stride, int n_rows, int n_cols, int k) {
    const int n_blocks = k / ACT_Q8_BLOCK,
              max_rows = gemm_block_n_scales(dtype) == 2 ? GEMM_STREAM_ROWS_TWO : GEMM_STREAM_ROWS,
              n_groups = (n_rows + max_rows - 1) / max_rows;
    for (int col = 0; col < n_cols; col += GEMM_TILE_COLS) {
        const uint8_t *tile = w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS);
        for (int g = 0, row = 0; g < n_groups; g++) {
            const int group_rows = (n_rows - row + n_groups - g - 1) / (n_groups - g);
            struct gemm_out place = gemm_out_at(out + (int64_t)row * out_stride, out_stride, col, n_cols);
            gemm_stream_group(dtype, form, group_rows, tile, tile_bytes, n_blocks, gemm_act_at(dtype, x, row, 0, k),
                              &place);
            row += group_rows;
        }
    }
}

#endif
