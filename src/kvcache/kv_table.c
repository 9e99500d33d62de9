#include "kvcache/kv_table.h"

#include "base/mem.h"

static struct block_pool *pool_of(const struct kv_table *table, int group) {
    return &table->groups->groups[group].pool;
}

static bool uses_index(const struct kv_table *table) {
    return table->has_cache && table->groups->has_index;
}

enum status kv_table_init(struct kv_table *table, struct kv_groups *groups, int max_tokens) {
    *table = (struct kv_table){.groups = groups};
    table->max_blocks = (max_tokens + groups->block_tokens - 1) / groups->block_tokens;
    for (int g = 0; g < groups->n_groups; g++) {
        table->blocks[g] = mem_alloc_array((size_t)table->max_blocks, sizeof(block_id));
        if (!table->blocks[g]) return STATUS_NOMEM;
    }
    return STATUS_OK;
}

void kv_table_deinit(struct kv_table *table) {
    REQUIRE(table->n_blocks == 0);
    for (int g = 0; g < KV_LAYERS_MAX_GROUPS; g++) mem_free(table->blocks[g]);
    *table = (struct kv_table){0};
}

void kv_table_start(struct kv_table *table, const struct prefix_salt *salt, bool has_cache) {
    REQUIRE(table->n_blocks == 0 && !table->has_copy);
    table->has_cache = has_cache;
    table->n_published = 0;
    for (int g = 0; g < table->groups->n_groups; g++) table->first[g] = 0;
    if (uses_index(table)) prefix_index_start(&table->groups->index, salt, &table->chain);
}

/* ---- find ---- */

/* How many of n found nodes can be used: after the last of them, every group must have all that its window covers. */
static int n_usable(const struct kv_table *table, int n) {
    const struct kv_groups *groups = table->groups;
    int n_best = 0, run_begin[KV_LAYERS_MAX_GROUPS] = {0};
    for (int g = 1; g < groups->n_groups; g++) run_begin[g] = table->first[g];
    for (int i = 0; i < n; i++) {
        int n_blocks = table->n_published + i + 1;
        bool is_usable = true;
        for (int g = 1; g < groups->n_groups; g++) {
            if (kv_groups_of_node(groups, g, groups->found[i]) == BLOCK_NONE) run_begin[g] = n_blocks;
            is_usable &= run_begin[g] <= kv_groups_first_block(groups, g, n_blocks * groups->block_tokens);
        }
        if (is_usable) n_best = i + 1;
    }
    return n_best;
}

/* Gives back a group's entries before first. */
static void drop_before(struct kv_table *table, int group, int first) {
    for (int b = table->first[group]; b < first && b < table->n_blocks; b++) {
        block_pool_release(pool_of(table, group), table->blocks[group][b]);
        table->blocks[group][b] = BLOCK_NONE;
    }
    if (table->first[group] < first) table->first[group] = first;
}

/* The next n entries of every group become the blocks of the found nodes. */
static void adopt(struct kv_table *table, int n) {
    const struct kv_groups *groups = table->groups;
    int begin = table->n_published, end = begin + n;
    for (int g = 0; g < groups->n_groups; g++) {
        int first = kv_groups_first_block(groups, g, end * groups->block_tokens);
        drop_before(table, g, first);
        for (int b = begin; b < end; b++) {
            block_id known = b < first ? BLOCK_NONE : kv_groups_of_node(groups, g, groups->found[b - begin]);
            if (known != BLOCK_NONE) {
                block_pool_acquire(pool_of(table, g), known);
                if (b < table->n_blocks) block_pool_release(pool_of(table, g), table->blocks[g][b]);
            }
            table->blocks[g][b] = known;
        }
    }
    table->n_published = end;
    if (table->n_blocks < end) table->n_blocks = end;
}

static void release_copy(struct kv_table *table) {
    for (int g = 0; g < table->groups->n_groups; g++) block_pool_release(pool_of(table, g), table->copy_from[g]);
    table->has_copy = false;
}

