#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

static float block_amax(const float *src) {
    __m512 amax = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(src)), _mm512_abs_ps(_mm512_loadu_ps(src + 16)));
    return _mm512_reduce_max_ps(amax);
}

/* Returns the sums of both halves in lanes 0 and 2. */
static __m128i quantize_block(const float *src, float inverse, int8_t *out) {
    __m512 factor = _mm512_set1_ps(inverse);
    __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(src), factor));
    __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(src + 16), factor));
    __m256i q = _mm256_set_m128i(_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low));
    _mm256_storeu_si256((__m256i *)out, q);
    __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    __m128i pairs = _mm_hadd_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return _mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0xb1));
}

/* Blocks are taken 16 at a time, so that divisions are done in lanes. */
void quantize_q8_avx512vnni(const float *x, struct act_q8 *out, int n_rows, int k) {
    int64_t n_blocks = (int64_t)n_rows * (k / ACT_Q8_BLOCK);
    const __m512 q_max = _mm512_set1_ps(127.0f);
    for (int64_t first = 0; first < n_blocks; first += 16) {
        int n = n_blocks - first < 16 ? (int)(n_blocks - first) : 16;
        __mmask16 mask = lanes_avx512vnni_first(n);
        float inverse[16], amax[16] = {0};
        int32_t sum[16] = {0};
        for (int i = 0; i < n; i++) amax[i] = block_amax(x + (first + i) * ACT_Q8_BLOCK);
        __m512 amaxs = _mm512_loadu_ps(amax), d = _mm512_div_ps(amaxs, q_max);
        __mmask16 is_positive = _mm512_cmp_ps_mask(amaxs, _mm512_setzero_ps(), _CMP_GT_OQ);
        _mm512_storeu_ps(inverse, _mm512_maskz_div_ps(is_positive, q_max, amaxs));
        for (int i = 0; i < n; i++) {
            int64_t b = first + i;
            __m128i halves = quantize_block(x + b * ACT_Q8_BLOCK, inverse[i], out->q + b * ACT_Q8_BLOCK);
            int low = _mm_cvtsi128_si32(halves), high = _mm_extract_epi32(halves, 2);
            out->nsum16[2 * b] = -low;
            out->nsum16[2 * b + 1] = -high;
            sum[i] = low + high;
        }
        __m512i sums = _mm512_loadu_si512(sum);
        _mm512_mask_storeu_ps(out->d + first, mask, d);
        _mm512_mask_storeu_ps(out->dsum + first, mask, _mm512_mul_ps(d, _mm512_cvtepi32_ps(sums)));
        _mm512_mask_storeu_epi32(out->nsum32 + first, mask, _mm512_sub_epi32(_mm512_setzero_si512(), sums));
    }
}
