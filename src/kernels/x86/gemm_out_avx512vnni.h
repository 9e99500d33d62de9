/* gemm_out_avx512vnni: the sums of a group of rows and tiles between registers and out.
 *
 * acc[i][t], lane c: row i, column c of tile t. n_rows and n_tiles are constants at every call, so that all arrays live
 * in registers. */
#ifndef KVICK_KERNELS_X86_GEMM_OUT_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_OUT_AVX512VNNI_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "kernels/kernel_ops.h"

#define GEMM_INLINE static inline __attribute__((always_inline))
#define GEMM_MAX_ROWS 12
#define GEMM_MAX_TILES 4

/* Where the sums of a group of rows go: tile t from out + 16 t on, lanes of mask[t]. */
struct gemm_out {
    float *at;
    int64_t stride;
    __mmask16 mask[GEMM_MAX_TILES];
};

/* All columns from col_idx on that exist, up to n_tiles tiles. */
GEMM_INLINE struct gemm_out gemm_out_at(float *out, int out_stride, int col_idx, int n_cols) {
    struct gemm_out place = {.at = out + col_idx, .stride = out_stride};
#pragma GCC unroll 4
    for (int t = 0; t < GEMM_MAX_TILES; t++) {
        int width = n_cols - col_idx - GEMM_TILE_COLS * t;
        place.mask[t] = width >= GEMM_TILE_COLS ? 0xffff : width > 0 ? (__mmask16)((1u << width) - 1) : 0;
    }
    return place;
}

GEMM_INLINE void gemm_out_zero(int n_rows, int n_tiles, __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES]) {
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 4
        for (int t = 0; t < n_tiles; t++) acc[i][t] = _mm512_setzero_ps();
}

GEMM_INLINE void gemm_out_load(const struct gemm_out *out, int n_rows, int n_tiles,
                               __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES]) {
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 4
        for (int t = 0; t < n_tiles; t++)
            acc[i][t] = _mm512_maskz_loadu_ps(out->mask[t], out->at + i * out->stride + GEMM_TILE_COLS * t);
}

/* The lines of the n_rows rows after the first row_off on their way to L1, to be loaded or stored soon. Rows that do
 * not exist are not read: a prefetch fails silently. */
GEMM_INLINE void gemm_out_ahead(const struct gemm_out *out, int row_off, int n_rows, int n_tiles) {
    uintptr_t at = (uintptr_t)out->at + (uintptr_t)((row_off * out->stride) * (int64_t)sizeof(float));
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++, at += (uintptr_t)(out->stride * (int64_t)sizeof(float)))
#pragma GCC unroll 4
        for (int t = 0; t < n_tiles; t++) _mm_prefetch((const char *)(at + 64 * (uintptr_t)t), _MM_HINT_T0);
}

GEMM_INLINE void gemm_out_store(const struct gemm_out *out, int n_rows, int n_tiles,
                                __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES]) {
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 4
        for (int t = 0; t < n_tiles; t++)
            _mm512_mask_storeu_ps(out->at + i * out->stride + GEMM_TILE_COLS * t, out->mask[t], acc[i][t]);
}

#endif
