/* Random sequences on a small pool, against a model that knows no hashes, lists or trees: it keeps each findable
 * block's whole prefix and compares. Each block also carries made-up KV that depends on the whole prefix, so that a
 * block served for a wrong prefix is seen whatever the model thinks. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvcache/prefix_index.h"
#include "support/test.h"

#define N_STEPS 100000
#define N_BLOCKS 24
#define BLOCK_TOKENS 4
#define N_SEQUENCES 6
#define MAX_TOKENS 40
#define MAX_TABLE (MAX_TOKENS / BLOCK_TOKENS)

struct history {
    int salt, n_tokens;
    uint32_t ids[MAX_TOKENS];
    uint64_t extras[MAX_TOKENS];
};

struct sequence {
    bool is_live;
    struct history text;
    struct prefix_chain chain;
    int n_table;
    block_id table[MAX_TABLE];
};

struct model_block {
    int n_refs;
    uint32_t generation;
    bool is_findable;
    long released; /* clock of the last release */
    struct history prefix;
    uint64_t kv[BLOCK_TOKENS];
};

struct world {
    uint64_t rng;
    long clock;
    struct block_pool pool;
    struct prefix_index index;
    struct prefix_salt salts[2];
    struct model_block blocks[N_BLOCKS];
    struct sequence sequences[N_SEQUENCES];
    long n_found, n_partial, n_twins, n_stale, n_full, n_revived;
    bool tells_reasons; /* the memory of evictions goes by key, so a constant hash makes it say too much */
};

static uint32_t below(struct world *w, uint32_t n) {
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return (uint32_t)(w->rng >> 33) % n;
}

static bool is_equal_prefix(const struct history *a, const struct history *b, int n_tokens) {
    return a->salt == b->salt && a->n_tokens >= n_tokens && b->n_tokens >= n_tokens &&
           memcmp(a->ids, b->ids, (size_t)n_tokens * sizeof *a->ids) == 0 &&
           memcmp(a->extras, b->extras, (size_t)n_tokens * sizeof *a->extras) == 0;
}

static uint64_t kv_at(const struct history *text, int pos) {
    uint64_t h = (uint64_t)text->salt + 77;
    for (int i = 0; i <= pos; i++) h = (h ^ text->ids[i] ^ text->extras[i] << 32) * 0x9e3779b97f4a7c15u + 1;
    return h;
}

static struct prefix_tokens tokens_of(const struct sequence *s, int n_tokens) {
    return (struct prefix_tokens){s->text.ids, s->text.extras, n_tokens};
}

/* ---- the model ---- */

static int model_count(const struct world *w, bool is_free) {
    int n = 0;
    for (int i = 0; i < N_BLOCKS; i++) n += w->blocks[i].n_refs == 0 && w->blocks[i].is_findable != is_free;
    return n;
}

static block_id model_find(const struct world *w, const struct history *text, int n_tokens) {
    for (int i = 0; i < N_BLOCKS; i++)
        if (w->blocks[i].is_findable && w->blocks[i].prefix.n_tokens == n_tokens &&
            is_equal_prefix(&w->blocks[i].prefix, text, n_tokens))
            return (block_id)i;
    return BLOCK_NONE;
}

static void model_forget(struct world *w, block_id id) {
    if (!w->blocks[id].is_findable) return;
    struct history top = w->blocks[id].prefix;
    for (int i = 0; i < N_BLOCKS; i++) {
        struct model_block *block = &w->blocks[i];
        if (!block->is_findable || !is_equal_prefix(&block->prefix, &top, top.n_tokens)) continue;
        block->is_findable = false;
        if (block->n_refs == 0) block->generation++;
    }
}

static void model_take(struct world *w, block_id taken) {
    if (model_count(w, true) == 0) {
        block_id oldest = BLOCK_NONE;
        for (int i = 0; i < N_BLOCKS; i++) {
            if (w->blocks[i].n_refs || !w->blocks[i].is_findable) continue;
            if (oldest == BLOCK_NONE || w->blocks[i].released < w->blocks[oldest].released) oldest = (block_id)i;
        }
        model_forget(w, oldest);
    }
    assert_true(w->blocks[taken].n_refs == 0 && !w->blocks[taken].is_findable);
    w->blocks[taken].n_refs = 1;
}

