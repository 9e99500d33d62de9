#include "kernels/dtype.h"
#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx2.h"

/* As dtype_f32_to_f16: saturates at +-65504, every NaN becomes the quiet one of its sign. */
static __m128i f16_of(__m256 x) {
    const __m256 sign = _mm256_set1_ps(-0.0f), quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    x = _mm256_blendv_ps(x, _mm256_or_ps(_mm256_and_ps(x, sign), quiet), is_nan);
    x = _mm256_max_ps(_mm256_set1_ps(-65504.0f), x); /* a NaN in second place comes through */
    x = _mm256_min_ps(_mm256_set1_ps(65504.0f), x);
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

void kv_store_f16_avx2(const float *k, const float *v, void *k_block, void *v_block, int slot_idx, int block_tokens,
                       int head_dim) {
    uint16_t *k_out = (uint16_t *)k_block + slot_idx,
             *v_out = (uint16_t *)v_block + (size_t)slot_idx * (size_t)head_dim;
    int d = 0;
    for (; d + 8 <= head_dim; d += 8) {
        uint16_t column[8];
        _mm_storeu_si128((__m128i *)(v_out + d), f16_of(_mm256_loadu_ps(v + d)));
        _mm_storeu_si128((__m128i *)column, f16_of(_mm256_loadu_ps(k + d)));
        for (int i = 0; i < 8; i++) k_out[(size_t)(d + i) * (size_t)block_tokens] = column[i];
    }
    for (; d < head_dim; d++) {
        k_out[(size_t)d * (size_t)block_tokens] = dtype_f32_to_f16(k[d]);
        v_out[d] = dtype_f32_to_f16(v[d]);
    }
}
