/* gemm_float_avx512vnni: the one body behind gemm_f32, gemm_f16 and gemm_bf16; exactness rule 2 in vectors.
 *
 * Lanes are columns. Up to six rows by four tiles are summed in registers over a cut of k whose weights stay in L2 for
 * the rows that follow; between cuts the sums rest in out. */
#ifndef KVICK_KERNELS_X86_GEMM_FLOAT_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_FLOAT_AVX512VNNI_H

#include "kernels/x86/gemm_out_avx512vnni.h"

#define GEMM_FLOAT_CUT 512
#define GEMM_FLOAT_ROWS 6
#define GEMM_FLOAT_MAX_ROWS 8 /* as a single group of two tiles */
#define GEMM_FLOAT_AHEAD 1024 /* bytes */

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

/* One k of all rows and tiles. */
GEMM_INLINE void gemm_float_step(enum dtype dtype, int n_rows, int n_tiles, const uint8_t *tile, size_t tile_bytes,
                                 const float *x, int64_t x_stride, __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES]) {
    __m512 w[GEMM_MAX_TILES];
#pragma GCC unroll 4
    for (int t = 0; t < n_tiles; t++) w[t] = gemm_float_load(dtype, tile + tile_bytes * (size_t)t);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        __m512 value = _mm512_set1_ps(x[i * x_stride]);
#pragma GCC unroll 4
        for (int t = 0; t < n_tiles; t++) acc[i][t] = _mm512_fmadd_ps(value, w[t], acc[i][t]);
    }
}

GEMM_INLINE void gemm_float_rows(enum dtype dtype, int n_rows, int n_tiles, const uint8_t *tile, size_t tile_bytes,
                                 struct gemm_float_x x, int n_k, const struct gemm_out *out, bool is_first) {
    const int line_k = 4 / gemm_float_item_bytes(dtype); /* k of a tile in 64 bytes */
    __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES];
    if (is_first)
        gemm_out_zero(n_rows, n_tiles, acc);
    else
        gemm_out_load(out, n_rows, n_tiles, acc);
    int j = 0;
#pragma GCC unroll 1
    for (; j + line_k <= n_k; j += line_k) {
#pragma GCC unroll 4
        for (int t = 0; t < n_tiles; t++)
            _mm_prefetch((const char *)((uintptr_t)tile + tile_bytes * (size_t)t + GEMM_FLOAT_AHEAD), _MM_HINT_T0);
#pragma GCC unroll 2
        for (int i = 0; i < line_k; i++)
            gemm_float_step(dtype, n_rows, n_tiles, tile + 64 / line_k * i, tile_bytes, x.at + i, x.stride, acc);
        tile += 64;
        x.at += line_k;
    }
    if (j < n_k) gemm_float_step(dtype, n_rows, n_tiles, tile, tile_bytes, x.at, x.stride, acc);
    gemm_out_store(out, n_rows, n_tiles, acc);
}

/* n_rows becomes a constant: 1..6, or 7 and 8 with less than four tiles (% 4: no code for what cannot happen). */
GEMM_INLINE void gemm_float_group(enum dtype dtype, int n_rows, int n_tiles, const uint8_t *tile, size_t tile_bytes,
                                  struct gemm_float_x x, int n_k, const struct gemm_out *out, bool is_first) {
    switch (n_rows) {
    case 1: gemm_float_rows(dtype, 1, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 2: gemm_float_rows(dtype, 2, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 3: gemm_float_rows(dtype, 3, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 4: gemm_float_rows(dtype, 4, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 5: gemm_float_rows(dtype, 5, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 6: gemm_float_rows(dtype, 6, n_tiles, tile, tile_bytes, x, n_k, out, is_first); break;
    case 7: gemm_float_rows(dtype, 7, n_tiles % 4, tile, tile_bytes, x, n_k, out, is_first); break;
    default: gemm_float_rows(dtype, 8, n_tiles % 4, tile, tile_bytes, x, n_k, out, is_first); break;
    }
}

GEMM_INLINE void gemm_float_avx512vnni(enum dtype dtype, const void *w_packed, const float *x, int x_stride, float *out,
                                       int out_stride, int n_rows, int n_cols, int k) {
    const size_t k_bytes = (size_t)GEMM_TILE_COLS * (size_t)gemm_float_item_bytes(dtype),
                 tile_bytes = k_bytes * (size_t)k;
    /* Seven or eight rows as one group read the weights once; that many sums leave room for two tiles only. */
    const bool is_one_group = n_rows <= GEMM_FLOAT_MAX_ROWS;
    const int n_groups = is_one_group ? 1 : (n_rows + GEMM_FLOAT_ROWS - 1) / GEMM_FLOAT_ROWS;
    const int max_tiles = is_one_group && n_rows > GEMM_FLOAT_ROWS ? 2 : 4;
    for (int col = 0, n_tiles; col < n_cols; col += n_tiles * GEMM_TILE_COLS) {
        const int tiles_left = (n_cols - col + GEMM_TILE_COLS - 1) / GEMM_TILE_COLS;
        n_tiles = tiles_left >= max_tiles ? max_tiles : tiles_left >= 2 ? 2 : 1;
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