static void release(struct world *w, block_id id) {
    struct model_block *block = &w->blocks[id];
    block_pool_release(&w->pool, id);
    block->released = w->clock++;
    if (--block->n_refs == 0 && !block->is_findable) block->generation++;
}

static void acquire(struct world *w, block_id id) {
    w->n_revived += w->blocks[id].n_refs == 0;
    block_pool_acquire(&w->pool, id);
    w->blocks[id].n_refs++;
}

static bool is_model_stale(const struct world *w, const struct sequence *s) {
    if (s->chain.n_blocks == 0) return false;
    const struct model_block *tip = &w->blocks[s->chain.tip.id];
    return !tip->is_findable || tip->generation != s->chain.tip.generation;
}

static int model_partial(const struct world *w, const struct sequence *s, int n_tokens) {
    int first = s->chain.n_blocks * BLOCK_TOKENS, best = 0;
    for (int i = 0; i < N_BLOCKS; i++) {
        const struct model_block *block = &w->blocks[i];
        if (!block->is_findable || block->prefix.n_tokens != first + BLOCK_TOKENS) continue;
        int n = first;
        if (!is_equal_prefix(&block->prefix, &s->text, first)) continue;
        while (n < n_tokens && n < first + BLOCK_TOKENS && block->prefix.ids[n] == s->text.ids[n] &&
               block->prefix.extras[n] == s->text.extras[n])
            n++;
        if (n - first > best) best = n - first;
    }
    return best;
}

/* ---- operations ---- */

static void look_up(struct world *w, struct sequence *s, int n_tokens) {
    struct prefix_match match;
    int n_before = s->chain.n_blocks;
    bool is_stale = is_model_stale(w, s);
    prefix_index_lookup(&w->index, &s->chain, tokens_of(s, n_tokens), MAX_TABLE - s->n_table, s->table + s->n_table,
                        &match);
    assert_int_equal(match.miss == PREFIX_MISS_STALE, is_stale);
    if (is_stale) {
        assert_int_equal(match.n_found_blocks, 0);
        return;
    }
    assert_int_equal(s->chain.n_blocks, n_before + match.n_found_blocks);
    for (int i = 0; i < match.n_found_blocks; i++) {
        block_id id = s->table[s->n_table + i];
        int n_prefix = (n_before + i + 1) * BLOCK_TOKENS;
        assert_int_equal(id, model_find(w, &s->text, n_prefix));
        for (int slot = 0; slot < BLOCK_TOKENS; slot++)
            assert_true(w->blocks[id].kv[slot] == kv_at(&s->text, n_prefix - BLOCK_TOKENS + slot));
    }
    int n_prefix = s->chain.n_blocks * BLOCK_TOKENS;
    bool is_all = n_prefix + BLOCK_TOKENS > n_tokens;
    if (!is_all) assert_int_equal(model_find(w, &s->text, n_prefix + BLOCK_TOKENS), BLOCK_NONE);
    assert_int_equal(match.miss == PREFIX_MISS_NONE, is_all);
    assert_int_equal(match.n_partial_tokens, model_partial(w, s, n_tokens));
    assert_int_equal(match.miss_pos, n_prefix + match.n_partial_tokens);
    assert_int_equal(match.partial_block == BLOCK_NONE, match.n_partial_tokens == 0);
    for (int slot = 0; slot < match.n_partial_tokens; slot++)
        assert_true(w->blocks[match.partial_block].kv[slot] == kv_at(&s->text, n_prefix + slot));
    if (w->tells_reasons && match.miss == PREFIX_MISS_NEW) assert_int_equal(match.n_partial_tokens, 0);
    if (w->tells_reasons && match.miss == PREFIX_MISS_EDITED) assert_true(match.n_partial_tokens > 0);
    for (int i = 0; i < match.n_found_blocks; i++) acquire(w, s->table[s->n_table + i]);
    s->n_table += match.n_found_blocks;
    w->n_found += match.n_found_blocks;
    w->n_partial += match.n_partial_tokens > 0;
}

