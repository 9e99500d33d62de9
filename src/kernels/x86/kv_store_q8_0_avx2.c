#include <string.h>

#include "kernels/kernel_table.h"
#include "kernels/kv_i8.h"
#include "kernels/kv_q8_0.h"
#include "kernels/x86/quantize_i8_avx2.h"

static void put_scale(void *block, float scale, int slot_idx, int part, int block_tokens, int head_dim) {
    uint16_t half = dtype_f32_to_f16(scale);
    memcpy((char *)block + kv_q8_0_scale_off(slot_idx, part, block_tokens, head_dim), &half, sizeof half);
}

void kv_store_q8_0_avx2(const float *k, const float *v, void *k_block, void *v_block, int slot_idx, int block_tokens,
                        int head_dim) {
    for (int part = 0, begin = 0; begin < head_dim; part++, begin += KV_Q8_0_DIMS) {
        int16_t q[KV_Q8_0_DIMS];
        uint8_t *k_out = (uint8_t *)k_block + kv_i8_k_off(slot_idx, begin, block_tokens);
        int8_t *v_out = (int8_t *)v_block + kv_i8_v_off(slot_idx, begin, head_dim);
        put_scale(k_block, quantize_i8_avx2(k + begin, q, KV_Q8_0_DIMS), slot_idx, part, block_tokens, head_dim);
        for (int d = 0; d < KV_Q8_0_DIMS; d += 4) {
            uint8_t quad[4];
            for (int i = 0; i < 4; i++) quad[i] = (uint8_t)(KV_I8_K_OFFSET + q[d + i]);
            memcpy(k_out + (size_t)d * (size_t)block_tokens, quad, sizeof quad);
        }
        put_scale(v_block, quantize_i8_avx2(v + begin, q, KV_Q8_0_DIMS), slot_idx, part, block_tokens, head_dim);
        for (int d = 0; d < KV_Q8_0_DIMS; d++) v_out[4 * d] = (int8_t)q[d];
    }
}
