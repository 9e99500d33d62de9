/* gemm_step_avx2: what one block of 32 k adds to n_rows x n_halves sums; exactness rule 1 in vectors.
 *
 * acc[i][h], lane c: row i, column c of half h. n_rows and n_halves are constants at every call. Products of unsigned
 * weights with activations are summed in 16 bits as long as they fit (gemm_step_run), then widened. */
#ifndef KVICK_KERNELS_X86_GEMM_STEP_AVX2_H
#define KVICK_KERNELS_X86_GEMM_STEP_AVX2_H

#include "kernels/x86/gemm_block_avx2.h"

/* Activations from some row and block of 32 k on. */
struct gemm_act {
    const int8_t *q;
    int64_t low_off; /* from q to q_low; int16 form only */
    const float *d, *dsum;
    const int32_t *nsum;        /* nsum16 for types with two scales, else nsum32 */
    int64_t q_stride, d_stride; /* elements between rows of q, of d */
    int q_step;                 /* elements between blocks of q */
};

GEMM_INLINE struct gemm_act gemm_act_at(enum dtype dtype, const struct act_q8 *x, int row_idx, int block_idx, int k) {
    const int64_t d_stride = k / ACT_Q8_BLOCK, off = row_idx * d_stride + block_idx;
    return (struct gemm_act){x->q + off * ACT_Q8_BLOCK,
                             x->q_low ? x->q_low - x->q : 0,
                             x->d + off,
                             x->dsum + off,
                             gemm_block_n_scales(dtype) == 2 ? x->nsum16 + 2 * off : x->nsum32 + off,
                             k,
                             d_stride,
                             ACT_Q8_BLOCK};
}

/* Quads whose products are summed in 16 bits; each adds two. |q| <= 127: 15 * 127 * 2 * 8 = 30480 for 4 bits,
 * 31 * 127 * 2 * 4 = 31496 for 5, 63 * 127 * 2 * 2 = 32004 for 6. |q_low| <= 64: 31 * 64 * 2 * 8 = 31744 and
 * 63 * 64 * 2 * 4 = 32256. 8 bits: 128 * 127 * 2 = 32512; of q_low two quads would be one too
 * many, 128 * 64 * 2 * 2 = 32768. A run stays within the half that a scale covers. */
GEMM_INLINE int gemm_step_run(enum dtype dtype, bool is_low) {
    if (gemm_block_is_signed(dtype)) return 1;
    if (dtype == DTYPE_Q2_K) return 4;
    if (dtype == DTYPE_Q6_K) return is_low ? 4 : 2;
    return gemm_block_has_fifth(dtype) && !is_low ? 4 : 8;
}

/* a + b in 16 bits. As an intrinsic it would be regrouped: gcc makes all products first and runs out of registers. */
GEMM_INLINE __m256i gemm_step_add(__m256i a, __m256i b) {
    __asm__("vpaddw %2, %1, %0" : "=x"(a) : "x"(a), "x"(b));
    return a;
}

GEMM_INLINE __m256i gemm_step_quad(const int8_t *q) {
    int32_t quad;
    memcpy(&quad, q, sizeof quad);
    return _mm256_set1_epi32(quad);
}

/* The products of one quad, two and two summed. Signed weights put their signs on the activations. */
GEMM_INLINE __m256i gemm_step_product(enum dtype dtype, const struct gemm_block *w, int j, __m256i weights,
                                      __m256i quad) {
    if (gemm_block_is_signed(dtype)) quad = _mm256_sign_epi8(quad, w->q[1][j]);
    return _mm256_maddubs_epi16(weights, quad);
}

/* Sums in 16 bits of n_quads quads from quad j0 on. */
GEMM_INLINE void gemm_step_sum(enum dtype dtype, int n_rows, int n_halves, int j0, int n_quads,
                               const struct gemm_block *w, const int8_t *q, int64_t q_stride,
                               __m256i sum[GEMM_MAX_ROWS][2]) {
#pragma GCC unroll 8
    for (int j = j0; j < j0 + n_quads; j++) {
        __m256i weights[2];
        __asm__ volatile("" ::: "memory"); /* else gcc keeps a panel's weights for q_low, in memory */
#pragma GCC unroll 2
        for (int h = 0; h < n_halves; h++) {
            weights[h] = w[h].q[0][j];
            __asm__("" : "+x"(weights[h])); /* loaded once, not once a row */
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            __m256i quad = gemm_step_quad(q + i * q_stride + 4 * j);
#pragma GCC unroll 2
            for (int h = 0; h < n_halves; h++) {
                __m256i product = gemm_step_product(dtype, &w[h], j, weights[h], quad);
                sum[i][h] = j == j0 ? product : gemm_step_add(sum[i][h], product);
            }
        }
    }
}

/* a + b in 32 bits, as gemm_step_add. */
GEMM_INLINE __m256i gemm_step_add_wide(__m256i a, __m256i b) {
    __asm__("vpaddd %2, %1, %0" : "=x"(a) : "x"(a), "x"(b));
    return a;
}