static void start(struct world *w, struct sequence *s) {
    const struct history *old = &w->sequences[below(w, N_SEQUENCES)].text;
    struct history text = {.salt = (int)below(w, 2), .n_tokens = 1 + (int)below(w, MAX_TOKENS)};
    if (below(w, 8)) text.salt = old->salt;
    int n_shared = (int)below(w, MAX_TOKENS + 1);
    for (int i = 0; i < text.n_tokens; i++) {
        text.ids[i] = i < n_shared && i < old->n_tokens ? old->ids[i] : below(w, 2);
        text.extras[i] = i < n_shared && i < old->n_tokens ? old->extras[i] : below(w, 32) == 0;
    }
    *s = (struct sequence){.is_live = true, .text = text};
    prefix_index_start(&w->index, &w->salts[text.salt], &s->chain);
    look_up(w, s, text.n_tokens - 1);
}

static void publish(struct world *w, struct sequence *s, int idx) {
    bool is_stale = is_model_stale(w, s);
    int n_prefix = (idx + 1) * BLOCK_TOKENS;
    block_id before = model_find(w, &s->text, n_prefix), id = s->table[idx], twin;
    enum prefix_publish result = prefix_index_publish(&w->index, &s->chain, tokens_of(s, n_prefix), id, &twin);
    assert_int_equal(result == PREFIX_PUBLISH_STALE, is_stale);
    assert_int_equal(twin != BLOCK_NONE, result == PREFIX_PUBLISH_TWIN);
    if (is_stale) {
        w->n_stale++;
        return;
    }
    assert_int_equal(result == PREFIX_PUBLISH_TWIN, before != BLOCK_NONE && before != id);
    if (result == PREFIX_PUBLISH_DONE) {
        w->blocks[id].is_findable = true;
        w->blocks[id].prefix = s->text;
        w->blocks[id].prefix.n_tokens = n_prefix;
        return;
    }
    assert_int_equal(twin, before);
    w->n_twins++;
    if (below(w, 2)) return;
    acquire(w, twin);
    release(w, id);
    s->table[idx] = twin;
}

/* One more full block: found by now, or taken, filled and published. */
static void compute(struct world *w, struct sequence *s) {
    if (below(w, 4) == 0 && s->chain.n_blocks == s->n_table) look_up(w, s, s->text.n_tokens);
    if ((s->n_table + 1) * BLOCK_TOKENS > s->text.n_tokens) return;
    int n = 1 + (int)below(w, (uint32_t)(s->text.n_tokens / BLOCK_TOKENS - s->n_table));
    int n_available = N_BLOCKS;
    for (int i = 0; i < N_BLOCKS; i++) n_available -= w->blocks[i].n_refs > 0;
    enum status status = block_pool_take(&w->pool, n, s->table + s->n_table);
    assert_int_equal(status, n <= n_available ? STATUS_OK : STATUS_LIMIT);
    if (status) {
        w->n_full++;
        return;
    }
    for (int i = 0; i < n; i++) model_take(w, s->table[s->n_table + i]);
    for (int i = 0; i < n; i++, s->n_table++)
        for (int slot = 0; slot < BLOCK_TOKENS; slot++)
            w->blocks[s->table[s->n_table]].kv[slot] = kv_at(&s->text, s->n_table * BLOCK_TOKENS + slot);
    while (s->chain.n_blocks < s->n_table) {
        int n_before = s->chain.n_blocks;
        if (s->table[n_before] == BLOCK_NONE) return; /* let go: nothing to publish anew */
        publish(w, s, n_before);
        if (s->chain.n_blocks > n_before) continue;
        if (below(w, 2)) return; /* stays stale */
        prefix_index_start(&w->index, &w->salts[s->text.salt], &s->chain);
    }
}

