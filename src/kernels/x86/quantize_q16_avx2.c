#include <float.h>

#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx2.h"

#define MAX_N 16256.0f /* 127 * 128 */

static float block_amax(const float *src) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 amax = _mm256_andnot_ps(sign, _mm256_loadu_ps(src));
    for (int i = 8; i < ACT_Q8_BLOCK; i += 8)
        amax = _mm256_max_ps(amax, _mm256_andnot_ps(sign, _mm256_loadu_ps(src + i)));
    return lanes_avx2_max(amax);
}

/* 16 times n in order. */
static __m256i quantize_half(const float *src, __m256 factor) {
    __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(src), factor));
    __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(src + 8), factor));
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8); /* packs work on 128-bit halves */
}

/* 16-bit values that fit 8 bits to bytes in order. */
static __m256i bytes_of(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
}

static int sum_of(__m256i n) {
    __m256i pairs = _mm256_madd_epi16(n, _mm256_set1_epi16(1));
    __m128i quads = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    quads = _mm_add_epi32(quads, _mm_shuffle_epi32(quads, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(quads, _mm_shuffle_epi32(quads, 0xb1)));
}

void quantize_q16_avx2(const float *x, struct act_q8 *out, int n_rows, int k) {
    const __m256i half = _mm256_set1_epi16(64);
    size_t n_blocks = (size_t)n_rows * (size_t)(k / ACT_Q8_BLOCK);
    for (size_t b = 0; b < n_blocks; b++) {
        const float *src = x + b * ACT_Q8_BLOCK;
        float amax = block_amax(src), d = amax / MAX_N, inverse = MAX_N / amax;
        if (!(inverse <= FLT_MAX)) inverse = 0.0f; /* amax is zero, or too small to be divided by */
        __m256 factor = _mm256_set1_ps(inverse);
        __m256i n[2] = {quantize_half(src, factor), quantize_half(src + 16, factor)}, q[2], q_low[2];
        for (int i = 0; i < 2; i++) {
            q[i] = _mm256_srai_epi16(_mm256_add_epi16(n[i], half), 7);
            q_low[i] = _mm256_sub_epi16(n[i], _mm256_slli_epi16(q[i], 7));
        }
        _mm256_storeu_si256((__m256i *)(out->q + b * ACT_Q8_BLOCK), bytes_of(q[0], q[1]));
        _mm256_storeu_si256((__m256i *)(out->q_low + b * ACT_Q8_BLOCK), bytes_of(q_low[0], q_low[1]));
        int low = sum_of(n[0]), high = sum_of(n[1]);
        out->d[b] = d;
        out->dsum[b] = d * (float)(low + high);
        out->nsum32[b] = -(low + high);
        out->nsum16[2 * b] = -low;
        out->nsum16[2 * b + 1] = -high;
    }
}
