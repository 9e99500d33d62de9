/* gemm_out_avx2: the sums of a group of rows between registers and out.
 *
 * A tile of 16 columns is two halves of 8. acc[i][h], lane c: row i, column 8h + c. n_rows and n_halves are constants
 * at every call, so that all arrays live in registers. */
#ifndef KVICK_KERNELS_X86_GEMM_OUT_AVX2_H
#define KVICK_KERNELS_X86_GEMM_OUT_AVX2_H

#include <stdbool.h>

#include "kernels/dtype.h"
#include "kernels/kernel_ops.h"
#include "kernels/x86/lanes_avx2.h"

#define GEMM_INLINE static inline __attribute__((always_inline))
#define GEMM_MAX_ROWS 8
#define GEMM_HALF_COLS 8

/* Where the sums of a group of rows go: the first width columns, at most 16, from `at` on. */
struct gemm_out {
    float *at;
    int64_t stride;
    int width;
};

GEMM_INLINE void gemm_out_zero(int n_rows, int n_halves, __m256 acc[GEMM_MAX_ROWS][2]) {
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 2
        for (int h = 0; h < n_halves; h++) acc[i][h] = _mm256_setzero_ps();
}

GEMM_INLINE void gemm_out_load(const struct gemm_out *out, int n_rows, int n_halves, __m256 acc[GEMM_MAX_ROWS][2]) {
#pragma GCC unroll 2
    for (int h = 0; h < n_halves; h++) {
        const int left = out->width - GEMM_HALF_COLS * h;
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            const float *src = out->at + i * out->stride + GEMM_HALF_COLS * h;
            acc[i][h] = left >= GEMM_HALF_COLS ? _mm256_loadu_ps(src) : _mm256_maskload_ps(src, lanes_avx2_first(left));
        }
    }
}

GEMM_INLINE void gemm_out_store(const struct gemm_out *out, int n_rows, int n_halves, __m256 acc[GEMM_MAX_ROWS][2]) {
#pragma GCC unroll 2
    for (int h = 0; h < n_halves; h++) {
        const int left = out->width - GEMM_HALF_COLS * h;
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            float *dst = out->at + i * out->stride + GEMM_HALF_COLS * h;
            if (left >= GEMM_HALF_COLS)
                _mm256_storeu_ps(dst, acc[i][h]);
            else
                _mm256_maskstore_ps(dst, lanes_avx2_first(left), acc[i][h]);
        }
    }
}

#endif
