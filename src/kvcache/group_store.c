#include "kvcache/group_store.h"

enum status group_store_init(struct group_store *store, const struct kv_layers *layers,
                             const struct group_store_shape *shape, const int *n_blocks, struct status_note *note) {
    *store = (struct group_store){.layers = *layers};
    for (int g = 0; g < layers->n_groups; g++) {
        struct kv_layout layout;
        enum status status = kv_layout_init(&layout, shape->dtype, layers->n_in_group[g], shape->n_kv_heads,
                                            shape->head_dim, shape->block_tokens, n_blocks[g], note);
        if (!status) {
            status = block_store_init(&store->stores[g], &layout);
            if (status) status_fail(note, status, "no memory for a KV cache of %zu bytes", layout.pool_bytes);
        }
        if (!status) continue;
        group_store_deinit(store);
        return status;
    }
    return STATUS_OK;
}

void group_store_deinit(struct group_store *store) {
    for (int g = 0; g < KV_LAYERS_MAX_GROUPS; g++)
        if (store->stores[g].bytes) block_store_deinit(&store->stores[g]);
    *store = (struct group_store){0};
}

struct block_store *group_store_of(struct group_store *store, int layer) {
    REQUIRE(layer >= 0 && layer < store->layers.n_layers);
    return &store->stores[store->layers.group_of[layer]];
}

int group_store_place(const struct group_store *store, int layer) {
    REQUIRE(layer >= 0 && layer < store->layers.n_layers);
    return store->layers.place_of[layer];
}

size_t group_store_bytes(const struct group_store *store) {
    size_t n_bytes = 0;
    for (int g = 0; g < store->layers.n_groups; g++) n_bytes += store->stores[g].layout.pool_bytes;
    return n_bytes;
}
