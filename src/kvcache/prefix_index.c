#include "kvcache/prefix_index.h"

#include <string.h>

#include "base/mem.h"

/* Kept for findable blocks only. */
struct prefix_node {
    uint8_t key[HASH_SHA256_BYTES];
    struct prefix_salt salt;
    block_id parent;         /* BLOCK_NONE: a first block */
    block_id first_child;    /* newest first */
    block_id next, prev;     /* siblings: children of one parent, or first blocks of one roots bucket */
    block_id next_in_bucket; /* by key */
    int n_tokens;            /* block_tokens, or fewer: a tail */
    bool is_in;
};

static uint64_t key_bits(const uint8_t key[HASH_SHA256_BYTES]) {
    uint64_t bits;
    memcpy(&bits, key, sizeof bits);
    return bits;
}

static uint32_t bucket_of(const struct prefix_index *index, const uint8_t key[HASH_SHA256_BYTES]) {
    return (uint32_t)key_bits(key) & index->bucket_mask;
}

static void root_key(const struct prefix_index *index, const struct prefix_salt *salt, uint8_t out[HASH_SHA256_BYTES]) {
    index->hash(index->identity, sizeof index->identity, salt->bytes, sizeof salt->bytes, out);
}

static uint8_t *content_of(const struct prefix_index *index, block_id block) {
    return index->contents + block * index->content_bytes;
}

static void check_hard(const struct prefix_index *index) {
#ifdef KVICK_HARD
    const char *broken = prefix_index_check(index);
    if (broken) BUG("prefix index: %s (%d findable of %d blocks)", broken, index->n_findable, index->pool->n_blocks);
#else
    (void)index;
#endif
}

/* ---- tokens as bytes ---- */

