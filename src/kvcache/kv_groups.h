/* kv_groups: the blocks of all KV groups of one engine, and which of them hold which prefix.
 *
 * Every group has a pool of its own. One index serves all: its nodes are the findable blocks of group 0, and to a node
 * belongs at most one block of every windowed group, the one with the KV of the same tokens. A windowed block may be
 * evicted alone; a node goes together with all that continue it and with their windowed blocks.
 * Thread: engine.   Memory: arrays sized at init, none afterwards.
 * Invariant: kv_groups_check. */
#ifndef KVICK_KVCACHE_KV_GROUPS_H
#define KVICK_KVCACHE_KV_GROUPS_H

#include "kvcache/kv_layers.h"
#include "kvcache/prefix_index.h"

struct kv_group {
    int window; /* 0: all blocks are kept */
    struct block_pool pool;
    block_id *of_node; /* windowed: [group 0's n_blocks] the block that belongs to a node, or BLOCK_NONE */
    block_id *node_of; /* windowed: [pool.n_blocks] the reverse; BLOCK_NONE unless the block is findable */
};

struct kv_groups {
    int n_groups, block_tokens, tile_tokens;
    struct kv_group groups[KV_LAYERS_MAX_GROUPS];
    bool has_index;
    struct prefix_index index; /* over group 0 */
    block_id *found;           /* [group 0's n_blocks] scratch of a lookup */
};

struct kv_groups_options {
    int n_groups, block_tokens;
    int tile_tokens; /* attention reads whole tiles at absolute positions: blocks are kept from the tile on in which a
                      window begins */
    int windows[KV_LAYERS_MAX_GROUPS];  /* windows[0] == 0 */
    int n_blocks[KV_LAYERS_MAX_GROUPS]; /* limit per group */
    bool has_index;                     /* prefix cache */
    const void *identity;               /* of the index, see prefix_index_init */
    size_t n_identity;
    prefix_hash_fn *hash;
};

/* Errors: STATUS_INVALID unless every number is positive, STATUS_NOMEM; the groups are then empty and may be passed to
 * deinit. The struct must not move afterwards. */
WARN_UNUSED enum status kv_groups_init(struct kv_groups *groups, const struct kv_groups_options *options);
void kv_groups_deinit(struct kv_groups *groups);

/* The first block that a row at pos may load. */
int kv_groups_first_block(const struct kv_groups *groups, int group, int pos);

/* Blocks of a group that a sequence of n_tokens holds at most, when a step computes at most max_rows of them. */
int kv_groups_n_peak(const struct kv_groups *groups, int group, int n_tokens, int max_rows);

/* The windowed group's block that belongs to a findable block of group 0 (for group 0 that one itself), or BLOCK_NONE.
 */
block_id kv_groups_of_node(const struct kv_groups *groups, int group, block_id node);

/* Makes a held block findable as the node's; the node has none in this group yet. */
void kv_groups_attach(struct kv_groups *groups, int group, block_id node, block_id block);

/* Walks everything: NULL if the invariants hold, else the one that is broken. */
WARN_UNUSED const char *kv_groups_check(const struct kv_groups *groups);

#endif
