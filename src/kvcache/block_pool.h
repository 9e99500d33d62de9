/* block_pool: who holds which KV block. Ids only; the bytes are in block_store.
 *
 * A block is in one of three states:
 *   held      n_refs >= 1: sequences, transfers or copies use it
 *   reusable  n_refs == 0 and its content can be found again (prefix_index); in a list, least recently used first
 *   free      n_refs == 0 and its content is given up
 * The generation of a block changes whenever it becomes free, so a stored block_ref shows whether it still means the
 * same content.
 * Thread: engine.   Memory: one array taken at init, none afterwards.
 * Invariant: n_free + n_reusable + n_held == n_blocks (block_pool_check; after every operation with KVICK_HARD).
 * All operations are O(1) per block. Source: PagedAttention, Kwon et al. 2023, section 4. */
#ifndef KVICK_KVCACHE_BLOCK_POOL_H
#define KVICK_KVCACHE_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef uint32_t block_id;

#define BLOCK_NONE UINT32_MAX

/* A block and the content it had when the reference was made. Generations wrap after 2^32 refills of one block. */
struct block_ref {
    block_id id;
    uint32_t generation;
};

/* Told that a reusable block was taken for new content. It is free already and goes to its new holder next; the callee
 * may call block_pool_set_findable, nothing else of the pool. */
typedef void block_pool_evict_fn(void *owner, block_id id);

struct block_pool_entry {
    uint32_t n_refs;
    uint32_t generation;
    block_id next; /* in the free list or the reusable list */
    block_id prev; /* in the reusable list */
    bool is_findable;
};

struct block_pool {
    int n_blocks, n_free, n_reusable, n_held;
    int n_touched; /* blocks from this number on were never taken */
    block_id first_free;
    block_id oldest, newest;          /* ends of the reusable list */
    struct block_pool_entry *entries; /* [n_blocks] */
    block_pool_evict_fn *on_evict;    /* NULL: nobody asks */
    void *evict_owner;
    int64_t n_evicted; /* reusable blocks taken for new content, since init */
};

/* All blocks start free and are first taken in ascending order, so that memory not yet needed stays untouched.
 * Errors: STATUS_INVALID unless n_blocks >= 1, STATUS_NOMEM; the pool is then empty and may be passed to deinit. */
WARN_UNUSED enum status block_pool_init(struct block_pool *pool, int n_blocks);
void block_pool_deinit(struct block_pool *pool);

/* Who is told about evictions: one listener, borrowed, NULL to end. */
void block_pool_listen(struct block_pool *pool, block_pool_evict_fn *on_evict, void *owner);

/* Takes n blocks, first free ones (last freed first), then reusable ones, least recently released first.
 * out_ids: [n], written only on STATUS_OK; each leaves with one reference held by the caller and is not findable.
 * Blocks that a lookup found must be acquired before, or this call may hand them out.
 * Errors: STATUS_LIMIT if fewer than n can be had; then nothing has changed.   Cost: O(n). */
WARN_UNUSED enum status block_pool_take(struct block_pool *pool, int n, block_id *out_ids);

/* One more reference to a held block, or the first one to a reusable block. Never for a free one. */
void block_pool_acquire(struct block_pool *pool, block_id id);

/* One reference less. The last one makes the block reusable (as the most recently used) if it is findable, else free.
 */
void block_pool_release(struct block_pool *pool, block_id id);

/* Releases the blocks of one sequence, last first: the ends of prefixes age before their beginnings, so that an
 * eviction never cuts a prefix in the middle. Sequences should end through this.   Cost: O(n). */
void block_pool_release_all(struct block_pool *pool, int n, const block_id *ids);

/* Said by the prefix index when a held block's content becomes findable, and when any block's content no longer is; a
 * reusable block then becomes free. */
void block_pool_set_findable(struct block_pool *pool, block_id id, bool is_findable);

/* Blocks that block_pool_take could give now. */
int block_pool_n_available(const struct block_pool *pool);

/* References to a block; 0 if it is reusable or free. */
int block_pool_n_refs(const struct block_pool *pool, block_id id);

bool block_pool_is_findable(const struct block_pool *pool, block_id id);

struct block_ref block_pool_ref(const struct block_pool *pool, block_id id);

/* True while the block has not become free since the reference was made. False for BLOCK_NONE. */
bool block_pool_is_current(const struct block_pool *pool, struct block_ref ref);

/* Walks everything: NULL if the invariants hold, else the one that is broken.   Cost: O(n_blocks). */
WARN_UNUSED const char *block_pool_check(const struct block_pool *pool);

#endif
