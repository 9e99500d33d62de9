/* quantize_i8_avx2: quantize_i8_scalar in 8 lanes. */
#ifndef KVICK_KERNELS_X86_QUANTIZE_I8_AVX2_H
#define KVICK_KERNELS_X86_QUANTIZE_I8_AVX2_H

#include <float.h>
#include <immintrin.h>
#include <stdint.h>

#include "kernels/x86/lanes_avx2.h"

/* Sixteen values as int16. */
static inline __m256i quantize_i8_avx2_sixteen(const float *x, __m256 inverse) {
    __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
    __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse));
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
}

/* q as int16, n a multiple of 16. Returns the scale. */
static inline float quantize_i8_avx2(const float *x, int16_t *out, int n) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 largest = _mm256_setzero_ps();
    for (int i = 0; i < n; i += 8) largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)));
    float amax = lanes_avx2_max(largest), inverse = 127.0f / amax;
    __m256 factor = _mm256_set1_ps(inverse <= FLT_MAX ? inverse : 0.0f);
    for (int i = 0; i < n; i += 16) _mm256_storeu_si256((__m256i *)(out + i), quantize_i8_avx2_sixteen(x + i, factor));
    return amax / 127.0f;
}

#endif
