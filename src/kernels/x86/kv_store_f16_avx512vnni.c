#include <immintrin.h>

#include "kernels/dtype.h"
#include "kernels/kernel_table.h"

/* As dtype_f32_to_f16: saturates at +-65504, every NaN becomes the quiet one of its sign. */
static __m256i f16_of(__m512 x) {
    const __m512i sign = _mm512_set1_epi32((int)0x80000000u), quiet = _mm512_set1_epi32(0x7fc00000);
    __m512i bits = _mm512_castps_si512(x);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    bits = _mm512_mask_or_epi32(bits, is_nan, _mm512_and_si512(bits, sign), quiet);
    x = _mm512_max_ps(_mm512_set1_ps(-65504.0f), _mm512_castsi512_ps(bits)); /* a NaN in second place comes through */
    x = _mm512_min_ps(_mm512_set1_ps(65504.0f), x);
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

void kv_store_f16_avx512vnni(const float *k, const float *v, void *k_block, void *v_block, int slot_idx,
                             int block_tokens, int head_dim) {
    uint16_t *k_out = (uint16_t *)k_block + slot_idx,
             *v_out = (uint16_t *)v_block + (size_t)slot_idx * (size_t)head_dim;
    int d = 0;
    for (; d + 16 <= head_dim; d += 16) {
        uint16_t column[16];
        _mm256_storeu_si256((__m256i *)(v_out + d), f16_of(_mm512_loadu_ps(v + d)));
        _mm256_storeu_si256((__m256i *)column, f16_of(_mm512_loadu_ps(k + d)));
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) k_out[(size_t)(d + i) * (size_t)block_tokens] = column[i];
    }
    for (; d < head_dim; d++) {
        k_out[(size_t)d * (size_t)block_tokens] = dtype_f32_to_f16(k[d]);
        v_out[d] = dtype_f32_to_f16(v[d]);
    }
}