/* A block of its prefix, while it goes on: an eviction may now cut its chain. */
static void let_go(struct world *w, struct sequence *s) {
    if (s->chain.n_blocks == 0) return;
    block_id *block = &s->table[below(w, (uint32_t)s->chain.n_blocks)];
    if (*block != BLOCK_NONE) release(w, *block);
    *block = BLOCK_NONE;
}

static void finish(struct world *w, struct sequence *s) {
    bool is_hostile = below(w, 8) == 0; /* first block first: the check must hold, only reuse suffers */
    for (int i = 0; i < s->n_table; i++) {
        block_id block = s->table[is_hostile ? i : s->n_table - 1 - i];
        if (block != BLOCK_NONE) release(w, block);
    }
    s->is_live = false;
    s->n_table = 0;
}

static void step(struct world *w) {
    struct sequence *s = &w->sequences[below(w, N_SEQUENCES)];
    uint32_t choice = below(w, 64);
    if (!s->is_live)
        start(w, s);
    else if (choice < 3)
        let_go(w, s);
    else if (choice < 18)
        finish(w, s);
    else
        compute(w, s);
}

static void compare(const struct world *w) {
    assert_null(block_pool_check(&w->pool));
    assert_null(prefix_index_check(&w->index));
    assert_int_equal(w->pool.n_free, model_count(w, true));
    assert_int_equal(w->pool.n_reusable, model_count(w, false));
    for (block_id id = 0; id < N_BLOCKS; id++) {
        assert_int_equal(block_pool_n_refs(&w->pool, id), w->blocks[id].n_refs);
        assert_int_equal(block_pool_is_findable(&w->pool, id), w->blocks[id].is_findable);
        assert_int_equal(block_pool_ref(&w->pool, id).generation, w->blocks[id].generation);
    }
}

static void run(prefix_hash_fn *hash, bool tells_reasons) {
    static struct world world;
    struct world *w = &world;
    const char *asked = getenv("KVICK_SEED");
    *w =
        (struct world){.rng = asked ? strtoull(asked, NULL, 10) : (uint64_t)time(NULL), .tells_reasons = tells_reasons};
    if (w->rng == 0) w->rng = 1;
    print_message("KVICK_SEED=%llu\n", (unsigned long long)w->rng);
    w->salts[1].bytes[PREFIX_SALT_BYTES - 1] = 1;
    for (int i = 0; i < N_BLOCKS; i++) w->blocks[i].generation = 1;
    assert_int_equal(block_pool_init(&w->pool, N_BLOCKS), STATUS_OK);
    assert_int_equal(prefix_index_init(&w->index, &w->pool, BLOCK_TOKENS, "m", 1, hash), STATUS_OK);
    for (int i = 0; i < N_STEPS; i++) {
        step(w);
        compare(w);
    }
    print_message("%ld blocks found, %ld partial matches, %ld twins, %ld stale, %ld revived, %ld times full\n",
                  w->n_found, w->n_partial, w->n_twins, w->n_stale, w->n_revived, w->n_full);
    /* A run in which something never happened would prove nothing about it. */
    assert_true(w->n_found > 1000 && w->n_partial > 1000 && w->n_twins > 100 && w->n_stale > 10);
    assert_true(w->n_revived > 1000 && w->n_full > 10 && w->pool.n_evicted > 1000);
    for (int i = 0; i < N_SEQUENCES; i++) finish(w, &w->sequences[i]);
    assert_int_equal(w->pool.n_held, 0);
    prefix_index_deinit(&w->index);
    assert_int_equal(w->pool.n_free, N_BLOCKS);
    block_pool_deinit(&w->pool);
}

static void constant_hash(const void *a, size_t n_a, const void *b, size_t n_b, uint8_t out[HASH_SHA256_BYTES]) {
    (void)a, (void)n_a, (void)b, (void)n_b;
    memset(out, 42, HASH_SHA256_BYTES);
}

static void with_sha256_all_is_as_in_the_model(void **state) {
    (void)state;
    run(hash_sha256, true);
}

static void with_a_constant_hash_as_well(void **state) {
    (void)state;
    run(constant_hash, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_sha256_all_is_as_in_the_model),
        cmocka_unit_test(with_a_constant_hash_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
