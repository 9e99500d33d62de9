#include "kernels/dtype.h"
#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

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
    for (int d = 0; d < head_dim; d += 16) {
        __mmask16 mask = lanes_avx512vnni_first(head_dim - d);
        _mm256_mask_storeu_epi16(v_out + d, mask, f16_of(_mm512_maskz_loadu_ps(mask, v + d)));
        uint16_t column[16];
        _mm256_storeu_si256((__m256i *)column, f16_of(_mm512_maskz_loadu_ps(mask, k + d)));
        for (int i = 0; i < 16 && d + i < head_dim; i++) k_out[(size_t)(d + i) * (size_t)block_tokens] = column[i];
    }
}
