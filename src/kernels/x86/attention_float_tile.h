/* attention_float_tile: which keys of the float attention a tile covers and where they lie; the same for every tier.
 *
 * lanes: 8 or 16, a constant at every call. element_bytes: 2 for f16, 4 for f32. */
#ifndef KVICK_KERNELS_X86_ATTENTION_FLOAT_TILE_H
#define KVICK_KERNELS_X86_ATTENTION_FLOAT_TILE_H

#include "kernels/x86/attention_tile.h"

#define ATTENTION_FLOAT_MAX_GROUPS (ATTENTION_TILE_KEYS / 8)

/* The tile: keys [begin, end) of those from key on are seen by some row; k and v point to each group of as many keys as
 * there are lanes, groups that nobody sees to a neighbour that somebody does. */
struct attention_float_tile {
    int key, begin, end;
    const char *k[ATTENTION_FLOAT_MAX_GROUPS], *v[ATTENTION_FLOAT_MAX_GROUPS];
    /* Bytes from each group to the same one of the next tile; 0 if there is none. */
    uintptr_t k_ahead[ATTENTION_FLOAT_MAX_GROUPS], v_ahead[ATTENTION_FLOAT_MAX_GROUPS];
};

/* A group's K or V: bytes of its first element. Groups count from the call's key_begin. */
static inline __attribute__((always_inline)) const char *
attention_float_tile_group(int lanes, const void *const *blocks, int block_tokens, int group, size_t token_bytes) {
    const int per_block = block_tokens / lanes;
    return (const char *)blocks[group / per_block] + (size_t)(group % per_block * lanes) * token_bytes;
}

/* Points k and v at the groups of the tile that starts with group_begin; no group past group_last is touched. */
static inline __attribute__((always_inline)) void attention_float_tile_locate(int lanes, int element_bytes,
                                                                              const struct attention_keys *keys,
                                                                              int group_begin, int group_last,
                                                                              struct attention_float_tile *tile) {
    const size_t k_bytes = (size_t)element_bytes, v_bytes = k_bytes * (size_t)keys->head_dim;
    const int tokens = keys->block_tokens, n_groups = ATTENTION_TILE_KEYS / lanes;
    const int first = tile->begin / lanes, last = (tile->end - 1) / lanes;
    for (int g = 0; g < n_groups; g++) {
        int group = group_begin + (g < first ? first : g > last ? last : g), next = group + n_groups;
        if (next > group_last) next = group;
        tile->k[g] = attention_float_tile_group(lanes, keys->k_blocks, tokens, group, k_bytes);
        tile->v[g] = attention_float_tile_group(lanes, keys->v_blocks, tokens, group, v_bytes);
        const char *k_next = attention_float_tile_group(lanes, keys->k_blocks, tokens, next, k_bytes);
        const char *v_next = attention_float_tile_group(lanes, keys->v_blocks, tokens, next, v_bytes);
        tile->k_ahead[g] = (uintptr_t)k_next - (uintptr_t)tile->k[g];
        tile->v_ahead[g] = (uintptr_t)v_next - (uintptr_t)tile->v[g];
    }
}

/* The tile from key on; first, last: what the rows see of the call. False if no row sees any of it. */
static inline __attribute__((always_inline)) bool attention_float_tile_at(int lanes, int element_bytes,
                                                                          const struct attention_keys *keys,
                                                                          int key_begin, int key, int first, int last,
                                                                          struct attention_float_tile *tile) {
    tile->key = key;
    tile->begin = first > key ? first - key : 0;
    tile->end = last - key + 1 < ATTENTION_TILE_KEYS ? last - key + 1 : ATTENTION_TILE_KEYS;
    if (tile->begin >= tile->end) return false;
    attention_float_tile_locate(lanes, element_bytes, keys, (key - key_begin) / lanes, (last - key_begin) / lanes,
                                tile);
    return true;
}

/* The keys of the tile that a row sees: [*out_first, *out_last], empty if the first is behind the last. */
static inline void attention_float_tile_seen(const struct attention_float_tile *tile, const struct attention_rows *rows,
                                             int row, int *out_first, int *out_last) {
    *out_first = rows->first_key[row] - tile->key, *out_last = rows->last_key[row] - tile->key;
    if (*out_first < tile->begin) *out_first = tile->begin;
    if (*out_last > tile->end - 1) *out_last = tile->end - 1;
}

#endif
