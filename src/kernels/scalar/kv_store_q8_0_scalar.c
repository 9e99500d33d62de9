#include <string.h>

#include "kernels/kernel_table.h"
#include "kernels/kv_i8.h"
#include "kernels/kv_q8_0.h"
#include "kernels/scalar/quantize_i8_scalar.h"

static void put_scale(void *block, float scale, int slot_idx, int part, int block_tokens, int head_dim) {
    uint16_t half = dtype_f32_to_f16(scale);
    memcpy((char *)block + kv_q8_0_scale_off(slot_idx, part, block_tokens, head_dim), &half, sizeof half);
}

void kv_store_q8_0_scalar(const float *k, const float *v, void *k_block, void *v_block, int slot_idx, int block_tokens,
                          int head_dim) {
    uint8_t *k_out = k_block;
    int8_t *v_out = v_block, q[KV_Q8_0_DIMS];
    for (int part = 0; part * KV_Q8_0_DIMS < head_dim; part++) {
        int begin = part * KV_Q8_0_DIMS;
        put_scale(k_block, quantize_i8_scalar(k + begin, q, KV_Q8_0_DIMS), slot_idx, part, block_tokens, head_dim);
        for (int i = 0; i < KV_Q8_0_DIMS; i++)
            k_out[kv_i8_k_off(slot_idx, begin + i, block_tokens)] = (uint8_t)(KV_I8_K_OFFSET + q[i]);
        put_scale(v_block, quantize_i8_scalar(v + begin, q, KV_Q8_0_DIMS), slot_idx, part, block_tokens, head_dim);
        for (int i = 0; i < KV_Q8_0_DIMS; i++) v_out[kv_i8_v_off(slot_idx, begin + i, head_dim)] = q[i];
    }
}
