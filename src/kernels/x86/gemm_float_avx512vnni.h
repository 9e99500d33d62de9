/* gemm_float_avx512vnni: the one body behind gemm_f32, gemm_f16 and gemm_bf16; exactness rule 2 in vectors.
 *
 * Lanes are columns. Up to six rows by four tiles are summed in registers over a cut of k whose weights stay in L2 for
 * the rows that follow; between cuts the sums rest in out. */
#ifndef KVICK_KERNELS_X86_GEMM_FLOAT_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_FLOAT_AVX512VNNI_H

#include "kernels/x86/gemm_out_avx512vnni.h"

#define GEMM_FLOAT_CUT 512
#define GEMM_FLOAT_ROWS 6
#define GEMM_FLOAT_AHEAD 2048 /* bytes */

/* x: the first row's element at the cut's begin. */
struct gemm_float_x {
    const float *at;
    int64_t stride;
};

GEMM_INLINE int gemm_float_item_bytes(enum dtype dtype) {
    return dtype == DTYPE_F32 ? 4 : 2;
}

/* One k of a tile: 16 columns. */
GEMM_INLINE __m512 gemm_float_load(enum dtype dtype, const uint8_t *src) {
    if (dtype == DTYPE_F32) return _mm512_loadu_ps(src);
    __m256i bits = _mm256_loadu_si256((const __m256i *)src);
    if (dtype == DTYPE_F16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

GEMM_INLINE void gemm_float_rows(enum dtype dtype, int n_rows, int n_tiles, const uint8_t *tile, size_t tile_bytes,
                                 struct gemm_float_x x, int n_k, const struct gemm_out *out, bool is_first) {
    const int k_bytes = GEMM_TILE_COLS * gemm_float_item_bytes(dtype);
    __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES];
    if (is_first)
        gemm_out_zero(n_rows, n_tiles, acc);
    else
        gemm_out_load(out, n_rows, n_tiles, acc);
#pragma GCC unroll 2
    for (int j = 0; j < n_k; j++) {
        __m512 w[GEMM_MAX_TILES];
#pragma GCC unroll 4
        for (int t = 0; t < n_tiles; t++) {
            const uint8_t *src = tile + tile_bytes * (size_t)t;
            _mm_prefetch((const char *)((uintptr_t)src + GEMM_FLOAT_AHEAD), _MM_HINT_T0);
            w[t] = gemm_float_load(dtype, src);
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            __m512 value = _mm512_set1_ps(x.at[i * x.stride]);
#pragma GCC unroll 4
            for (int t = 0; t < n_tiles; t++) acc[i][t] = _mm512_fmadd_ps(value, w[t], acc[i][t]);
        }
        tile += k_bytes;
        x.at++;
    }
    gemm_out_store(out, n_rows, n_tiles, acc);
}

/* n_rows 1..6 becomes a constant. */
GEMM_INLINE void gemm_float_group(enum dtype dtype, int n_rows, int n_tiles, const uint8_t *tile, size_t tile_bytes,
                                  struct gemm_float_x x, int n_k, const struct gemm_out *out, bool is_first) {
    switch (n_rows) {
    case 1: gemm_float_rows(dtype, 1, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 2: gemm_float_rows(dtype, 2, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 3: gemm_float_rows(dtype, 3, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 4: gemm_float_rows(dtype, 4, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 5: gemm_float_rows(dtype, 5, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    default: gemm_float_rows(dtype, 6, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    }
}

GEMM_INLINE void gemm_float_avx512vnni(enum dtype dtype, const void *w_packed, const float *x, int x_stride, float *out,
                                       int out_stride, int n_rows, int n_cols, int k) {
    const size_t k_bytes = (size_t)GEMM_TILE_COLS * (size_t)gemm_float_item_bytes(dtype),
                 tile_bytes = k_bytes * (size_t)k;
    const int n_groups = (n_rows + GEMM_FLOAT_ROWS - 1) / GEMM_FLOAT_ROWS;
    for (int col = 0, n_tiles; col < n_cols; col += n_tiles * GEMM_TILE_COLS) {
        const int tiles_left = (n_cols - col + GEMM_TILE_COLS - 1) / GEMM_TILE_COLS;
        n_tiles = tiles_left >= 4 ? 4 : tiles_left >= 2 ? 2 : 1;
        for (int cut = 0; cut < k; cut += GEMM_FLOAT_CUT) {
            const int n_k = k - cut < GEMM_FLOAT_CUT ? k - cut : GEMM_FLOAT_CUT;
            const uint8_t *tile =
                (const uint8_t *)w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS) + k_bytes * (size_t)cut;
            for (int g = 0, row = 0; g < n_groups; g++) {
                const int group_rows = (n_rows - row + n_groups - g - 1) / (n_groups - g);
                const struct gemm_float_x rows = {x + (int64_t)row * x_stride + cut, x_stride};
                const struct gemm_out place = gemm_out_at(out + (int64_t)row * out_stride, out_stride, col, n_cols);
                if (n_tiles == 4)
                    gemm_float_group(dtype, group_rows, 4, tile, tile_bytes, rows, n_k, &place, cut == 0);
                else if (n_tiles == 2)
                    gemm_float_group(dtype, group_rows, 2, tile, tile_bytes, rows, n_k, &place, cut == 0);
                else
                    gemm_float_group(dtype, group_rows, 1, tile, tile_bytes, rows, n_k, &place, cut == 0);
                row += group_rows;
            }
        }
    }
}

#endif
