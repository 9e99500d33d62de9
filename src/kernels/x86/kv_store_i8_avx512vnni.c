#include <string.h>

#include "kernels/kernel_table.h"
#include "kernels/x86/attention_i8_avx512vnni.h"

static void put_scale(void *block, float scale, int slot_idx, int block_tokens, int head_dim) {
    ((float *)((char *)block + kv_i8_scales_off(block_tokens, head_dim)))[slot_idx] = scale;
}

void kv_store_i8_avx512vnni(const float *k, const float *v, void *k_block, void *v_block, int slot_idx,
                            int block_tokens, int head_dim) {
    _Alignas(64) int8_t q[MAX_DIM];
    uint8_t *k_out = (uint8_t *)k_block + kv_i8_k_off(slot_idx, 0, block_tokens);
    int8_t *v_out = (int8_t *)v_block + kv_i8_v_off(slot_idx / 4 * 4, 0, head_dim);
    put_scale(k_block, attention_i8_avx512vnni_quantize(k, q, head_dim), slot_idx, block_tokens, head_dim);
    for (int d = 0; d < head_dim; d += 4) {
        uint32_t quad;
        memcpy(&quad, q + d, sizeof quad);
        quad ^= 0x80808080u; /* 128 + q */
        memcpy(k_out + (size_t)d * (size_t)block_tokens, &quad, sizeof quad);
    }
    put_scale(v_block, attention_i8_avx512vnni_quantize(v, q, head_dim), slot_idx, block_tokens, head_dim);
    /* One byte of each four; its neighbours belong to tokens that another thread may be writing. */
    const __mmask64 is_slot = UINT64_C(0x1111111111111111) << slot_idx % 4;
    for (int d = 0; d < head_dim; d += LANES) {
        __m512i spread = _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(q + d)));
        _mm512_mask_storeu_epi8(v_out + 4 * d, is_slot, _mm512_slli_epi32(spread, 8 * (slot_idx % 4)));
    }
}
