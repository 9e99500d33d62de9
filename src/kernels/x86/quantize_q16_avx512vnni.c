#include <float.h>

#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

#define MAX_N 16256.0f /* 127 * 128 */

/* Sums of the halves of 32 values. */
static inline void sums_of(__m512i n, int out[2]) {
    __m512i pairs = _mm512_madd_epi16(n, _mm512_set1_epi16(1));
    for (int i = 0; i < 2; i++) {
        __m256i half = i ? _mm512_extracti64x4_epi64(pairs, 1) : _mm512_castsi512_si256(pairs);
        __m128i quads = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
        quads = _mm_add_epi32(quads, _mm_shuffle_epi32(quads, 0x4e));
        out[i] = _mm_cvtsi128_si32(_mm_add_epi32(quads, _mm_shuffle_epi32(quads, 0xb1)));
    }
}

void quantize_q16_avx512vnni(const float *x, struct act_q8 *out, int n_rows, int k) {
    const __m512i half = _mm512_set1_epi16(64);
    size_t n_blocks = (size_t)n_rows * (size_t)(k / ACT_Q8_BLOCK);
    for (size_t b = 0; b < n_blocks; b++) {
        __m512 low = _mm512_loadu_ps(x + b * ACT_Q8_BLOCK), high = _mm512_loadu_ps(x + b * ACT_Q8_BLOCK + 16);
        float amax = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
        float d = amax / MAX_N, inverse = MAX_N / amax;
        if (!(inverse <= FLT_MAX)) inverse = 0.0f; /* amax is zero, or too small to be divided by */
        __m512 factor = _mm512_set1_ps(inverse);
        __m256i n_low = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(low, factor)));
        __m256i n_high = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(high, factor)));
        __m512i n = _mm512_inserti64x4(_mm512_castsi256_si512(n_low), n_high, 1);
        __m512i q = _mm512_srai_epi16(_mm512_add_epi16(n, half), 7);
        __m512i q_low = _mm512_sub_epi16(n, _mm512_slli_epi16(q, 7));
        _mm256_storeu_si256((__m256i *)(out->q + b * ACT_Q8_BLOCK), _mm512_cvtepi16_epi8(q));
        _mm256_storeu_si256((__m256i *)(out->q_low + b * ACT_Q8_BLOCK), _mm512_cvtepi16_epi8(q_low));
        int sums[2];
        sums_of(n, sums);
        out->d[b] = d;
        out->dsum[b] = d * (float)(sums[0] + sums[1]);
        out->nsum32[b] = -(sums[0] + sums[1]);
        out->nsum16[2 * b] = -sums[0];
        out->nsum16[2 * b + 1] = -sums[1];
    }
}
