#include <string.h>

#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

#define CHUNK 16 /* blocks taken together, so that divisions and sums are done in lanes */

/* The greater of both halves of each: a in the lower 8 lanes, b in the upper 8. */
static inline __m512 max_of_halves(__m512 a, __m512 b) {
    return _mm512_max_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* The same for quarters: a's two results first, then b's. */
static inline __m512 max_of_quarters(__m512 a, __m512 b) {
    return _mm512_max_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* Lane i: the largest magnitude of block i, i < n. */
static __m512 chunk_amax(const float *src, int n) {
    __m512 m[CHUNK];
    for (int i = 0; i < CHUNK; i++) {
        const float *block = src + (i < n ? i : 0) * ACT_Q8_BLOCK;
        m[i] = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(block)), _mm512_abs_ps(_mm512_loadu_ps(block + 16)));
    }
    for (int i = 0; i < 4; i++) { /* now each quarter of m[i] is one of the blocks i, i + 4, i + 8, i + 12 */
        m[i] = max_of_quarters(max_of_halves(m[i], m[i + 4]), max_of_halves(m[i + 8], m[i + 12]));
    }
    __m512 a = _mm512_max_ps(_mm512_unpacklo_ps(m[0], m[1]), _mm512_unpackhi_ps(m[0], m[1]));
    __m512 b = _mm512_max_ps(_mm512_unpacklo_ps(m[2], m[3]), _mm512_unpackhi_ps(m[2], m[3]));
    return _mm512_max_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}

/* Returns the sums of each 4 neighbours. */
static inline __m256i quantize_block(const float *src, float inverse, int8_t *out) {
    __m512 factor = _mm512_set1_ps(inverse);
    __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(src), factor));
    __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(src + 16), factor));
    __m256i q = _mm256_set_m128i(_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low));
    _mm256_storeu_si256((__m256i *)out, q);
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
}

/* Minus the sums of the 16 halves of 8 blocks, in order. */
static inline __m512i negative_halves(const __m256i sums[8]) {
    __m256i quad[2];
    for (int i = 0; i < 2; i++, sums += 4)
        quad[i] = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    /* hadd works on 128-bit halves: the first halves of 4 blocks, then the second ones. */
    const __m512i order = _mm512_set_epi32(15, 11, 14, 10, 13, 9, 12, 8, 7, 3, 6, 2, 5, 1, 4, 0);
    __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(quad[0]), quad[1], 1);
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_permutexvar_epi32(order, halves));
}

/* Sums of neighbours. */
static inline __m256i pair_sums(__m512i x) {
    return _mm512_cvtepi64_epi32(_mm512_add_epi32(x, _mm512_srli_epi64(x, 32)));
}

static void quantize_chunk(const float *x, struct act_q8 *out, int64_t first, int n) {
    const __m512 q_max = _mm512_set1_ps(127.0f);
    const __mmask16 mask = lanes_avx512vnni_first(n);
    float inverse[CHUNK];
    __m256i sums[CHUNK];
    x += first * ACT_Q8_BLOCK;
    __m512 amax = chunk_amax(x, n), d = _mm512_div_ps(amax, q_max);
    __mmask16 is_positive = _mm512_cmp_ps_mask(amax, _mm512_setzero_ps(), _CMP_GT_OQ);
    _mm512_storeu_ps(inverse, _mm512_maskz_div_ps(is_positive, q_max, amax));
    int8_t *q = out->q + first * ACT_Q8_BLOCK;
    if (n < CHUNK) memset(sums, 0, sizeof sums);
    for (int i = 0; i < n; i++) sums[i] = quantize_block(x + i * ACT_Q8_BLOCK, inverse[i], q + i * ACT_Q8_BLOCK);
    __m512i low = negative_halves(sums), high = negative_halves(sums + 8);
    __m512i minus = _mm512_inserti64x4(_mm512_castsi256_si512(pair_sums(low)), pair_sums(high), 1);
    __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), minus));
    _mm512_mask_storeu_epi32(out->nsum16 + 2 * first, lanes_avx512vnni_first(2 * n), low);
    if (n > 8) _mm512_mask_storeu_epi32(out->nsum16 + 2 * first + 16, lanes_avx512vnni_first(2 * n - 16), high);
    _mm512_mask_storeu_ps(out->d + first, mask, d);
    _mm512_mask_storeu_ps(out->dsum + first, mask, _mm512_mul_ps(d, sum));
    _mm512_mask_storeu_epi32(out->nsum32 + first, mask, minus);
}

void quantize_q8_avx512vnni(const float *x, struct act_q8 *out, int n_rows, int k) {
    const int64_t n_blocks = (int64_t)n_rows * (k / ACT_Q8_BLOCK);
    for (int64_t first = 0; first < n_blocks; first += CHUNK)
        quantize_chunk(x, out, first, n_blocks - first < CHUNK ? (int)(n_blocks - first) : CHUNK);
}
