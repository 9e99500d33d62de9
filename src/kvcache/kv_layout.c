#include "kvcache/kv_layout.h"

#include <stdint.h>

#define SHIFT_BYTES 4096

/* From one block to the next: an odd number of SHIFT_BYTES where it is many, so that one head's keys in successive
 * blocks, which a fold reads together, do not all meet in the same sets of a cache. */
static size_t stride_of(size_t used_bytes) {
    if (used_bytes < 16 * SHIFT_BYTES || used_bytes > SIZE_MAX / 2) return used_bytes;
    return ((used_bytes + SHIFT_BYTES - 1) / SHIFT_BYTES | 1) * SHIFT_BYTES;
}

size_t kv_layout_vector_bytes(enum dtype dtype, int head_dim) {
    int n_blocks = head_dim / dtype_block_elements(dtype);
    size_t scale_bytes = dtype == DTYPE_I8 ? sizeof(float) : 0; /* a block of q8_0 has its own */
    return (size_t)n_blocks * (size_t)dtype_block_bytes(dtype) + scale_bytes;
}

enum status kv_layout_check(enum dtype dtype, int head_dim, struct status_note *note) {
    if (dtype != DTYPE_F32 && dtype != DTYPE_F16 && dtype != DTYPE_I8 && dtype != DTYPE_Q8_0)
        return status_fail(note, STATUS_INVALID, "kv cache type %s has no layout (known: F16, F32, I8, Q8_0)",
                           dtype_name(dtype));
    if (head_dim < 16 || head_dim % 16)
        return status_fail(note, STATUS_INVALID, "head size %d is no multiple of 16", head_dim);
    if (head_dim % dtype_block_elements(dtype))
        return status_fail(note, STATUS_INVALID,
                           "head size %d is no multiple of 32, the block of KV type q8_0; int8 and f16 take it",
                           head_dim);
    return STATUS_OK;
}

enum status kv_layout_init(struct kv_layout *layout, enum dtype dtype, int n_layers, int n_kv_heads, int head_dim,
                           int block_tokens, int n_blocks, struct status_note *note) {
    *layout = (struct kv_layout){0};
    enum status status = kv_layout_check(dtype, head_dim, note);
    if (status) return status;
    if (block_tokens != 16 && block_tokens != 32 && block_tokens != 64)
        return status_fail(note, STATUS_INVALID, "kv block of %d tokens (known: 16, 32, 64)", block_tokens);
    if (n_layers < 1 || n_kv_heads < 1 || n_blocks < 1)
        return status_fail(note, STATUS_INVALID, "kv cache of %d layers, %d heads, %d blocks", n_layers, n_kv_heads,
                           n_blocks);
    size_t head_bytes = 2 * kv_layout_vector_bytes(dtype, head_dim) * (size_t)block_tokens;
    size_t block_bytes, stride_bytes, pool_bytes;
    if (__builtin_mul_overflow(head_bytes, (size_t)n_kv_heads, &block_bytes) ||
        __builtin_mul_overflow(block_bytes, (size_t)n_layers, &stride_bytes) ||
        __builtin_mul_overflow(stride_of(stride_bytes), (size_t)n_blocks, &pool_bytes) || pool_bytes > SIZE_MAX / 4)
        return status_fail(note, STATUS_LIMIT, "kv cache of %d layers, %d heads, %d blocks is too large", n_layers,
                           n_kv_heads, n_blocks);
    *layout = (struct kv_layout){.dtype = dtype,
                                 .n_layers = n_layers,
                                 .n_kv_heads = n_kv_heads,
                                 .head_dim = head_dim,
                                 .block_tokens = block_tokens,
                                 .n_blocks = n_blocks,
                                 .head_bytes = head_bytes,
                                 .block_bytes = block_bytes,
                                 .stride_bytes = stride_of(stride_bytes),
                                 .pool_bytes = pool_bytes};
    return STATUS_OK;
}

size_t kv_layout_k_off(const struct kv_layout *layout, int layer, uint32_t block_idx, int kv_head) {
    REQUIRE(layer >= 0 && layer < layout->n_layers && block_idx < (uint32_t)layout->n_blocks && kv_head >= 0 &&
            kv_head < layout->n_kv_heads);
    return (size_t)block_idx * layout->stride_bytes + (size_t)layer * layout->block_bytes +
           (size_t)kv_head * layout->head_bytes;
}

size_t kv_layout_v_off(const struct kv_layout *layout, int layer, uint32_t block_idx, int kv_head) {
    return kv_layout_k_off(layout, layer, block_idx, kv_head) + layout->head_bytes / 2;
}

size_t kv_layout_token_bytes(const struct kv_layout *layout) {
    return layout->block_bytes / (size_t)layout->block_tokens * (size_t)layout->n_layers;
}
