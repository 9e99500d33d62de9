/* prefix_index: which block holds the KV of which prefix.
 *
 * A tree of full blocks under one root per salt. A block is findable if its whole prefix is. Its key is
 * SHA-256(parent's key, tokens), the root's SHA-256(identity, salt). The key only says where to look: a block is found
 * if its parent is the block found before it (at the root: its salt is the same) and all its tokens are equal, so no
 * collision can serve other KV, and tenants with different salts never meet.
 * A prefix has one findable block. Who computes it a second time is told which it is (PREFIX_PUBLISH_TWIN).
 * Dropping a block drops all that continue it, so that what is findable can also be reached.
 * The last block of a sequence that ended may be a tail: a leaf that holds fewer tokens and serves partial matches
 * only. Thread: engine.   Memory: arrays sized at init, none afterwards. The pool is borrowed and must outlive the
 * index. Invariant: prefix_index_check; after every operation with KVICK_HARD. */
#ifndef KVICK_KVCACHE_PREFIX_INDEX_H
#define KVICK_KVCACHE_PREFIX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "kvcache/block_pool.h"

#define PREFIX_SALT_BYTES 32
#define PREFIX_TOKEN_BYTES 12  /* id u32, extra u64, little-endian: what is hashed is what is stored and compared */
#define PREFIX_MAX_SIBLINGS 64 /* continuations of one prefix that a partial match looks at, newest first */

/* Whose prefixes these are: a digest that the caller made of tenant and salt. All zero: everybody's. */
struct prefix_salt {
    uint8_t bytes[PREFIX_SALT_BYTES];
};

/* Signature of hash_sha256; tests give a constant to prove that only speed depends on it. */
typedef void prefix_hash_fn(const void *a, size_t n_a, const void *b, size_t n_b, uint8_t out[HASH_SHA256_BYTES]);

/* A sequence's tokens from its first one. Borrowed for the call. */
struct prefix_tokens {
    const uint32_t *ids;    /* [n_tokens] */
    const uint64_t *extras; /* [n_tokens] what besides the id decides the KV (adapter, image); NULL: all 0 */
    int n_tokens;
};

/* How far a sequence has come in the tree; plain values that the sequence keeps, so that no block is hashed again. */
struct prefix_chain {
    uint8_t key[HASH_SHA256_BYTES]; /* of the last block, or of the root */
    struct prefix_salt salt;
    struct block_ref tip; /* the findable block at the end; id BLOCK_NONE at the root */
    int n_blocks;         /* from the root to tip */
};

/* Why a lookup ended before the last full block. Another tenant's prefixes are never a reason: that would tell of them.
 */
enum prefix_miss {
    PREFIX_MISS_NONE,    /* it did not: all full blocks (or max_blocks) were found */
    PREFIX_MISS_NEW,     /* nothing findable goes on like this */
    PREFIX_MISS_EDITED,  /* something findable begins the block alike and differs at miss_pos */
    PREFIX_MISS_EVICTED, /* was findable, its block was given away since (from a memory of the last evictions) */
    PREFIX_MISS_STALE    /* the chain's tip is no longer findable: start a new chain */
};

struct prefix_match {
    int n_found_blocks; /* written to out_blocks by this call */
    enum prefix_miss miss;
    int miss_pos; /* first token position that nothing findable covers */
    block_id
        partial_block; /* the findable block that agrees longest with the tokens after the found ones, or BLOCK_NONE */
    int n_partial_tokens; /* of it, < block_tokens or cut by n_tokens; 0 if BLOCK_NONE */
};

enum prefix_publish { PREFIX_PUBLISH_DONE, PREFIX_PUBLISH_TWIN, PREFIX_PUBLISH_STALE };

/* Told that a block is no longer findable. The callee may not call the index. */
typedef void prefix_drop_fn(void *owner, block_id block);

struct prefix_node;

