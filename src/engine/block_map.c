#include "engine/block_map.h"

#include <string.h>

#include "kvcache/kv_pins.h"

static enum block_use use_of(const struct block_pool *pool, const struct kv_pins *pins, int block) {
    const struct block_pool_entry *entry = &pool->entries[block];
    if (entry->n_refs == 0) return entry->is_findable ? BLOCK_USE_REUSABLE : BLOCK_USE_FREE;
    if (pins->n_of_block[0][block]) return BLOCK_USE_PINNED;
    return entry->n_refs > 1 ? BLOCK_USE_SHARED : BLOCK_USE_HELD;
}

void block_map_fill(struct block_map *map, const struct kv_groups *groups, const struct kv_pins *pins) {
    const struct block_pool *pool = &groups->groups[0].pool;
    map->n_blocks = pool->n_blocks;
    map->cell_blocks = (pool->n_blocks + BLOCK_MAP_MAX_CELLS - 1) / BLOCK_MAP_MAX_CELLS;
    map->n_cells = (pool->n_blocks + map->cell_blocks - 1) / map->cell_blocks;
    memset(map->counts, 0, (size_t)map->n_cells * sizeof map->counts[0]);
    for (int i = 0; i < pool->n_blocks; i++) map->counts[i / map->cell_blocks][use_of(pool, pins, i)]++;
    atomic_store_explicit(&map->state, BLOCK_MAP_FILLED, memory_order_release);
}
