/* kv_q8_0: where a block of the q8_0 KV cache keeps its bytes and scales.
 *
 * The bytes lie as in kv_i8.h; behind them are f16 scales [head_dim / 32][block_tokens], one per token and 32 dims. A
 * value is q times the scale of its token and dims. head_dim is a multiple of 32.   Thread: any. */
#ifndef KVICK_KERNELS_KV_Q8_0_H
#define KVICK_KERNELS_KV_Q8_0_H

#include <stddef.h>
#include <stdint.h>

#define KV_Q8_0_DIMS 32 /* that share a scale */

/* From the block's first byte to the scale of dims 32 * part and up. */
static inline size_t kv_q8_0_scale_off(int slot, int part, int block_tokens, int head_dim) {
    return (size_t)block_tokens * (size_t)head_dim +
           ((size_t)part * (size_t)block_tokens + (size_t)slot) * sizeof(uint16_t);
}

/* Of K or of V. */
static inline size_t kv_q8_0_block_bytes(int block_tokens, int head_dim) {
    return kv_q8_0_scale_off(0, head_dim / KV_Q8_0_DIMS, block_tokens, head_dim);
}

#endif
