/* lanes_avx512vnni: the fixed tree, and masks for the last lanes of a row. */
#ifndef KVICK_KERNELS_X86_LANES_AVX512VNNI_H
#define KVICK_KERNELS_X86_LANES_AVX512VNNI_H

#include <immintrin.h>
#include <stdint.h>

/* The first n lanes; all 16 for n >= 16. */
static inline __mmask16 lanes_avx512vnni_first(int64_t n) {
    return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

/* Lanes l + 8, l + 4, l + 2, l + 1. */
static inline float lanes_avx512vnni_tree(__m512 x) {
    __m256 x8 = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 x4 = _mm_add_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
    __m128 x2 = _mm_add_ps(x4, _mm_movehl_ps(x4, x4));
    return _mm_cvtss_f32(_mm_add_ss(x2, _mm_movehdup_ps(x2)));
}

#endif
