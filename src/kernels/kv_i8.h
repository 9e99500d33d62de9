/* kv_i8: where a block of the int8 KV cache keeps its bytes and scales.
 *
 * K or V of one (block, layer, kv head) is [block_tokens * head_dim] bytes, then [block_tokens] float scales, one per
 * token. K holds 128 + q as uint8 in [head_dim / 4][block_tokens][4], V holds q as int8 in
 * [block_tokens / 4][head_dim][4], q in -127..127: four neighbours are one operand of a dot instruction, whose one side
 * is unsigned. A value is q times its token's scale.   Thread: any. */
#ifndef KVICK_KERNELS_KV_I8_H
#define KVICK_KERNELS_KV_I8_H

#include <stddef.h>
#include <stdint.h>

#define KV_I8_K_OFFSET 128

static inline size_t kv_i8_k_off(int slot, int d, int block_tokens) {
    return ((size_t)(d / 4) * (size_t)block_tokens + (size_t)slot) * 4 + (size_t)(d % 4);
}

static inline size_t kv_i8_v_off(int slot, int d, int head_dim) {
    return ((size_t)(slot / 4) * (size_t)head_dim + (size_t)d) * 4 + (size_t)(slot % 4);
}

/* From the block's first byte to its scales. */
static inline size_t kv_i8_scales_off(int block_tokens, int head_dim) {
    return (size_t)block_tokens * (size_t)head_dim;
}

/* Of K or of V. */
static inline size_t kv_i8_block_bytes(int block_tokens, int head_dim) {
    return (size_t)block_tokens * ((size_t)head_dim + sizeof(float));
}

#endif
