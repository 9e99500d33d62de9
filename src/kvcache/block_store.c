#include "kvcache/block_store.h"

#include <string.h>

#include "base/mem.h"

enum status block_store_init(struct block_store *store, const struct kv_layout *layout) {
    *store = (struct block_store){.layout = *layout, .bytes = mem_map_pages(layout->pool_bytes)};
    return store->bytes ? STATUS_OK : STATUS_NOMEM;
}

void block_store_deinit(struct block_store *store) {
    mem_unmap_pages(store->bytes, store->layout.pool_bytes);
    store->bytes = NULL;
}

bool block_store_back(struct block_store *store) {
    size_t left_bytes = store->layout.pool_bytes - store->backed_bytes;
    size_t n_bytes = left_bytes < MEM_HUGE_PAGE_BYTES ? left_bytes : MEM_HUGE_PAGE_BYTES;
    if (n_bytes == 0) return false;
    bool can_go_on = mem_back_pages(store->bytes + store->backed_bytes, n_bytes);
    store->backed_bytes = can_go_on ? store->backed_bytes + n_bytes : store->layout.pool_bytes;
    return store->backed_bytes < store->layout.pool_bytes;
}

void *block_store_k(const struct block_store *store, int layer, uint32_t block_idx, int kv_head) {
    return store->bytes + kv_layout_k_off(&store->layout, layer, block_idx, kv_head);
}

void *block_store_v(const struct block_store *store, int layer, uint32_t block_idx, int kv_head) {
    return store->bytes + kv_layout_v_off(&store->layout, layer, block_idx, kv_head);
}

void block_store_copy(struct block_store *store, uint32_t from_idx, uint32_t to_idx) {
    if (from_idx == to_idx) return;
    memcpy(block_store_k(store, 0, to_idx, 0), block_store_k(store, 0, from_idx, 0), store->layout.stride_bytes);
}