/* Notes the copy of a node that agrees in part with the next block; false if there is no room for it. */
static bool plan_copy(struct kv_table *table, block_id node) {
    const struct kv_groups *groups = table->groups;
    for (int g = 1; g < groups->n_groups; g++)
        if (kv_groups_of_node(groups, g, node) == BLOCK_NONE) return false;
    for (int g = 0; g < groups->n_groups; g++) {
        table->copy_from[g] = kv_groups_of_node(groups, g, node);
        block_pool_acquire(pool_of(table, g), table->copy_from[g]); /* before anything is taken */
    }
    table->has_copy = true;
    table->copy_to = table->n_published;
    if (kv_table_grow(table, (table->n_published + 1) * groups->block_tokens) == STATUS_OK) return true;
    release_copy(table);
    return false;
}

void kv_table_find(struct kv_table *table, struct prefix_tokens tokens, int n_computed, struct kv_found *out_found) {
    struct kv_groups *groups = table->groups;
    *out_found = (struct kv_found){.n_tokens = n_computed, .miss_pos = n_computed};
    if (!uses_index(table) || tokens.n_tokens <= n_computed) return;
    REQUIRE(!table->has_copy && table->n_published == n_computed / groups->block_tokens);
    struct prefix_chain before = table->chain;
    struct prefix_match match;
    int max_blocks = tokens.n_tokens / groups->block_tokens - table->n_published;
    prefix_index_lookup(&groups->index, &table->chain, tokens, max_blocks, groups->found, &match);
    out_found->miss = match.miss;
    out_found->miss_pos = match.miss_pos;
    if (match.miss == PREFIX_MISS_STALE) {
        table->has_cache = false; /* its prefix was dropped while it ran: it ends unshared */
        return;
    }
    int n = n_usable(table, match.n_found_blocks), n_all = table->n_published + n;
    if (n < match.n_found_blocks) {
        if (n > 0)
            prefix_index_move_back(&groups->index, &table->chain, groups->found[n - 1], n_all);
        else
            table->chain = before;
        match.partial_block = BLOCK_NONE;
        out_found->miss = PREFIX_MISS_EVICTED;
        out_found->miss_pos = n_all * groups->block_tokens;
    }
    if (n > 0) {
        adopt(table, n);
        out_found->n_tokens = n_all * groups->block_tokens;
    }
    int n_with_copy = n_all * groups->block_tokens + match.n_partial_tokens;
    if (match.partial_block != BLOCK_NONE && n_with_copy > out_found->n_tokens && plan_copy(table, match.partial_block))
        out_found->n_tokens = n_with_copy;
}

void kv_table_look(struct kv_groups *groups, const struct prefix_salt *salt, struct prefix_tokens tokens,
                   struct kv_found *out_found) {
    struct kv_table empty = {.groups = groups};
    struct prefix_match match;
    *out_found = (struct kv_found){0};
    kv_table_start(&empty, salt, true);
    if (!uses_index(&empty) || tokens.n_tokens <= 0) return;
    prefix_index_lookup(&groups->index, &empty.chain, tokens, tokens.n_tokens / groups->block_tokens, groups->found,
                        &match);
    int n = n_usable(&empty, match.n_found_blocks);
    bool is_whole = n == match.n_found_blocks, has_partial = is_whole && match.partial_block != BLOCK_NONE;
    for (int g = 1; has_partial && g < groups->n_groups; g++)
        has_partial = kv_groups_of_node(groups, g, match.partial_block) != BLOCK_NONE;
    out_found->n_tokens = n * groups->block_tokens + (has_partial ? match.n_partial_tokens : 0);
    out_found->miss = is_whole ? match.miss : PREFIX_MISS_EVICTED;
    out_found->miss_pos = is_whole ? match.miss_pos : n * groups->block_tokens;
}

void kv_table_end_copy(struct kv_table *table) {
    if (table->has_copy) release_copy(table);
}

/* ---- growing and shrinking ---- */