struct prefix_index {
    struct block_pool *pool;
    prefix_drop_fn *on_drop; /* NULL: nobody asks */
    void *drop_owner;
    prefix_hash_fn *hash;
    int block_tokens;
    size_t content_bytes; /* block_tokens * PREFIX_TOKEN_BYTES */
    int n_findable;
    uint32_t bucket_mask;
    uint8_t identity[HASH_SHA256_BYTES];
    struct prefix_node *nodes; /* [n_blocks], by block id */
    uint8_t *contents;         /* [n_blocks][content_bytes] */
    uint8_t *wanted;           /* [content_bytes] the block looked for */
    block_id *buckets;         /* [bucket_mask + 1] by key */
    block_id *roots;           /* [bucket_mask + 1] first blocks, by their root's key */
    uint64_t *evicted_keys;    /* [bucket_mask + 1] by key, the last one to fall there */
};

/* identity: what makes KV bytes comparable at all (model and NUMERICS options), any bytes. Listens to the pool.
 * Errors: STATUS_INVALID unless block_tokens >= 1, STATUS_NOMEM; the index is then empty and may be passed to deinit.
 */
WARN_UNUSED enum status prefix_index_init(struct prefix_index *index, struct block_pool *pool, int block_tokens,
                                          const void *identity, size_t n_identity, prefix_hash_fn *hash);

/* Everything becomes unfindable; reusable blocks become free. */
void prefix_index_deinit(struct prefix_index *index);

/* Who is told about dropped blocks: one listener, borrowed, NULL to end. */
void prefix_index_listen(struct prefix_index *index, prefix_drop_fn *on_drop, void *owner);

/* Puts a sequence's chain at the root. salt: NULL = everybody's. */
void prefix_index_start(const struct prefix_index *index, const struct prefix_salt *salt,
                        struct prefix_chain *out_chain);

/* Finds the longest run of full blocks that continue the chain, moves the chain to its end, and looks there for a block
 * that agrees in part. The found blocks are not held: acquire them before the next block_pool_take, and copy from
 * partial_block before it (or acquire it as well).
 * To keep the last token of a prompt to be run, pass n_tokens one less.
 * out_blocks: [max_blocks].
 * Cost: one hash and compare per found block, one more for the miss, PREFIX_MAX_SIBLINGS compares. */
void prefix_index_lookup(struct prefix_index *index, struct prefix_chain *chain, struct prefix_tokens tokens,
                         int max_blocks, block_id *out_blocks, struct prefix_match *out_match);

/* Moves a chain back to block, the last of the first n_blocks that a lookup or publish led it over. */
void prefix_index_move_back(const struct prefix_index *index, struct prefix_chain *chain, block_id block, int n_blocks);

/* Makes block findable as the next one of the chain; tokens must reach to its end. The caller holds it, and all its
 * slots are final. On PREFIX_PUBLISH_DONE and PREFIX_PUBLISH_TWIN the chain moves on.
 * PREFIX_PUBLISH_TWIN: *out_twin is findable with the same prefix, block stays unfindable. As equal prefixes have equal
 * bits, the caller may acquire the twin in its place; it should, for a chain through blocks that nobody holds can go
 * stale. PREFIX_PUBLISH_STALE: the chain's tip is no longer findable; nothing has changed. A new chain may publish all
 * blocks anew. Publishing a block again at its own place is PREFIX_PUBLISH_DONE.   out_twin is BLOCK_NONE unless
 * PREFIX_PUBLISH_TWIN. */
WARN_UNUSED enum prefix_publish prefix_index_publish(struct prefix_index *index, struct prefix_chain *chain,
                                                     struct prefix_tokens tokens, block_id block, block_id *out_twin);

/* Makes block, in which the tokens after the chain end, findable for partial matches. The caller holds it and will not
 * write it again. Tails that it goes on from are dropped. False: nothing has changed, as another block covers these
 * tokens or the chain is stale.   Cost: PREFIX_MAX_SIBLINGS compares. */
bool prefix_index_publish_tail(struct prefix_index *index, const struct prefix_chain *chain,
                               struct prefix_tokens tokens, block_id block);

/* Walks everything, hashing each block anew: NULL if the invariants hold, else the one that is broken. */
WARN_UNUSED const char *prefix_index_check(const struct prefix_index *index);

#endif
