#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx2.h"

static float block_amax(const float *src) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 amax = _mm256_andnot_ps(sign, _mm256_loadu_ps(src));
    for (int i = 8; i < ACT_Q8_BLOCK; i += 8)
        amax = _mm256_max_ps(amax, _mm256_andnot_ps(sign, _mm256_loadu_ps(src + i)));
    return lanes_avx2_max(amax);
}

/* Four times 8 whole numbers to bytes in order, each cut to its low 8 bits. */
static __m256i bytes_of(const __m256i q[4]) {
    const __m256i low = _mm256_set1_epi32(0xff);
    __m256i ab = _mm256_packus_epi32(_mm256_and_si256(q[0], low), _mm256_and_si256(q[1], low));
    __m256i cd = _mm256_packus_epi32(_mm256_and_si256(q[2], low), _mm256_and_si256(q[3], low));
    __m256i bytes = _mm256_packus_epi16(ab, cd); /* packs work on 128-bit halves: a0 b0 c0 d0, a1 b1 c1 d1 */
    return _mm256_permutevar8x32_epi32(bytes, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
}

/* Returns the sums of both halves in lanes 0 and 2. */
static __m128i quantize_block(const float *src, float inverse, int8_t *out) {
    __m256 factor = _mm256_set1_ps(inverse);
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(src + 8 * i), factor));
    __m256i bytes = bytes_of(q);
    _mm256_storeu_si256((__m256i *)out, bytes);
    __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
    __m128i pairs = _mm_hadd_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return _mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0xb1));
}

void quantize_q8_avx2(const float *x, struct act_q8 *out, int n_rows, int k) {
    size_t n_blocks = (size_t)n_rows * (size_t)(k / ACT_Q8_BLOCK);
    for (size_t b = 0; b < n_blocks; b++) {
        float amax = block_amax(x + b * ACT_Q8_BLOCK), d = amax / 127.0f, inverse = amax > 0 ? 127.0f / amax : 0.0f;
        __m128i halves = quantize_block(x + b * ACT_Q8_BLOCK, inverse, out->q + b * ACT_Q8_BLOCK);
        int low = _mm_cvtsi128_si32(halves), high = _mm_extract_epi32(halves, 2);
        out->d[b] = d;
        out->dsum[b] = d * (float)(low + high);
        out->nsum32[b] = -(low + high);
        out->nsum16[2 * b] = -low;
        out->nsum16[2 * b + 1] = -high;
    }
}
