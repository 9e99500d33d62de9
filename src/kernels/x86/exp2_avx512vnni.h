/* exp2_avx512vnni: exp2_scalar in 16 lanes, operation by operation. */
#ifndef KVICK_KERNELS_X86_EXP2_AVX512VNNI_H
#define KVICK_KERNELS_X86_EXP2_AVX512VNNI_H

#include <immintrin.h>

#include "kernels/scalar/exp2_scalar.h"

static inline __m512 exp2_avx512vnni(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(EXP2_MIN));
    __m512 shifted = _mm512_add_ps(x, _mm512_set1_ps(EXP2_ROUND));
    __m512 r = _mm512_sub_ps(x, _mm512_sub_ps(shifted, _mm512_set1_ps(EXP2_ROUND)));
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP2_C3), r, _mm512_set1_ps(EXP2_C2));
    p = _mm512_fmadd_ps(_mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_C1)), r, _mm512_set1_ps(1.0f));
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), n));
}

#endif
