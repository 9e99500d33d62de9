#include "kernels/kernel_table.h"
#include "kernels/kv_i8.h"
#include "kernels/scalar/quantize_i8_scalar.h"

static void put_scale(void *block, float scale, int slot_idx, int block_tokens, int head_dim) {
    ((float *)((char *)block + kv_i8_scales_off(block_tokens, head_dim)))[slot_idx] = scale;
}

void kv_store_i8_scalar(const float *k, const float *v, void *k_block, void *v_block, int slot_idx, int block_tokens,
                        int head_dim) {
    uint8_t *k_out = k_block;
    int8_t *v_out = v_block, q[ATTENTION_MAX_HEAD_DIM];
    put_scale(k_block, quantize_i8_scalar(k, q, head_dim), slot_idx, block_tokens, head_dim);
    for (int d = 0; d < head_dim; d++) k_out[kv_i8_k_off(slot_idx, d, block_tokens)] = (uint8_t)(KV_I8_K_OFFSET + q[d]);
    put_scale(v_block, quantize_i8_scalar(v, q, head_dim), slot_idx, block_tokens, head_dim);
    for (int d = 0; d < head_dim; d++) v_out[kv_i8_v_off(slot_idx, d, head_dim)] = q[d];
}
