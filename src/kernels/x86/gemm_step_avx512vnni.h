/* gemm_step_avx512vnni: what one block of 32 k adds to n_rows x n_tiles sums; exactness rule 1 in vectors.
 *
 * acc[i][t], lane c: row i, column c of tile t. n_rows and n_tiles are constants at every call, so that all arrays live
 * in registers. */
#ifndef KVICK_KERNELS_X86_GEMM_STEP_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_STEP_AVX512VNNI_H

#include "kernels/x86/gemm_block_avx512vnni.h"
#include "kernels/x86/gemm_out_avx512vnni.h"

/* Activations from some row and block of 32 k on. */
struct gemm_act {
    const int8_t *q;
    int64_t low_off; /* from q to q_low; int16 form only */
    const float *d, *dsum;
    const int32_t *nsum;        /* nsum16 for types with two scales, else nsum32 */
    int64_t q_stride, d_stride; /* elements between rows of q, of d */
};

GEMM_INLINE struct gemm_act gemm_act_at(enum dtype dtype, const struct act_q8 *x, int row_idx, int block_idx, int k) {
    const int64_t d_stride = k / ACT_Q8_BLOCK, off = row_idx * d_stride + block_idx;
    return (struct gemm_act){x->q + off * ACT_Q8_BLOCK,
                             x->q_low ? x->q_low - x->q : 0,
                             x->d + off,
                             x->dsum + off,
                             gemm_block_n_scales(dtype) == 2 ? x->nsum16 + 2 * off : x->nsum32 + off,
                             k,
                             d_stride};
}

GEMM_INLINE __m512i gemm_step_quad(const int8_t *q) {
    int32_t quad;
    memcpy(&quad, q, sizeof quad);
    return _mm512_set1_epi32(quad);
}

/* The integer sums before any product: minus offset times the sum of the activations. */
GEMM_INLINE __m512i gemm_step_start(enum dtype dtype, const struct gemm_act *x, int row_idx, int scale_idx) {
    const int n_scales = gemm_block_n_scales(dtype), bits = gemm_block_offset_bits(dtype);
    if (!bits) return _mm512_setzero_si512();
    return _mm512_slli_epi32(_mm512_set1_epi32(x->nsum[row_idx * x->d_stride * n_scales + scale_idx]), bits);
}

/* dot[i][t] += the products of half s of the block with the activations in q. */
GEMM_INLINE void gemm_step_dots(enum dtype dtype, int n_rows, int n_tiles, int s, const struct gemm_block *w,
                                const int8_t *q, int64_t q_stride, __m512i dot[GEMM_MAX_ROWS][GEMM_MAX_TILES]) {
    const int n_quads = 8 / gemm_block_n_scales(dtype);
#pragma GCC unroll 8
    for (int j = s * n_quads; j < (s + 1) * n_quads; j++)
#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++) {
            __m512i quad = gemm_step_quad(q + i * q_stride + 4 * j);
#pragma GCC unroll 4
            for (int t = 0; t < n_tiles; t++) dot[i][t] = _mm512_dpbusd_epi32(dot[i][t], w[t].q[j], quad);
        }
}

/* dot[i][t] = what comes before the products with q, or with q_low: 128 times the products with q. */
GEMM_INLINE void gemm_step_begin(enum dtype dtype, enum act_q8_form form, int n_rows, int n_tiles, int s,
                                 const struct gemm_block *w, const struct gemm_act *x,
                                 __m512i dot[GEMM_MAX_ROWS][GEMM_MAX_TILES]) {
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 4
        for (int t = 0; t < n_tiles; t++) dot[i][t] = _mm512_setzero_si512();
    if (form == ACT_INT16) gemm_step_dots(dtype, n_rows, n_tiles, s, w, x->q, x->q_stride, dot);
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++) {
        __m512i start = gemm_step_start(dtype, x, i, s);
#pragma GCC unroll 4
        for (int t = 0; t < n_tiles; t++)
            dot[i][t] = form == ACT_INT16 ? _mm512_add_epi32(_mm512_slli_epi32(dot[i][t], 7), start) : start;
    }
}

/* What minimum min_idx of the block is multiplied with: the scale times the sum of the activations that it covers. */
GEMM_INLINE __m512 gemm_step_dsum(enum dtype dtype, const struct gemm_act *x, int row_idx, int min_idx) {
    const int64_t at = row_idx * x->d_stride;
    if (gemm_block_n_mins(dtype) == 1) return _mm512_set1_ps(x->dsum[at]);
    return _mm512_set1_ps(x->d[at] * (float)-x->nsum[2 * at + min_idx]);
}

/* w[t]: the block of tile t, in registers or in a panel. */
GEMM_INLINE void gemm_step(enum dtype dtype, enum act_q8_form form, int n_rows, int n_tiles, const struct gemm_block *w,
                           const struct gemm_act *x, __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES]) {
    const int n_scales = gemm_block_n_scales(dtype);
#pragma GCC unroll 2
    for (int s = 0; s < n_scales; s++) {
        __m512i dot[GEMM_MAX_ROWS][GEMM_MAX_TILES];
        gemm_step_begin(dtype, form, n_rows, n_tiles, s, w, x, dot);
        gemm_step_dots(dtype, n_rows, n_tiles, s, w, form == ACT_INT16 ? x->q + x->low_off : x->q, x->q_stride, dot);
#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++) {
            __m512 d = _mm512_set1_ps(x->d[i * x->d_stride]);
#pragma GCC unroll 4
            for (int t = 0; t < n_tiles; t++)
                acc[i][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][t]), _mm512_mul_ps(d, w[t].d[s]), acc[i][t]);
        }
    }
#pragma GCC unroll 2
    for (int s = 0; s < gemm_block_n_mins(dtype); s++)
#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++) {
            __m512 dsum = gemm_step_dsum(dtype, x, i, s);
#pragma GCC unroll 4
            for (int t = 0; t < n_tiles; t++) acc[i][t] = _mm512_fmadd_ps(w[t].m[s], dsum, acc[i][t]);
        }
}

/* One block of 32 k further. */
GEMM_INLINE void gemm_step_next(enum dtype dtype, struct gemm_act *x) {
    x->q += ACT_Q8_BLOCK;
    x->d++;
    if (gemm_block_n_mins(dtype) == 1) x->dsum++;
    if (gemm_block_offset_bits(dtype) || gemm_block_n_mins(dtype) == 2) x->nsum += gemm_block_n_scales(dtype);
}

#endif
