/* gemm_float_avx2: the one body behind gemm_f32, gemm_f16 and gemm_bf16; exactness rule 2 in vectors.
 *
 * Lanes are columns. Up to six rows by one tile are summed in registers over a cut of k whose weights stay in L1 or L2
 * for the rows that follow; between cuts the sums rest in out. */
#ifndef KVICK_KERNELS_X86_GEMM_FLOAT_AVX2_H
#define KVICK_KERNELS_X86_GEMM_FLOAT_AVX2_H

#include "kernels/x86/gemm_out_avx2.h"

#define GEMM_FLOAT_CUT 512
#define GEMM_FLOAT_ROWS 6     /* 6 x 2 sums, two weights and a value: 15 of 16 registers */
#define GEMM_FLOAT_AHEAD 2048 /* bytes */

/* x: the first row's element at the cut's begin. */
struct gemm_float_x {
    const float *at;
    int64_t stride;
};

GEMM_INLINE int gemm_float_item_bytes(enum dtype dtype) {
    return dtype == DTYPE_F32 ? 4 : 2;
}

/* 8 columns of one k. */
GEMM_INLINE __m256 gemm_float_load(enum dtype dtype, const uint8_t *src) {
    if (dtype == DTYPE_F32) return _mm256_loadu_ps((const float *)(const void *)src);
    __m128i bits = _mm_loadu_si128((const __m128i *)src);
    if (dtype == DTYPE_F16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

GEMM_INLINE void gemm_float_rows(enum dtype dtype, int n_rows, const uint8_t *src, struct gemm_float_x x, int n_k,
                                 const struct gemm_out *out, bool is_first) {
    const int half_bytes = GEMM_HALF_COLS * gemm_float_item_bytes(dtype);
    __m256 acc[GEMM_MAX_ROWS][2];
    if (is_first)
        gemm_out_zero(n_rows, 2, acc);
    else
        gemm_out_load(out, n_rows, 2, acc);
#pragma GCC unroll 2
    for (int j = 0; j < n_k; j++) {
        __m256 w[2] = {gemm_float_load(dtype, src), gemm_float_load(dtype, src + half_bytes)};
        _mm_prefetch((const char *)((uintptr_t)src + GEMM_FLOAT_AHEAD), _MM_HINT_T0);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            __m256 value = _mm256_set1_ps(x.at[i * x.stride]);
            acc[i][0] = _mm256_fmadd_ps(value, w[0], acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(value, w[1], acc[i][1]);
        }
        src += 2 * half_bytes;
        x.at++;
    }
    gemm_out_store(out, n_rows, 2, acc);
}

/* n_rows 1..6 becomes a constant. */
GEMM_INLINE void gemm_float_group(enum dtype dtype, int n_rows, const uint8_t *src, struct gemm_float_x x, int n_k,
                                  const struct gemm_out *out, bool is_first) {
    switch (n_rows) {
    case 1: gemm_float_rows(dtype, 1, src, x, n_k, out, is_first); break;
    case 2: gemm_float_rows(dtype, 2, src, x, n_k, out, is_first); break;
    case 3: gemm_float_rows(dtype, 3, src, x, n_k, out, is_first); break;
    case 4: gemm_float_rows(dtype, 4, src, x, n_k, out, is_first); break;
    case 5: gemm_float_rows(dtype, 5, src, x, n_k, out, is_first); break;
    default: gemm_float_rows(dtype, 6, src, x, n_k, out, is_first); break;
    }
}

GEMM_INLINE void gemm_float_avx2(enum dtype dtype, const void *w_packed, const float *x, int x_stride, float *out,
                                 int out_stride, int n_rows, int n_cols, int k) {
    const size_t k_bytes = (size_t)GEMM_TILE_COLS * (size_t)gemm_float_item_bytes(dtype);
    const int n_groups = (n_rows + GEMM_FLOAT_ROWS - 1) / GEMM_FLOAT_ROWS;
    for (int col = 0; col < n_cols; col += GEMM_TILE_COLS) {
        const uint8_t *tile = (const uint8_t *)w_packed + k_bytes * (size_t)k * (size_t)(col / GEMM_TILE_COLS);
        for (int cut = 0; cut < k; cut += GEMM_FLOAT_CUT) {
            const int n_k = k - cut < GEMM_FLOAT_CUT ? k - cut : GEMM_FLOAT_CUT;
            for (int g = 0, row = 0; g < n_groups; g++) {
                const int group_rows = (n_rows - row + n_groups - g - 1) / (n_groups - g);
                const struct gemm_float_x rows = {x + (int64_t)row * x_stride + cut, x_stride};
                const struct gemm_out place = {out + (int64_t)row * out_stride + col, out_stride, n_cols - col};
                gemm_float_group(dtype, group_rows, tile + k_bytes * (size_t)cut, rows, n_k, &place, cut == 0);
                row += group_rows;
            }
        }
    }
}

#endif
