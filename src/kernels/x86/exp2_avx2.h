/* exp2_avx2: exp2_scalar in 8 lanes, operation by operation. */
#ifndef KVICK_KERNELS_X86_EXP2_AVX2_H
#define KVICK_KERNELS_X86_EXP2_AVX2_H

#include <immintrin.h>

#include "kernels/scalar/exp2_scalar.h"

static inline __m256 exp2_avx2(__m256 x) {
    x = _mm256_max_ps(x, _mm256_set1_ps(EXP2_MIN));
    __m256 shifted = _mm256_add_ps(x, _mm256_set1_ps(EXP2_ROUND));
    __m256 r = _mm256_sub_ps(x, _mm256_sub_ps(shifted, _mm256_set1_ps(EXP2_ROUND)));
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP2_C3), r, _mm256_set1_ps(EXP2_C2));
    p = _mm256_fmadd_ps(_mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_C1)), r, _mm256_set1_ps(1.0f));
    __m256i n = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n));
}

#endif
