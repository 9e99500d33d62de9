#include <string.h>

#include "kernels/kernel_table.h"
#include "kernels/kv_i8.h"
#include "kernels/x86/quantize_i8_avx2.h"

static void put_scale(void *block, float scale, int slot_idx, int block_tokens, int head_dim) {
    ((float *)((char *)block + kv_i8_scales_off(block_tokens, head_dim)))[slot_idx] = scale;
}

void kv_store_i8_avx2(const float *k, const float *v, void *k_block, void *v_block, int slot_idx, int block_tokens,
                      int head_dim) {
    int16_t q[ATTENTION_MAX_HEAD_DIM];
    uint8_t *k_out = (uint8_t *)k_block + kv_i8_k_off(slot_idx, 0, block_tokens);
    int8_t *v_out = (int8_t *)v_block + kv_i8_v_off(slot_idx, 0, head_dim);
    put_scale(k_block, quantize_i8_avx2(k, q, head_dim), slot_idx, block_tokens, head_dim);
    for (int d = 0; d < head_dim; d += 4) {
        uint8_t quad[4];
        for (int i = 0; i < 4; i++) quad[i] = (uint8_t)(KV_I8_K_OFFSET + q[d + i]);
        memcpy(k_out + (size_t)d * (size_t)block_tokens, quad, sizeof quad);
    }
    put_scale(v_block, quantize_i8_avx2(v, q, head_dim), slot_idx, block_tokens, head_dim);
    for (int d = 0; d < head_dim; d++) v_out[4 * d] = (int8_t)q[d];
}
