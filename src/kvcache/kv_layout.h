/* kv_layout: where the K and V bytes of a token lie inside the pool.
 *
 * The pool is cut first by block, then by layer, then by kv head; each head of a block has K [head_dim][block_tokens]
 * and then V [block_tokens][head_dim], for int8 and q8_0 as kernels/kv_i8.h and kv_q8_0.h say (exactness rule 5). So a
 * block's tokens are in one place, the first blocks take the first pages, and K and V of one (block, layer, head) are
 * contiguous. One layout per KV group: layers here are those of the group. Thread: any, const once made. */
#ifndef KVICK_KVCACHE_KV_LAYOUT_H
#define KVICK_KVCACHE_KV_LAYOUT_H

#include <stddef.h>

#include "base/status.h"
#include "kernels/dtype.h"

struct kv_layout {
    enum dtype dtype; /* F32, F16, I8 or Q8_0 */
    int n_layers, n_kv_heads, head_dim;
    int block_tokens;
    int n_blocks;
    size_t head_bytes;   /* K and V of one (block, layer, head) */
    size_t block_bytes;  /* of one layer */
    size_t stride_bytes; /* from one block to the next: all layers, and less than 8 KiB that stay unused */
    size_t pool_bytes;
};

/* Errors: STATUS_INVALID for a type without a layout, or a head_dim that is no multiple of 16, of 32 for Q8_0. */
WARN_UNUSED enum status kv_layout_check(enum dtype dtype, int head_dim, struct status_note *note);

/* Errors: those of kv_layout_check; STATUS_INVALID for block_tokens other than 16, 32, 64; STATUS_LIMIT when the
 * pool's size would wrap. */
WARN_UNUSED enum status kv_layout_init(struct kv_layout *layout, enum dtype dtype, int n_layers, int n_kv_heads,
                                       int head_dim, int block_tokens, int n_blocks, struct status_note *note);

/* Byte offsets in the pool. */
size_t kv_layout_k_off(const struct kv_layout *layout, int layer, uint32_t block_idx, int kv_head);
size_t kv_layout_v_off(const struct kv_layout *layout, int layer, uint32_t block_idx, int kv_head);

/* Bytes of one token's K, or V, of one kv head, its scales included. */
size_t kv_layout_vector_bytes(enum dtype dtype, int head_dim);

/* Bytes that one token takes over all layers, K and V. */
size_t kv_layout_token_bytes(const struct kv_layout *layout);

#endif
