/* block_store: the bytes of all KV blocks.
 *
 * Thread: a block's bytes have one writer, the forward that fills its slots.   Memory: one reservation at init, backed
 * by pages as they are first written or by block_store_back. */
#ifndef KVICK_KVCACHE_BLOCK_STORE_H
#define KVICK_KVCACHE_BLOCK_STORE_H

#include <stdbool.h>

#include "kvcache/kv_layout.h"

struct block_store {
    struct kv_layout layout;
    char *bytes; /* [layout.pool_bytes] */
    size_t backed_bytes;
};

/* Errors: STATUS_NOMEM. */
WARN_UNUSED enum status block_store_init(struct block_store *store, const struct kv_layout *layout);
void block_store_deinit(struct block_store *store);

/* Has the system back the next 2 MiB of the lowest blocks, which are used first, so that no step waits for pages. For
 * moments without work: well below a millisecond. False when nothing is left to do. */
bool block_store_back(struct block_store *store);

/* K and V of one (layer, block, kv head), laid out as kv_layout.h says. */
void *block_store_k(const struct block_store *store, int layer, uint32_t block_idx, int kv_head);
void *block_store_v(const struct block_store *store, int layer, uint32_t block_idx, int kv_head);

/* Copies one block, all layers; for a sequence that continues inside a block that others share. */
void block_store_copy(struct block_store *store, uint32_t from_idx, uint32_t to_idx);

#endif