int kv_table_n_missing(const struct kv_table *table, int n_tokens) {
    int n = (n_tokens + table->groups->block_tokens - 1) / table->groups->block_tokens - table->n_blocks;
    return n > 0 ? n : 0;
}

enum status kv_table_grow(struct kv_table *table, int n_tokens) {
    int n = kv_table_n_missing(table, n_tokens);
    REQUIRE(table->n_blocks + n <= table->max_blocks);
    for (int g = 0; g < table->groups->n_groups; g++)
        if (block_pool_n_available(pool_of(table, g)) < n) return STATUS_LIMIT;
    /* Evictions in one group only turn reusable blocks of another into free ones: what was counted is there. */
    for (int g = 0; g < table->groups->n_groups; g++)
        if (block_pool_take(pool_of(table, g), n, table->blocks[g] + table->n_blocks))
            BUG("a pool has fewer blocks than it said");
    table->n_blocks += n;
    return STATUS_OK;
}

int kv_table_grow_some(struct kv_table *table, int n_tokens) {
    int block_tokens = table->groups->block_tokens, n = kv_table_n_missing(table, n_tokens);
    for (int g = 0; g < table->groups->n_groups; g++)
        if (block_pool_n_available(pool_of(table, g)) < n) n = block_pool_n_available(pool_of(table, g));
    if (kv_table_grow(table, (table->n_blocks + n) * block_tokens)) BUG("a pool has fewer blocks than it said");
    return table->n_blocks * block_tokens < n_tokens ? table->n_blocks * block_tokens : n_tokens;
}

void kv_table_trim(struct kv_table *table, int n_computed) {
    for (int g = 1; g < table->groups->n_groups; g++)
        drop_before(table, g, kv_groups_first_block(table->groups, g, n_computed));
}

void kv_table_release(struct kv_table *table) {
    if (table->has_copy) release_copy(table);
    for (int g = 0; g < table->groups->n_groups; g++) {
        int n_held = kv_table_n_held(table, g);
        block_pool_release_all(pool_of(table, g), n_held, table->blocks[g] + table->n_blocks - n_held);
    }
    table->n_blocks = 0;
    struct prefix_salt salt = table->chain.salt;
    kv_table_start(table, &salt, table->has_cache);
}

int kv_table_n_held(const struct kv_table *table, int group) {
    int n = table->n_blocks - table->first[group];
    return n > 0 ? n : 0;
}

/* ---- fork ---- */

static void share_entries(struct kv_table *table, const struct kv_table *parent, int group, int n) {
    table->first[group] = parent->first[group] < n ? parent->first[group] : n;
    for (int b = 0; b < n; b++) {
        table->blocks[group][b] = parent->blocks[group][b];
        if (b >= table->first[group]) block_pool_acquire(pool_of(table, group), table->blocks[group][b]);
    }
}

enum status kv_table_fork(struct kv_table *table, struct kv_table *parent, int n_tokens) {
    const struct kv_groups *groups = table->groups;
    int n_full = n_tokens / groups->block_tokens;
    bool has_copy = n_tokens % groups->block_tokens != 0;
    REQUIRE(table->n_blocks == 0 && !parent->has_copy && parent->n_blocks >= n_full + has_copy);
    for (int g = 0; has_copy && g < groups->n_groups; g++)
        if (block_pool_n_available(pool_of(table, g)) < 1) return STATUS_LIMIT;
    if (parent->n_published < n_full) parent->n_published = n_full; /* without a cache: shared, so final from now on */
    REQUIRE(parent->n_published == n_full);
    table->has_cache = parent->has_cache;
    table->chain = parent->chain;
    table->n_blocks = table->n_published = n_full;
    for (int g = 0; g < groups->n_groups; g++) {
        share_entries(table, parent, g, n_full);
        if (!has_copy) continue;
        table->copy_from[g] = parent->blocks[g][n_full];
        block_pool_acquire(pool_of(table, g), table->copy_from[g]);
    }
    table->has_copy = has_copy;
    table->copy_to = n_full;
    if (has_copy && kv_table_grow(table, n_tokens)) BUG("a block that was counted is not there");
    return STATUS_OK;
}

