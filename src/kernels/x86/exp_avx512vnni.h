/* exp_avx512vnni: exp_scalar in 16 lanes, operation by operation. */
#ifndef KVICK_KERNELS_X86_EXP_AVX512VNNI_H
#define KVICK_KERNELS_X86_EXP_AVX512VNNI_H

#include <immintrin.h>

#include "kernels/scalar/exp_scalar.h"

/* x at most EXP_MAX in every lane of mask; the other lanes give +0. */
static inline __m512 exp_avx512vnni_masked(__mmask16 mask, __m512 x) {
    mask = _mm512_mask_cmp_ps_mask(mask, x, _mm512_set1_ps(EXP_MIN), _CMP_GE_OQ);
    __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), _mm512_set1_ps(EXP_ROUND));
    __m512 n = _mm512_sub_ps(shifted, _mm512_set1_ps(EXP_ROUND));
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HIGH), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LOW), r);
    __m512 p = _mm512_set1_ps(EXP_C5);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C0));
    p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(mask, p, n); /* as the product with 2^n: one rounding */
}

static inline __m512 exp_avx512vnni(__m512 x) {
    x = _mm512_min_ps(_mm512_set1_ps(EXP_MAX), x); /* a NaN in second place comes through */
    return exp_avx512vnni_masked(0xffff, x);
}

#endif