/* gemm_step_dots where no two quads may be summed in 16 bits: no sums stand beside the dots. */
GEMM_INLINE void gemm_step_dots_each(enum dtype dtype, int n_rows, int n_halves, int j0, int n_quads, __m256i weight,
                                     bool is_first, const struct gemm_block *w, const int8_t *q, int64_t q_stride,
                                     __m256i dot[GEMM_MAX_ROWS][2]) {
#pragma GCC unroll 8
    for (int j = j0; j < j0 + n_quads; j++) {
        __asm__ volatile("" ::: "memory"); /* as in gemm_step_sum */
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            __m256i quad = gemm_step_quad(q + i * q_stride + 4 * j);
#pragma GCC unroll 2
            for (int h = 0; h < n_halves; h++) {
                __m256i wide = _mm256_madd_epi16(gemm_step_product(dtype, &w[h], j, w[h].q[0][j], quad), weight);
                dot[i][h] = is_first && j == j0 ? wide : gemm_step_add_wide(dot[i][h], wide);
            }
        }
    }
}

/* dot[i][h] = (is_first) or += factor times the products of part s of the block with the activations in q. */
GEMM_INLINE void gemm_step_dots(enum dtype dtype, int n_rows, int n_halves, int s, int run, int factor, bool is_first,
                                const struct gemm_block *w, const int8_t *q, int64_t q_stride,
                                __m256i dot[GEMM_MAX_ROWS][2]) {
    const int n_quads = 8 / gemm_block_n_scales(dtype);
    const __m256i weight = _mm256_set1_epi16((int16_t)factor);
    if (run == 1) {
        gemm_step_dots_each(dtype, n_rows, n_halves, s * n_quads, n_quads, weight, is_first, w, q, q_stride, dot);
        return;
    }
#pragma GCC unroll 8
    for (int j = s * n_quads; j < (s + 1) * n_quads; j += run) {
        __m256i sum[GEMM_MAX_ROWS][2];
        gemm_step_sum(dtype, n_rows, n_halves, j, run, w, q, q_stride, sum);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 2
            for (int h = 0; h < n_halves; h++) {
                __m256i wide = _mm256_madd_epi16(sum[i][h], weight);
                dot[i][h] = is_first && j == s * n_quads ? wide : gemm_step_add_wide(dot[i][h], wide);
            }
    }
}

/* acc += the dots, less the offset's share, times both scales. */
GEMM_INLINE void gemm_step_scale(enum dtype dtype, int n_rows, int n_halves, int s, const struct gemm_block *w,
                                 const struct gemm_act *x, __m256i dot[GEMM_MAX_ROWS][2],
                                 __m256 acc[GEMM_MAX_ROWS][2]) {
    const int n_scales = gemm_block_n_scales(dtype), bits = gemm_block_offset_bits(dtype);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        const __m256 d = _mm256_set1_ps(x->d[i * x->d_stride]);
        __m256i start = _mm256_setzero_si256();
        if (bits) start = _mm256_slli_epi32(_mm256_set1_epi32(x->nsum[i * x->d_stride * n_scales + s]), bits);
#pragma GCC unroll 2
        for (int h = 0; h < n_halves; h++) {
            __m256 value = _mm256_cvtepi32_ps(bits ? _mm256_add_epi32(dot[i][h], start) : dot[i][h]);
            acc[i][h] = _mm256_fmadd_ps(value, _mm256_mul_ps(d, w[h].d[s]), acc[i][h]);
        }
    }
}

/* What minimum min_idx of the block is multiplied with: the scale times the sum of the activations that it covers. */
GEMM_INLINE __m256 gemm_step_dsum(enum dtype dtype, const struct gemm_act *x, int row_idx, int min_idx) {
    const int64_t at = row_idx * x->d_stride;
    if (gemm_block_n_mins(dtype) == 1) return _mm256_set1_ps(x->dsum[at]);
    return _mm256_set1_ps(x->d[at] * (float)-x->nsum[2 * at + min_idx]);
}

/* w[h]: the block of half h, in registers or in a panel. */
GEMM_INLINE void gemm_step(enum dtype dtype, enum act_q8_form form, int n_rows, int n_halves,
                           const struct gemm_block *w, const struct gemm_act *x, __m256 acc[GEMM_MAX_ROWS][2]) {
    const int n_scales = gemm_block_n_scales(dtype), run = gemm_step_run(dtype, false);
#pragma GCC unroll 2
    for (int s = 0; s < n_scales; s++) {
        __m256i dot[GEMM_MAX_ROWS][2];
        gemm_step_dots(dtype, n_rows, n_halves, s, run, form == ACT_INT16 ? 128 : 1, true, w, x->q, x->q_stride, dot);
        if (form == ACT_INT16)
            gemm_step_dots(dtype, n_rows, n_halves, s, gemm_step_run(dtype, true), 1, false, w, x->q + x->low_off,
                           x->q_stride, dot);
        gemm_step_scale(dtype, n_rows, n_halves, s, w, x, dot, acc);
    }
#pragma GCC unroll 2
    for (int s = 0; s < gemm_block_n_mins(dtype); s++)
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            __m256 dsum = gemm_step_dsum(dtype, x, i, s);
#pragma GCC unroll 2
            for (int h = 0; h < n_halves; h++) acc[i][h] = _mm256_fmadd_ps(w[h].m[s], dsum, acc[i][h]);
        }
}

/* One block of 32 k further. */
GEMM_INLINE void gemm_step_next(enum dtype dtype, struct gemm_act *x) {
    x->q += x->q_step;
    x->d++;
    if (gemm_block_n_mins(dtype) == 1) x->dsum++;
    if (gemm_block_offset_bits(dtype) || gemm_block_n_mins(dtype) == 2) x->nsum += gemm_block_n_scales(dtype);
}

#endif