/* ---- publish ---- */

/* The entry's block becomes the node's, or gives way to the one that is. */
static void share_windowed(struct kv_table *table, int group, int entry, block_id node) {
    block_id *own = &table->blocks[group][entry], known = kv_groups_of_node(table->groups, group, node);
    if (known == BLOCK_NONE) {
        kv_groups_attach(table->groups, group, node, *own);
        return;
    }
    block_pool_acquire(pool_of(table, group), known);
    block_pool_release(pool_of(table, group), *own);
    *own = known;
}

void kv_table_publish(struct kv_table *table, struct prefix_tokens tokens) {
    struct kv_groups *groups = table->groups;
    if (!uses_index(table)) return;
    while ((table->n_published + 1) * groups->block_tokens <= tokens.n_tokens) {
        int entry = table->n_published;
        block_id *node = &table->blocks[0][entry], twin;
        enum prefix_publish result = prefix_index_publish(&groups->index, &table->chain, tokens, *node, &twin);
        if (result == PREFIX_PUBLISH_STALE) {
            table->has_cache = false; /* its prefix was dropped while it ran: it ends unshared */
            return;
        }
        if (result == PREFIX_PUBLISH_TWIN) {
            block_pool_acquire(pool_of(table, 0), twin);
            block_pool_release(pool_of(table, 0), *node);
            *node = twin;
        }
        for (int g = 1; g < groups->n_groups; g++)
            if (entry >= table->first[g]) share_windowed(table, g, entry, *node);
        table->n_published++;
    }
}

void kv_table_publish_tail(struct kv_table *table, struct prefix_tokens tokens) {
    struct kv_groups *groups = table->groups;
    int entry = table->n_published, n = tokens.n_tokens - entry * groups->block_tokens;
    if (!uses_index(table) || table->has_copy || n <= 0 || entry >= table->n_blocks) return;
    block_id node = table->blocks[0][entry];
    if (!prefix_index_publish_tail(&groups->index, &table->chain, tokens, node)) return;
    for (int g = 1; g < groups->n_groups; g++)
        if (entry >= table->first[g]) kv_groups_attach(groups, g, node, table->blocks[g][entry]);
}

/* ---- check ---- */

static const char *check_entry(const struct kv_table *table, int group, int entry) {
    const struct block_pool *pool = pool_of(table, group);
    block_id block = table->blocks[group][entry];
    if (entry < table->first[group]) return block == BLOCK_NONE ? NULL : "a block that left the window is in the table";
    if (block >= (block_id)pool->n_blocks) return "an entry of the table is no block";
    if (block_pool_n_refs(pool, block) < 1) return "a block of the table is not held";
    if (entry >= table->n_published) {
        if (block_pool_is_findable(pool, block)) return "a block that may be written is findable";
        return block_pool_n_refs(pool, block) == 1 ? NULL : "a block that may be written is shared";
    }
    if (!uses_index(table)) return NULL;
    return block == kv_groups_of_node(table->groups, group, table->blocks[0][entry])
               ? NULL
               : "a published block is not the one that others find";
}

const char *kv_table_check(const struct kv_table *table) {
    if (table->n_published > table->n_blocks || table->n_blocks > table->max_blocks)
        return "the table's counts disagree";
    if (uses_index(table) && table->chain.n_blocks != table->n_published)
        return "the chain is not as long as what is published";
    if (uses_index(table) && table->n_published > 0 && table->chain.tip.id != table->blocks[0][table->n_published - 1])
        return "the chain's tip is not the last published block";
    for (int g = 0; g < table->groups->n_groups; g++)
        for (int entry = 0; entry < table->n_blocks; entry++) {
            const char *broken = check_entry(table, g, entry);
            if (broken) return broken;
        }
    return NULL;
}
