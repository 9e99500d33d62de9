/* attention_i8_tile: which keys of the int8 or q8_0 attention a tile covers and where they lie; the same for every
 * tier. */
#ifndef KVICK_KERNELS_X86_ATTENTION_I8_TILE_H
#define KVICK_KERNELS_X86_ATTENTION_I8_TILE_H

#include "kernels/kv_i8.h"
#include "kernels/kv_q8_0.h"
#include "kernels/x86/attention_tile.h"

#define ATTENTION_I8_GROUP 16 /* keys that surely lie in one block */
#define ATTENTION_I8_TILE_GROUPS (ATTENTION_TILE_KEYS / ATTENTION_I8_GROUP)

/* The tile: keys [begin, end) of those from key on are seen by some row. k, v, k_scales, v_scales point to each group
 * of 16 keys, groups that nobody sees to a neighbour that somebody does. */
struct attention_i8_tile {
    int key, begin, end;
    bool is_whole; /* every row sees all 64 keys */
    const uint8_t *k[ATTENTION_I8_TILE_GROUPS];
    const int8_t *v[ATTENTION_I8_TILE_GROUPS];
    /* 16 floats each for int8; for q8_0 halves, of 32 dims after the other block_tokens apart. */
    const void *k_scales[ATTENTION_I8_TILE_GROUPS], *v_scales[ATTENTION_I8_TILE_GROUPS];
    /* Bytes from each group to the same one of the next tile; 0 if there is none. */
    uintptr_t k_ahead[ATTENTION_I8_TILE_GROUPS], v_ahead[ATTENTION_I8_TILE_GROUPS];
};

/* Points at the groups of the tile that starts with group_begin; no group past group_last is touched. Groups count from
 * the call's key_begin. */
static inline __attribute__((always_inline)) void attention_i8_tile_locate(bool is_q8_0,
                                                                           const struct attention_keys *keys,
                                                                           int group_begin, int group_last,
                                                                           struct attention_i8_tile *tile) {
    const int tokens = keys->block_tokens, per_block = tokens / ATTENTION_I8_GROUP;
    const int first = tile->begin / ATTENTION_I8_GROUP, last = (tile->end - 1) / ATTENTION_I8_GROUP;
    const size_t scales_off = kv_i8_scales_off(tokens, keys->head_dim); /* of both types */
    const size_t scale_bytes = is_q8_0 ? sizeof(uint16_t) : sizeof(float);
    for (int g = 0; g < ATTENTION_I8_TILE_GROUPS; g++) {
        int group = group_begin + (g < first ? first : g > last ? last : g), next = group + ATTENTION_I8_TILE_GROUPS;
        if (next > group_last) next = group;
        int slot = group % per_block * ATTENTION_I8_GROUP;
        const uint8_t *k = keys->k_blocks[group / per_block], *k_next = keys->k_blocks[next / per_block];
        const int8_t *v = keys->v_blocks[group / per_block], *v_next = keys->v_blocks[next / per_block];
        tile->k[g] = k + kv_i8_k_off(slot, 0, tokens);
        tile->v[g] = v + kv_i8_v_off(slot, 0, keys->head_dim);
        tile->k_scales[g] = k + scales_off + (size_t)slot * scale_bytes;
        tile->v_scales[g] = v + scales_off + (size_t)slot * scale_bytes;
        tile->k_ahead[g] = (uintptr_t)k_next - (uintptr_t)k;
        tile->v_ahead[g] = (uintptr_t)v_next - (uintptr_t)v;
    }
}

/* The tile from key on; false if no row sees any of it. */
static inline __attribute__((always_inline)) bool attention_i8_tile_at(bool is_q8_0, const struct attention_rows *rows,
                                                                       const struct attention_keys *keys, int key_begin,
                                                                       int key, int first, int last,
                                                                       struct attention_i8_tile *tile) {
    tile->key = key;
    tile->begin = first > key ? first - key : 0;
    tile->end = last - key + 1 < ATTENTION_TILE_KEYS ? last - key + 1 : ATTENTION_TILE_KEYS;
    if (tile->begin >= tile->end) return false;
    tile->is_whole = true;
    for (int r = 0; r < rows->n_rows; r++)
        tile->is_whole &= rows->first_key[r] <= key && rows->last_key[r] >= key + ATTENTION_TILE_KEYS - 1;
    tile->is_whole &= tile->end == ATTENTION_TILE_KEYS;
    attention_i8_tile_locate(is_q8_0, keys, (key - key_begin) / ATTENTION_I8_GROUP,
                             (last - key_begin) / ATTENTION_I8_GROUP, tile);
    return true;
}

#endif
