/* gemm_q8_scalar: the one loop behind every gemm_<quantized type>_scalar; exactness rule 1 in plain C. */
#ifndef KVICK_KERNELS_SCALAR_GEMM_Q8_SCALAR_H
#define KVICK_KERNELS_SCALAR_GEMM_Q8_SCALAR_H

#include "kernels/pack.h"
#include "kernels/scalar/unpack_scalar.h"

/* Dots of k from..to-1 of one row's block, which begins at off, with all columns. */
static inline void gemm_q8_scalar_dot(const struct act_q8 *x, size_t off, const struct unpack_block *block, int from,
                                      int to, int32_t out[GEMM_TILE_COLS]) {
    for (int c = 0; c < GEMM_TILE_COLS; c++) out[c] = 0;
    for (int k = from; k < to; k++) {
        int n = x->q_low ? 128 * x->q[off + (size_t)k] + x->q_low[off + (size_t)k] : x->q[off + (size_t)k];
        for (int c = 0; c < GEMM_TILE_COLS; c++) out[c] += n * block->q[k][c];
    }
}

static inline void gemm_q8_scalar(enum dtype dtype, const void *w_packed, const struct act_q8 *x, float *out,
                                  int out_stride, int n_rows, int n_cols, int k) {
    int n_blocks = k / ACT_Q8_BLOCK, has_two_scales = unpack_scalar_has_two_scales(dtype);
    int has_min = dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K;
    for (int col = 0; col < n_cols; col += GEMM_TILE_COLS) {
        const uint8_t *tile = (const uint8_t *)w_packed + pack_tile_bytes(dtype, k) * (size_t)(col / GEMM_TILE_COLS);
        int width = n_cols - col < GEMM_TILE_COLS ? n_cols - col : GEMM_TILE_COLS;
        for (int b = 0; b < n_blocks; b++) {
            struct unpack_block block;
            unpack_scalar_block(dtype, tile, b, &block);
            for (int i = 0; i < n_rows; i++) {
                float *acc = out + (size_t)i * (size_t)out_stride + col;
                size_t at = (size_t)i * (size_t)n_blocks + (size_t)b;
                int32_t dot[GEMM_TILE_COLS];
                for (int half = 0; half <= has_two_scales; half++) {
                    int from = has_two_scales ? 16 * half : 0, to = has_two_scales ? from + 16 : 32;
                    gemm_q8_scalar_dot(x, at * 32, &block, from, to, dot);
                    for (int c = 0; c < width; c++)
                        acc[c] = __builtin_fmaf((float)dot[c], x->d[at] * block.d[half][c],
                                                b == 0 && half == 0 ? 0.0f : acc[c]);
                }
                for (int c = 0; has_min && c < width; c++) acc[c] = __builtin_fmaf(block.m[0][c], x->dsum[at], acc[c]);
                for (int half = 0; half < 2 && dtype == DTYPE_Q2_K; half++) {
                    float dsum = x->d[at] * (float)-x->nsum16[2 * at + (size_t)half];
                    for (int c = 0; c < width; c++) acc[c] = __builtin_fmaf(block.m[half][c], dsum, acc[c]);
                }
            }
        }
    }
}

#endif
