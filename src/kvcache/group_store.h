/* group_store: the bytes of all KV groups: a block_store for each, and where a layer of the model lies.
 *
 * Thread and memory as block_store. */
#ifndef KVICK_KVCACHE_GROUP_STORE_H
#define KVICK_KVCACHE_GROUP_STORE_H

#include "kvcache/block_store.h"
#include "kvcache/kv_layers.h"

struct group_store {
    struct kv_layers layers;
    struct block_store stores[KV_LAYERS_MAX_GROUPS];
};

/* What all groups have in common. */
struct group_store_shape {
    enum dtype dtype;
    int n_kv_heads, head_dim, block_tokens;
};

/* n_blocks: [layers->n_groups]. Errors: those of kv_layout_init; STATUS_NOMEM. The store is then empty and may be
 * passed to deinit. */
WARN_UNUSED enum status group_store_init(struct group_store *store, const struct kv_layers *layers,
                                         const struct group_store_shape *shape, const int *n_blocks,
                                         struct status_note *note);
void group_store_deinit(struct group_store *store);

/* The blocks of a model's layer; it is layer number group_store_place there. */
struct block_store *group_store_of(struct group_store *store, int layer);
int group_store_place(const struct group_store *store, int layer);

/* Bytes of all groups together. */
size_t group_store_bytes(const struct group_store *store);

#endif
