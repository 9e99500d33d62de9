/* kv_table: the blocks of one sequence in every KV group, and its place among the known prefixes.
 *
 * Entry i of a group's table holds positions [i * block_tokens, (i + 1) * block_tokens). All groups reach to the same
 * n_blocks; a windowed group has given back the entries before first[group], which are BLOCK_NONE. Every other entry
 * carries one reference. Entries [0, n_published) can be found by others or are shared with them: final, never written.
 * Use, per step: find or trim, grow, copy what is pending, compute, publish.
 * Thread: engine.   Memory: sized at init, none afterwards. The groups are borrowed and outlive the table. */
#ifndef KVICK_KVCACHE_KV_TABLE_H
#define KVICK_KVCACHE_KV_TABLE_H

#include "kvcache/kv_groups.h"

struct kv_table {
    struct kv_groups *groups;
    int max_blocks;
    block_id *blocks[KV_LAYERS_MAX_GROUPS]; /* [max_blocks] */
    int first[KV_LAYERS_MAX_GROUPS];
    int n_blocks, n_published;
    bool has_cache; /* may use and fill the prefix cache */
    struct prefix_chain chain;
    /* A copy that the next step makes before it computes: block copy_from[group], on which a reference is held, into
     * entry copy_to of every group. */
    bool has_copy;
    int copy_to;
    block_id copy_from[KV_LAYERS_MAX_GROUPS];
};

/* max_tokens: positions at most. Errors: STATUS_NOMEM; the table may then be passed to deinit. */
WARN_UNUSED enum status kv_table_init(struct kv_table *table, struct kv_groups *groups, int max_tokens);

/* The table must be empty. */
void kv_table_deinit(struct kv_table *table);

/* Makes an empty table that of a sequence. salt: NULL = everybody's. */
void kv_table_start(struct kv_table *table, const struct prefix_salt *salt, bool has_cache);

struct kv_found {
    int n_tokens; /* positions whose KV the table has now, counting the copy that is pending */
    enum prefix_miss miss;
    int miss_pos;
};

/* Takes over what is known of the sequence's tokens after n_computed: full blocks of which every group has as much as
 * its window needs, then a copy of one that agrees in part, for which an own block is taken if one is to be had. Own
 * blocks that a known one replaces are given back.
 * tokens: as far as reuse may go; a row that must be run is left out by passing fewer. Blocks before n_computed that
 * are full have been published. A pending copy must have been made. */
void kv_table_find(struct kv_table *table, struct prefix_tokens tokens, int n_computed, struct kv_found *out_found);

/* What kv_table_find would find for a sequence that begins, without taking or holding anything. */
void kv_table_look(struct kv_groups *groups, const struct prefix_salt *salt, struct prefix_tokens tokens,
                   struct kv_found *out_found);

/* Slots for all positions < n_tokens in every group. Errors: STATUS_LIMIT if a pool has too few; nothing has changed
 * then. */
WARN_UNUSED enum status kv_table_grow(struct kv_table *table, int n_tokens);

/* As many of them as are to be had. Returns how many positions have slots then, at most n_tokens. */
int kv_table_grow_some(struct kv_table *table, int n_tokens);

/* Blocks that grow would take from every group. */
int kv_table_n_missing(const struct kv_table *table, int n_tokens);

/* Gives back the blocks that no row from position n_computed on may load. */
void kv_table_trim(struct kv_table *table, int n_computed);

/* The pending copy has been made, or is given up: then the entry holds nothing known. */
void kv_table_end_copy(struct kv_table *table);

/* table, which is empty, gets what parent has of positions < n_tokens, all of them computed and published: full blocks
 * are shared, of a block that is not full a copy is pending. Errors: STATUS_LIMIT if there is no block for the copy;
 * nothing has changed then. */
WARN_UNUSED enum status kv_table_fork(struct kv_table *table, struct kv_table *parent, int n_tokens);

/* tokens: those computed. Blocks that they fill become findable; one whose content is findable already is swapped for
 * it, as equal prefixes have equal bits. */
void kv_table_publish(struct kv_table *table, struct prefix_tokens tokens);

/* The same for the last block, which tokens fill in part; it is found where other tokens begin alike. The table writes
 * nothing after it: it must be released. Does nothing if there is no such block. */
void kv_table_publish_tail(struct kv_table *table, struct prefix_tokens tokens);

/* Gives everything back; what was published stays findable. The table is then as after kv_table_start. */
void kv_table_release(struct kv_table *table);

/* Blocks held in a group. */
int kv_table_n_held(const struct kv_table *table, int group);

/* NULL if the invariants hold, else the one that is broken. */
WARN_UNUSED const char *kv_table_check(const struct kv_table *table);

#endif
