/* lanes_avx2: the fixed tree over 16 lanes, and masks for the last lanes of a row. */
#ifndef KVICK_KERNELS_X86_LANES_AVX2_H
#define KVICK_KERNELS_X86_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>

/* All bits of the first n lanes; none for n <= 0. */
static inline __m256i lanes_avx2_first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}

/* Lanes l + 8 (high onto low), l + 4, l + 2, l + 1. */
static inline float lanes_avx2_tree(__m256 low, __m256 high) {
    __m256 x8 = _mm256_add_ps(low, high);
    __m128 x4 = _mm_add_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
    __m128 x2 = _mm_add_ps(x4, _mm_movehl_ps(x4, x4));
    return _mm_cvtss_f32(_mm_add_ss(x2, _mm_movehdup_ps(x2)));
}

static inline float lanes_avx2_max(__m256 x) {
    __m128 x4 = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 x2 = _mm_max_ps(x4, _mm_movehl_ps(x4, x4));
    return _mm_cvtss_f32(_mm_max_ss(x2, _mm_movehdup_ps(x2)));
}

#endif