static void put_le(uint8_t *out, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

/* Writes tokens [first_pos, first_pos + n) to index->wanted. */
static void encode_tokens(struct prefix_index *index, struct prefix_tokens tokens, int first_pos, int n) {
    for (int i = 0; i < n; i++) {
        uint8_t *out = index->wanted + (size_t)i * PREFIX_TOKEN_BYTES;
        put_le(out, tokens.ids[first_pos + i], 4);
        put_le(out + 4, tokens.extras ? tokens.extras[first_pos + i] : 0, 8);
    }
}

static int n_common_tokens(const uint8_t *a, const uint8_t *b, int max_tokens) {
    int n = 0;
    while (n < max_tokens && memcmp(a, b, PREFIX_TOKEN_BYTES) == 0) {
        a += PREFIX_TOKEN_BYTES;
        b += PREFIX_TOKEN_BYTES;
        n++;
    }
    return n;
}

/* ---- the tree ---- */

static block_id *children_of(const struct prefix_index *index, block_id parent, const struct prefix_salt *salt) {
    if (parent != BLOCK_NONE) return &index->nodes[parent].first_child;
    uint8_t key[HASH_SHA256_BYTES];
    root_key(index, salt, key);
    return &index->roots[bucket_of(index, key)];
}

static void link_node(struct prefix_index *index, block_id block) {
    struct prefix_node *node = &index->nodes[block];
    block_id *bucket = &index->buckets[bucket_of(index, node->key)];
    node->next_in_bucket = *bucket;
    *bucket = block;
    block_id *siblings = children_of(index, node->parent, &node->salt);
    node->prev = BLOCK_NONE;
    node->next = *siblings;
    if (*siblings != BLOCK_NONE) index->nodes[*siblings].prev = block;
    *siblings = block;
    node->is_in = true;
    index->n_findable++;
}

/* Takes a block without children out of the tree. */
static void unlink_node(struct prefix_index *index, block_id block) {
    struct prefix_node *node = &index->nodes[block];
    block_id *link = &index->buckets[bucket_of(index, node->key)];
    while (*link != block) link = &index->nodes[*link].next_in_bucket;
    *link = node->next_in_bucket;
    if (node->prev != BLOCK_NONE)
        index->nodes[node->prev].next = node->next;
    else
        *children_of(index, node->parent, &node->salt) = node->next;
    if (node->next != BLOCK_NONE) index->nodes[node->next].prev = node->prev;
    node->is_in = false;
    index->n_findable--;
    index->evicted_keys[bucket_of(index, node->key)] = key_bits(node->key);
}

static void drop_subtree(struct prefix_index *index, block_id top) {
    if (!index->nodes[top].is_in) return;
    for (block_id block = top;;) {
        while (index->nodes[block].first_child != BLOCK_NONE) block = index->nodes[block].first_child;
        block_id parent = index->nodes[block].parent;
        unlink_node(index, block);
        block_pool_set_findable(index->pool, block, false);
        if (index->on_drop) index->on_drop(index->drop_owner, block);
        if (block == top) return;
        block = parent;
    }
}

static void on_evict(void *owner, block_id block) {
    drop_subtree(owner, block);
}

/* The findable block with this parent, salt and index->wanted as content, or BLOCK_NONE. */
static block_id find_child(const struct prefix_index *index, block_id parent, const struct prefix_salt *salt,
                           const uint8_t key[HASH_SHA256_BYTES]) {
    block_id block = index->buckets[bucket_of(index, key)];
    for (; block != BLOCK_NONE; block = index->nodes[block].next_in_bucket) {
        const struct prefix_node *node = &index->nodes[block];
        if (node->parent != parent || node->n_tokens < index->block_tokens) continue;
        if (memcmp(node->key, key, HASH_SHA256_BYTES) != 0) continue;
        /* Below a first block the parent stands for the salt. */
        if (parent == BLOCK_NONE && memcmp(&node->salt, salt, sizeof *salt) != 0) continue;
        if (memcmp(content_of(index, block), index->wanted, index->content_bytes) == 0) return block;
    }
    return BLOCK_NONE;
}

/* ---- life ---- */

static uint32_t n_buckets_for(int n_blocks) {
    uint32_t n = 16;
    while (n < (uint32_t)n_blocks && n < (UINT32_C(1) << 31)) n *= 2;
    return n;
}

enum status prefix_index_init(struct prefix_index *index, struct block_pool *pool, int block_tokens,
                              const void *identity, size_t n_identity, prefix_hash_fn *hash) {
    *index = (struct prefix_index){.pool = pool, .hash = hash, .block_tokens = block_tokens};
    if (block_tokens < 1) return STATUS_INVALID;
    size_t n_blocks = (size_t)pool->n_blocks, n_buckets = n_buckets_for(pool->n_blocks);
    index->content_bytes = (size_t)block_tokens * PREFIX_TOKEN_BYTES;
    index->bucket_mask = (uint32_t)n_buckets - 1;
    index->nodes = mem_alloc_array(n_blocks, sizeof *index->nodes);
    index->contents = mem_alloc_array(n_blocks, index->content_bytes);
    index->wanted = mem_alloc(index->content_bytes);
    index->buckets = mem_alloc_array(n_buckets, sizeof *index->buckets);
    index->roots = mem_alloc_array(n_buckets, sizeof *index->roots);
    index->evicted_keys = mem_alloc_array(n_buckets, sizeof *index->evicted_keys);
    if (!index->nodes || !index->contents || !index->wanted || !index->buckets || !index->roots ||
        !index->evicted_keys) {
        prefix_index_deinit(index);
        return STATUS_NOMEM;
    }
    for (size_t i = 0; i < n_buckets; i++) index->buckets[i] = index->roots[i] = BLOCK_NONE;
    hash("kvick prefix 1", 14, identity, n_identity, index->identity);
    block_pool_listen(pool, on_evict, index);
    check_hard(index);
    return STATUS_OK;
}

void prefix_index_deinit(struct prefix_index *index) {
    if (index->pool && index->pool->evict_owner == index) {
        for (int i = 0; i < index->pool->n_blocks; i++) drop_subtree(index, (block_id)i);
        block_pool_listen(index->pool, NULL, NULL);
    }
    mem_free(index->nodes);
    mem_free(index->contents);
    mem_free(index->wanted);
    mem_free(index->buckets);
    mem_free(index->roots);
    mem_free(index->evicted_keys);
    *index = (struct prefix_index){0};
}

void prefix_index_listen(struct prefix_index *index, prefix_drop_fn *on_drop, void *owner) {
    index->on_drop = on_drop;
    index->drop_owner = owner;
}

/* ---- chains ---- */

void prefix_index_start(const struct prefix_index *index, const struct prefix_salt *salt,
                        struct prefix_chain *out_chain) {
    *out_chain = (struct prefix_chain){.tip.id = BLOCK_NONE};
    if (salt) out_chain->salt = *salt;
    root_key(index, &out_chain->salt, out_chain->key);
}

static bool is_stale(const struct prefix_index *index, const struct prefix_chain *chain) {
    if (chain->n_blocks == 0) return false;
    return !block_pool_is_current(index->pool, chain->tip) || !index->nodes[chain->tip.id].is_in;
}

/* Encodes the chain's next block into index->wanted and makes its key. */
static void next_key(struct prefix_index *index, const struct prefix_chain *chain, struct prefix_tokens tokens,
                     uint8_t out[HASH_SHA256_BYTES]) {
    encode_tokens(index, tokens, chain->n_blocks * index->block_tokens, index->block_tokens);
    index->hash(chain->key, sizeof chain->key, index->wanted, index->content_bytes, out);
}

static void move_on(const struct prefix_index *index, struct prefix_chain *chain, block_id block) {
    memcpy(chain->key, index->nodes[block].key, sizeof chain->key);
    chain->tip = block_pool_ref(index->pool, block);
    chain->n_blocks++;
}

void prefix_index_move_back(const struct prefix_index *index, struct prefix_chain *chain, block_id block,
                            int n_blocks) {
    REQUIRE(index->nodes[block].is_in && n_blocks >= 1 && n_blocks <= chain->n_blocks);
    chain->n_blocks = n_blocks - 1;
    move_on(index, chain, block);
}

/* Fills the partial fields of match for the tokens after the chain. */
static void find_partial(struct prefix_index *index, const struct prefix_chain *chain, struct prefix_tokens tokens,
                         struct prefix_match *match) {
    int first_pos = chain->n_blocks * index->block_tokens, n_left = tokens.n_tokens - first_pos;
    int n = n_left < index->block_tokens ? n_left : index->block_tokens;
    if (n <= 0) return;
    encode_tokens(index, tokens, first_pos, n);
    block_id block = *children_of(index, chain->tip.id, &chain->salt);
    for (int i = 0; i < PREFIX_MAX_SIBLINGS && block != BLOCK_NONE; i++, block = index->nodes[block].next) {
        if (chain->n_blocks == 0 && memcmp(&index->nodes[block].salt, &chain->salt, sizeof chain->salt) != 0) continue;
        int n_held = index->nodes[block].n_tokens;
        int n_common = n_common_tokens(content_of(index, block), index->wanted, n < n_held ? n : n_held);
        if (n_common <= match->n_partial_tokens) continue;
        match->partial_block = block;
        match->n_partial_tokens = n_common;
    }
}

static enum prefix_miss reason_of(const struct prefix_index *index, const uint8_t key[HASH_SHA256_BYTES],
                                  const struct prefix_match *match) {
    if (index->evicted_keys[bucket_of(index, key)] == key_bits(key)) return PREFIX_MISS_EVICTED;
    /* Where a tail agrees to its end nothing was edited. */
    bool is_edited = match->n_partial_tokens && match->n_partial_tokens < index->nodes[match->partial_block].n_tokens;
    return is_edited ? PREFIX_MISS_EDITED : PREFIX_MISS_NEW;
}

void prefix_index_lookup(struct prefix_index *index, struct prefix_chain *chain, struct prefix_tokens tokens,
                         int max_blocks, block_id *out_blocks, struct prefix_match *out_match) {
    *out_match = (struct prefix_match){.partial_block = BLOCK_NONE, .miss_pos = chain->n_blocks * index->block_tokens};
    if (is_stale(index, chain)) {
        out_match->miss = PREFIX_MISS_STALE;
        return;
    }
    uint8_t key[HASH_SHA256_BYTES];
    bool has_missed = false;
    while (out_match->n_found_blocks < max_blocks && chain->n_blocks < tokens.n_tokens / index->block_tokens) {
        next_key(index, chain, tokens, key);
        block_id block = find_child(index, chain->tip.id, &chain->salt, key);
        has_missed = block == BLOCK_NONE;
        if (has_missed) break;
        out_blocks[out_match->n_found_blocks++] = block;
        move_on(index, chain, block);
    }
    find_partial(index, chain, tokens, out_match);
    if (has_missed) out_match->miss = reason_of(index, key, out_match);
    out_match->miss_pos = chain->n_blocks * index->block_tokens + out_match->n_partial_tokens;
    check_hard(index);
}

/* Drops tails of which index->wanted, n tokens, is a continuation. True if another block covers all of it. */
static bool drop_covered_tails(struct prefix_index *index, const struct prefix_chain *chain, int n) {
    block_id block = *children_of(index, chain->tip.id, &chain->salt), next;
    for (int i = 0; i < PREFIX_MAX_SIBLINGS && block != BLOCK_NONE; i++, block = next) {
        const struct prefix_node *node = &index->nodes[block];
        next = node->next;
        if (chain->n_blocks == 0 && memcmp(&node->salt, &chain->salt, sizeof chain->salt) != 0) continue;
        int n_common =
            n_common_tokens(content_of(index, block), index->wanted, n < node->n_tokens ? n : node->n_tokens);
        if (n_common == n) return true;
        if (n_common == node->n_tokens) drop_subtree(index, block);
    }
    return false;
}

/* Enters a block that holds the first n tokens of index->wanted. */
static void enter(struct prefix_index *index, const struct prefix_chain *chain, block_id block, int n,
                  const uint8_t key[HASH_SHA256_BYTES]) {
    struct prefix_node *node = &index->nodes[block];
    if (node->is_in) BUG("block %u is published with other content while it is findable", block);
    *node =
        (struct prefix_node){.salt = chain->salt, .parent = chain->tip.id, .first_child = BLOCK_NONE, .n_tokens = n};
    memcpy(node->key, key, HASH_SHA256_BYTES);
    memcpy(content_of(index, block), index->wanted, (size_t)n * PREFIX_TOKEN_BYTES);
    link_node(index, block);
    block_pool_set_findable(index->pool, block, true);
}

enum prefix_publish prefix_index_publish(struct prefix_index *index, struct prefix_chain *chain,
                                         struct prefix_tokens tokens, block_id block, block_id *out_twin) {
    *out_twin = BLOCK_NONE;
    REQUIRE(block_pool_n_refs(index->pool, block) > 0);
    REQUIRE(chain->n_blocks < tokens.n_tokens / index->block_tokens);
    if (is_stale(index, chain)) return PREFIX_PUBLISH_STALE;
    uint8_t key[HASH_SHA256_BYTES];
    next_key(index, chain, tokens, key);
    block_id twin = find_child(index, chain->tip.id, &chain->salt, key);
    if (twin != BLOCK_NONE) {
        move_on(index, chain, twin);
        if (twin == block) return PREFIX_PUBLISH_DONE;
        *out_twin = twin;
        return PREFIX_PUBLISH_TWIN;
    }
    (void)drop_covered_tails(index, chain, index->block_tokens); /* only a twin could cover it */
    enter(index, chain, block, index->block_tokens, key);
    move_on(index, chain, block);
    check_hard(index);
    return PREFIX_PUBLISH_DONE;
}

bool prefix_index_publish_tail(struct prefix_index *index, const struct prefix_chain *chain,
                               struct prefix_tokens tokens, block_id block) {
    int first_pos = chain->n_blocks * index->block_tokens, n = tokens.n_tokens - first_pos;
    uint8_t key[HASH_SHA256_BYTES];
    REQUIRE(n >= 1 && n < index->block_tokens && block_pool_n_refs(index->pool, block) > 0);
    if (is_stale(index, chain)) return false;
    encode_tokens(index, tokens, first_pos, n);
    if (drop_covered_tails(index, chain, n)) return false;
    index->hash(chain->key, sizeof chain->key, index->wanted, (size_t)n * PREFIX_TOKEN_BYTES, key);
    enter(index, chain, block, n, key);
    check_hard(index);
    return true;
}

/* ---- check ---- */

static bool has_in_list(const struct prefix_index *index, block_id first, block_id wanted) {
    int n = 0;
    for (block_id block = first; block != BLOCK_NONE && n++ <= index->n_findable; block = index->nodes[block].next)
        if (block == wanted) return true;
    return false;
}

static const char *check_node(const struct prefix_index *index, block_id block) {
    const struct prefix_node *node = &index->nodes[block];
    if (node->is_in != block_pool_is_findable(index->pool, block)) return "pool and index disagree on a findable block";
    if (!node->is_in) return NULL;
    uint8_t parent_key[HASH_SHA256_BYTES], key[HASH_SHA256_BYTES];
    if (node->parent == BLOCK_NONE) {
        root_key(index, &node->salt, parent_key);
    } else {
        const struct prefix_node *parent = &index->nodes[node->parent];
        if (!parent->is_in) return "a findable block's parent is not findable";
        if (memcmp(&parent->salt, &node->salt, sizeof node->salt) != 0) return "a block and its parent differ in salt";
        memcpy(parent_key, parent->key, sizeof parent_key);
    }
    bool is_tail = node->n_tokens < index->block_tokens;
    if (node->n_tokens < 1 || (is_tail && node->first_child != BLOCK_NONE)) return "a tail is empty or goes on";
    index->hash(parent_key, sizeof parent_key, content_of(index, block), (size_t)node->n_tokens * PREFIX_TOKEN_BYTES,
                key);
    if (memcmp(key, node->key, sizeof key) != 0) return "a block's key is not that of its tokens";
    if (!has_in_list(index, *children_of(index, node->parent, &node->salt), block))
        return "a block is not among its parent's children";
    block_id prev = node->prev;
    if (prev != BLOCK_NONE && index->nodes[prev].next != block) return "the links of siblings disagree";
    return NULL;
}

const char *prefix_index_check(const struct prefix_index *index) {
    int n_in = 0, n_in_buckets = 0;
    for (int i = 0; i < index->pool->n_blocks; i++) {
        const char *broken = check_node(index, (block_id)i);
        if (broken) return broken;
        n_in += index->nodes[i].is_in;
    }
    if (n_in != index->n_findable) return "n_findable is not the number of findable blocks";
    for (uint32_t i = 0; i <= index->bucket_mask; i++)
        for (block_id block = index->buckets[i]; block != BLOCK_NONE; block = index->nodes[block].next_in_bucket) {
            if (!index->nodes[block].is_in || bucket_of(index, index->nodes[block].key) != i)
                return "a bucket holds a block that does not belong there";
            if (++n_in_buckets > n_in) return "a bucket runs in a circle";
        }
    return n_in_buckets == n_in ? NULL : "a findable block is in no bucket";
}
