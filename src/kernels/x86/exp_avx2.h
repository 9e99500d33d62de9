/* exp_avx2: exp_scalar in 8 lanes, operation by operation. */
#ifndef KVICK_KERNELS_X86_EXP_AVX2_H
#define KVICK_KERNELS_X86_EXP_AVX2_H

#include <immintrin.h>

#include "kernels/scalar/exp_scalar.h"

static inline __m256 exp_avx2(__m256 x) {
    __m256 is_normal = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MIN), _CMP_GE_OQ);
    x = _mm256_min_ps(x, _mm256_set1_ps(EXP_MAX));
    __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), _mm256_set1_ps(EXP_ROUND));
    __m256 n = _mm256_sub_ps(shifted, _mm256_set1_ps(EXP_ROUND));
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HIGH), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LOW), r);
    __m256 p = _mm256_set1_ps(EXP_C5);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C0));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    power = _mm256_add_epi32(power, _mm256_set1_epi32(0x3f800000));
    return _mm256_and_ps(is_normal, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

#endif
