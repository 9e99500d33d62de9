#include "kvcache/prefix_index.h"

#include <string.h>

#include "base/mem.h"
#include "support/test.h"

#define B 4 /* tokens per block */
#define MAX_BLOCKS 16

struct cache {
    struct block_pool pool;
    struct prefix_index index;
};

/* What the scheduler does for one request, without a model: find, take, compute, publish. */
struct sequence {
    struct prefix_chain chain;
    struct prefix_match match; /* of the first lookup */
    block_id table[MAX_BLOCKS];
    int n_table, n_found;
};

static void constant_hash(const void *a, size_t n_a, const void *b, size_t n_b, uint8_t out[HASH_SHA256_BYTES]) {
    (void)a, (void)n_a, (void)b, (void)n_b;
    memset(out, 7, HASH_SHA256_BYTES);
}

static prefix_hash_fn *const hashes[] = {hash_sha256, constant_hash};

static struct cache *cache_with(int n_blocks, prefix_hash_fn *hash) {
    static struct cache cache;
    assert_int_equal(block_pool_init(&cache.pool, n_blocks), STATUS_OK);
    assert_int_equal(prefix_index_init(&cache.index, &cache.pool, B, "model", 5, hash), STATUS_OK);
    return &cache;
}

/* All must be let go by then. */
static void drop(struct cache *cache) {
    assert_null(block_pool_check(&cache->pool));
    assert_null(prefix_index_check(&cache->index));
    assert_int_equal(cache->pool.n_held, 0);
    prefix_index_deinit(&cache->index);
    assert_int_equal(cache->pool.n_free, cache->pool.n_blocks);
    block_pool_deinit(&cache->pool);
}

static struct prefix_tokens tokens_of(const uint32_t *ids, int n) {
    return (struct prefix_tokens){.ids = ids, .n_tokens = n};
}

static void count_up(uint32_t *ids, int n, uint32_t first) {
    for (int i = 0; i < n; i++) ids[i] = first + (uint32_t)i;
}

/* Prefill: all but the last prompt token may come from the cache. */
static struct sequence begin(struct cache *cache, const struct prefix_salt *salt, struct prefix_tokens prompt) {
    struct sequence s = {.n_table = 0};
    prefix_index_start(&cache->index, salt, &s.chain);
    struct prefix_tokens usable = prompt;
    usable.n_tokens--;
    prefix_index_lookup(&cache->index, &s.chain, usable, MAX_BLOCKS, s.table, &s.match);
    s.n_found = s.n_table = s.match.n_found_blocks;
    for (int i = 0; i < s.n_found; i++) block_pool_acquire(&cache->pool, s.table[i]);
    int n_more = (prompt.n_tokens + B - 1) / B - s.n_found;
    assert_int_equal(block_pool_take(&cache->pool, n_more, s.table + s.n_table), STATUS_OK);
    s.n_table += n_more;
    return s;
}

/* Commit: all blocks that are full with n_computed tokens. */
static void commit(struct cache *cache, struct sequence *s, struct prefix_tokens computed) {
    while ((s->chain.n_blocks + 1) * B <= computed.n_tokens) {
        int idx = s->chain.n_blocks;
        if (idx == s->n_table) {
            assert_int_equal(block_pool_take(&cache->pool, 1, &s->table[s->n_table++]), STATUS_OK);
        }
        block_id twin;
        enum prefix_publish result = prefix_index_publish(&cache->index, &s->chain, computed, s->table[idx], &twin);
        assert_int_not_equal(result, PREFIX_PUBLISH_STALE);
        if (result != PREFIX_PUBLISH_TWIN) continue;
        block_pool_acquire(&cache->pool, twin);
        block_pool_release(&cache->pool, s->table[idx]);
        s->table[idx] = twin;
    }
}

static void end(struct cache *cache, struct sequence *s) {
    block_pool_release_all(&cache->pool, s->n_table, s->table);
}

/* One whole request without answer; returns how many tokens came from the cache, part of a block included. */
static int serve(struct cache *cache, const struct prefix_salt *salt, struct prefix_tokens prompt) {
    struct sequence s = begin(cache, salt, prompt);
    commit(cache, &s, prompt);
    end(cache, &s);
    assert_null(prefix_index_check(&cache->index));
    return s.n_found * B + s.match.n_partial_tokens;
}

/* CASE B14: whole-prompt hits leave one token to run. */
static void the_last_token_is_never_cached(void **state) {
    (void)state;
    uint32_t ids[4 * B];
    for (int h = 0; h < 2; h++) {
        const int lengths[] = {B, 2 * B, 3 * B, 2 * B - 1, 2 * B + 1};
        for (int i = 0; i < 5; i++) {
            struct cache *cache = cache_with(MAX_BLOCKS, hashes[h]);
            count_up(ids, 4 * B, 10);
            int n = lengths[i];
            assert_int_equal(serve(cache, NULL, tokens_of(ids, n)), 0);
            for (int run = 0; run < 2; run++) {
                struct sequence s = begin(cache, NULL, tokens_of(ids, n));
                int n_full = n / B; /* full blocks are findable, of the rest nothing is */
                int n_cached = n % B == 0 ? n - 1 : n_full * B;
                assert_int_equal(s.n_found, (n - 1) / B);
                assert_int_equal(s.n_found * B + s.match.n_partial_tokens, n_cached);
                end(cache, &s);
            }
            drop(cache);
        }
    }
}

/* CASE B17 (and the follow-up of B14): the answer is findable too, up to the last token that was run. */
static void the_answer_is_found_again(void **state) {
    (void)state;
    enum { B17 = 16 };
    static uint32_t ids[200];
    count_up(ids, 200, 1);
    struct cache cache;
    assert_int_equal(block_pool_init(&cache.pool, 32), STATUS_OK);
    assert_int_equal(prefix_index_init(&cache.index, &cache.pool, B17, "model", 5, hash_sha256), STATUS_OK);
    block_id table[32], twin;
    assert_int_equal(block_pool_take(&cache.pool, 10, table), STATUS_OK);
    struct prefix_chain chain;
    prefix_index_start(&cache.index, NULL, &chain);
    int n_computed = 100 + 50 - 1; /* the last sampled token was never run */
    while ((chain.n_blocks + 1) * B17 <= n_computed)
        assert_int_equal(
            prefix_index_publish(&cache.index, &chain, tokens_of(ids, n_computed), table[chain.n_blocks], &twin),
            PREFIX_PUBLISH_DONE);
    block_pool_release_all(&cache.pool, 10, table);
    struct prefix_match match;
    prefix_index_start(&cache.index, NULL, &chain);
    prefix_index_lookup(&cache.index, &chain, tokens_of(ids, 199), 32, table, &match);
    assert_int_equal(match.n_found_blocks * B17, 144);
    assert_int_equal(match.miss, PREFIX_MISS_NEW);
    assert_int_equal(match.miss_pos, 144);
    drop(&cache);
}

/* CASE B15: eviction, two at once, other beginning. */
static void a_refilled_block_is_not_found_under_its_old_prefix(void **state) {
    (void)state;
    uint32_t a[4 * B], b[4 * B], c[4 * B];
    count_up(a, 4 * B, 100);
    count_up(b, 4 * B, 200);
    count_up(c, 4 * B, 300);
    for (int h = 0; h < 2; h++) {
        struct cache *cache = cache_with(8, hashes[h]);
        assert_int_equal(serve(cache, NULL, tokens_of(a, 4 * B)), 0);
        assert_int_equal(serve(cache, NULL, tokens_of(b, 4 * B)), 0);
        assert_int_equal(serve(cache, NULL, tokens_of(c, 4 * B)), 0); /* takes A's blocks */
        struct sequence s = begin(cache, NULL, tokens_of(a, 4 * B));  /* takes B's */
        assert_int_equal(s.n_found, 0);
        assert_int_equal(s.match.miss, PREFIX_MISS_EVICTED);
        assert_int_equal(s.match.n_partial_tokens, 0);
        commit(cache, &s, tokens_of(a, 4 * B));
        end(cache, &s);
        assert_int_equal(serve(cache, NULL, tokens_of(c, 4 * B)), 4 * B - 1);
        assert_int_equal(serve(cache, NULL, tokens_of(b, 4 * B)), 0);
        drop(cache);
    }
}

static void an_equal_block_after_another_beginning_is_another_block(void **state) {
    (void)state;
    uint32_t xy[2 * B], zy[2 * B];
    count_up(xy, 2 * B, 100);
    memcpy(zy, xy, sizeof zy);
    zy[0] = 7;
    for (int h = 0; h < 2; h++) {
        struct cache *cache = cache_with(8, hashes[h]);
        assert_int_equal(serve(cache, NULL, tokens_of(xy, 2 * B)), 0);
        assert_int_equal(serve(cache, NULL, tokens_of(zy, 2 * B)), 0);
        assert_int_equal(cache->index.n_findable, 4);
        drop(cache);
    }
}

static void two_at_once_end_up_in_one_block(void **state) {
    (void)state;
    uint32_t ids[2 * B];
    count_up(ids, 2 * B, 1);
    struct cache *cache = cache_with(8, hash_sha256);
    struct prefix_tokens prompt = tokens_of(ids, 2 * B);
    struct sequence first = begin(cache, NULL, prompt), second = begin(cache, NULL, prompt);
    commit(cache, &first, prompt);
    block_id own = second.table[0];
    commit(cache, &second, prompt);
    assert_memory_equal(first.table, second.table, 2 * sizeof *first.table);
    assert_int_equal(block_pool_n_refs(&cache->pool, own), 0);
    assert_int_equal(cache->pool.n_held, 2);
    end(cache, &first);
    assert_int_equal(cache->pool.n_held, 2);
    end(cache, &second);
    drop(cache);
}

/* Who keeps his own copy goes on below a block that he does not hold. */
static void an_unheld_twin_may_go_stale(void **state) {
    (void)state;
    uint32_t ids[3 * B], other[3 * B];
    count_up(ids, 3 * B, 1);
    count_up(other, 3 * B, 50);
    struct cache *cache = cache_with(4, hash_sha256);
    struct prefix_tokens text = tokens_of(ids, 2 * B);
    struct sequence first = begin(cache, NULL, tokens_of(ids, B)), second = begin(cache, NULL, text);
    commit(cache, &first, tokens_of(ids, B));
    block_id twin, taken[2];
    assert_int_equal(prefix_index_publish(&cache->index, &second.chain, text, second.table[0], &twin),
                     PREFIX_PUBLISH_TWIN);
    assert_int_equal(twin, first.table[0]);
    end(cache, &first);
    assert_int_equal(block_pool_take(&cache->pool, 2, taken), STATUS_OK); /* the twin among them */
    struct prefix_match match;
    struct prefix_chain chain = second.chain;
    prefix_index_lookup(&cache->index, &chain, text, MAX_BLOCKS, second.table + 2, &match);
    assert_int_equal(match.miss, PREFIX_MISS_STALE);
    assert_int_equal(prefix_index_publish(&cache->index, &second.chain, text, second.table[1], &twin),
                     PREFIX_PUBLISH_STALE);
    prefix_index_start(&cache->index, NULL, &second.chain);
    commit(cache, &second, text);
    assert_int_equal(cache->index.n_findable, 2);
    commit(cache, &second, text); /* nothing left to publish */
    prefix_index_start(&cache->index, NULL, &second.chain);
    commit(cache, &second, text); /* again at its own place: nothing changes */
    assert_int_equal(cache->index.n_findable, 2);
    block_pool_release_all(&cache->pool, 2, taken);
    end(cache, &second);
    drop(cache);
}

/* CASE B18 */
static void tenants_never_meet(void **state) {
    (void)state;
    uint32_t ids[3 * B];
    uint64_t adapter[3 * B];
    count_up(ids, 3 * B, 1);
    for (int i = 0; i < 3 * B; i++) adapter[i] = 'A';
    struct prefix_salt salt_a = {{'A'}}, salt_b = {{'B'}};
    struct prefix_tokens prompt = tokens_of(ids, 3 * B), adapted = {ids, adapter, 3 * B};
    for (int h = 0; h < 2; h++) {
        struct cache *cache = cache_with(MAX_BLOCKS, hashes[h]);
        assert_int_equal(serve(cache, &salt_a, prompt), 0);
        struct sequence s = begin(cache, &salt_b, prompt);
        assert_int_equal(s.n_found, 0);
        if (h == 0) assert_int_equal(s.match.miss, PREFIX_MISS_NEW); /* nothing tells of the other tenant */
        end(cache, &s);
        assert_int_equal(serve(cache, &salt_b, prompt), 0);
        assert_int_equal(serve(cache, NULL, prompt), 0);
        assert_int_equal(serve(cache, &salt_a, prompt), 3 * B - 1);
        assert_int_equal(serve(cache, &salt_b, prompt), 3 * B - 1);
        assert_int_equal(serve(cache, NULL, prompt), 3 * B - 1);
        assert_int_equal(serve(cache, NULL, adapted), 0);
        assert_int_equal(serve(cache, NULL, adapted), 3 * B - 1);
        drop(cache);
    }
}

static void models_have_other_keys(void **state) {
    (void)state;
    struct cache *cache = cache_with(4, hash_sha256);
    struct prefix_chain mine, other;
    prefix_index_start(&cache->index, NULL, &mine);
    drop(cache);
    assert_int_equal(block_pool_init(&cache->pool, 4), STATUS_OK);
    assert_int_equal(prefix_index_init(&cache->index, &cache->pool, B, "other", 5, hash_sha256), STATUS_OK);
    prefix_index_start(&cache->index, NULL, &other);
    drop(cache);
    assert_memory_not_equal(mine.key, other.key, sizeof mine.key);
}

static void an_edit_is_named_by_its_position(void **state) {
    (void)state;
    uint32_t ids[4 * B], edited[4 * B];
    count_up(ids, 4 * B, 1);
    struct cache *cache = cache_with(MAX_BLOCKS, hash_sha256);
    serve(cache, NULL, tokens_of(ids, 4 * B));
    for (int pos = 0; pos < 4 * B - 1; pos++) {
        memcpy(edited, ids, sizeof edited);
        edited[pos] = 99;
        struct sequence s = begin(cache, NULL, tokens_of(edited, 4 * B));
        assert_int_equal(s.n_found, pos / B);
        assert_int_equal(s.match.miss_pos, pos);
        assert_int_equal(s.match.n_partial_tokens, pos % B);
        bool is_last = pos / B == 3; /* its last token is not asked for, so it is no full block */
        assert_int_equal(s.match.miss, is_last ? PREFIX_MISS_NONE : pos % B ? PREFIX_MISS_EDITED : PREFIX_MISS_NEW);
        end(cache, &s);
    }
    drop(cache);
}

static void the_longest_of_many_continuations_is_taken(void **state) {
    (void)state;
    uint32_t ids[2 * B] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct cache *cache = cache_with(MAX_BLOCKS, hash_sha256);
    for (int pos = 2 * B - 1; pos >= B; pos--) { /* the newest agrees least */
        uint32_t other[2 * B];
        memcpy(other, ids, sizeof other);
        other[pos] = 70;
        serve(cache, NULL, tokens_of(other, 2 * B));
    }
    struct sequence s = begin(cache, NULL, tokens_of(ids, 2 * B));
    assert_int_equal(s.n_found, 1);
    assert_int_equal(s.match.n_partial_tokens, B - 1);
    end(cache, &s);
    drop(cache);
}

/* CASE B21: a preempted sequence meets the blocks that it left behind. */
static void a_preempted_sequence_finds_its_own_blocks(void **state) {
    (void)state;
    uint32_t ids[5 * B];
    count_up(ids, 5 * B, 1);
    struct cache *cache = cache_with(7, hash_sha256);
    struct sequence s = begin(cache, NULL, tokens_of(ids, 2 * B + 2));
    commit(cache, &s, tokens_of(ids, 4 * B + 1)); /* prompt and answer so far */
    assert_int_equal(s.n_table, 4);
    end(cache, &s);
    for (int n = 3 * B - 1; n <= 4 * B + 1; n++) {
        s = begin(cache, NULL, tokens_of(ids, n));
        assert_int_equal(s.n_found, (n - 1) / B);
        assert_int_equal(s.n_table, (n + B - 1) / B); /* never past the end */
        end(cache, &s);
        assert_int_equal(cache->pool.n_held, 0);
    }
    drop(cache);
}

/* Who waits for another's blocks goes on from where his chain stands. */
static void a_waiter_goes_on_from_the_last_published_block(void **state) {
    (void)state;
    uint32_t ids[4 * B];
    count_up(ids, 4 * B, 1);
    struct cache *cache = cache_with(8, hash_sha256);
    struct sequence owner = begin(cache, NULL, tokens_of(ids, 3 * B));
    struct prefix_chain waiter;
    struct prefix_match match;
    block_id found[MAX_BLOCKS];
    prefix_index_start(&cache->index, NULL, &waiter);
    for (int n = 1; n <= 3; n++) {
        commit(cache, &owner, tokens_of(ids, n * B));
        prefix_index_lookup(&cache->index, &waiter, tokens_of(ids, 4 * B - 1), 1, found, &match);
        assert_int_equal(match.n_found_blocks, 1);
        assert_int_equal(found[0], owner.table[n - 1]);
        assert_int_equal(waiter.n_blocks, n);
    }
    end(cache, &owner);
    drop(cache);
}

static void what_continues_a_dropped_block_is_dropped(void **state) {
    (void)state;
    uint32_t ids[4 * B];
    count_up(ids, 4 * B, 1);
    struct cache *cache = cache_with(8, hash_sha256);
    serve(cache, NULL, tokens_of(ids, 4 * B));
    ids[3 * B] = 77;
    struct sequence s = begin(cache, NULL, tokens_of(ids, 4 * B));
    commit(cache, &s, tokens_of(ids, 4 * B));
    assert_int_equal(cache->index.n_findable, 5);
    /* The second block is let go while what continues it is held, and everything that can be had is taken. */
    block_pool_release(&cache->pool, s.table[1]);
    block_id taken[5];
    assert_int_equal(block_pool_take(&cache->pool, 5, taken), STATUS_OK);
    assert_null(prefix_index_check(&cache->index));
    assert_int_equal(cache->index.n_findable, 1);
    assert_int_equal(cache->pool.n_held, 8); /* held ones stay whole, only unfindable */
    block_pool_release_all(&cache->pool, 5, taken);
    block_pool_release(&cache->pool, s.table[3]);
    block_pool_release(&cache->pool, s.table[2]);
    block_pool_release(&cache->pool, s.table[0]);
    assert_int_equal(cache->pool.n_reusable, 1);
    drop(cache);
}

/* As serve, and what is left of the last block stays findable; returns whether it does. */
static bool serve_with_tail(struct cache *cache, const struct prefix_salt *salt, struct prefix_tokens prompt) {
    struct sequence s = begin(cache, salt, prompt);
    commit(cache, &s, prompt);
    bool is_new = prefix_index_publish_tail(&cache->index, &s.chain, prompt, s.table[s.chain.n_blocks]);
    end(cache, &s);
    assert_null(prefix_index_check(&cache->index));
    return is_new;
}

static int n_found_of(struct cache *cache, const struct prefix_salt *salt, struct prefix_tokens tokens,
                      enum prefix_miss *out_miss) {
    struct prefix_chain chain;
    struct prefix_match match;
    block_id blocks[MAX_BLOCKS];
    prefix_index_start(&cache->index, salt, &chain);
    prefix_index_lookup(&cache->index, &chain, tokens, MAX_BLOCKS, blocks, &match);
    *out_miss = match.miss;
    assert_int_equal(match.miss_pos, match.n_found_blocks * B + match.n_partial_tokens);
    return match.miss_pos;
}

static void a_tail_is_found_as_far_as_it_goes(void **state) {
    (void)state;
    for (int h = 0; h < 2; h++) {
        struct cache *cache = cache_with(MAX_BLOCKS, hashes[h]);
        struct prefix_salt other = {{1}};
        uint32_t ids[4 * B];
        enum prefix_miss miss;
        count_up(ids, 4 * B, 10);
        assert_true(serve_with_tail(cache, NULL, tokens_of(ids, 2 * B + 2)));
        assert_int_equal(cache->pool.n_reusable, 3);
        assert_int_equal(n_found_of(cache, NULL, tokens_of(ids, 4 * B), &miss), 2 * B + 2);
        assert_int_equal(miss, PREFIX_MISS_NEW);
        assert_int_equal(n_found_of(cache, NULL, tokens_of(ids, 2 * B + 1), &miss), 2 * B + 1);
        assert_int_equal(n_found_of(cache, &other, tokens_of(ids, 4 * B), &miss), 0);
        ids[2 * B + 1]++;
        assert_int_equal(n_found_of(cache, NULL, tokens_of(ids, 4 * B), &miss), 2 * B + 1);
        assert_int_equal(miss, PREFIX_MISS_EDITED);
        /* of the first block, where the salt is compared */
        count_up(ids, 4 * B, 100);
        assert_true(serve_with_tail(cache, &other, tokens_of(ids, 2)));
        assert_int_equal(n_found_of(cache, &other, tokens_of(ids, 4 * B), &miss), 2);
        assert_int_equal(n_found_of(cache, NULL, tokens_of(ids, 4 * B), &miss), 0);
        drop(cache);
    }
}

static void a_tail_gives_way_to_what_covers_it(void **state) {
    (void)state;
    for (int h = 0; h < 2; h++) {
        struct cache *cache = cache_with(MAX_BLOCKS, hashes[h]);
        uint32_t ids[4 * B];
        count_up(ids, 4 * B, 10);
        assert_true(serve_with_tail(cache, NULL, tokens_of(ids, B + 1)));
        assert_false(serve_with_tail(cache, NULL, tokens_of(ids, B + 1)));
        assert_int_equal(cache->index.n_findable, 2);
        assert_true(serve_with_tail(cache, NULL, tokens_of(ids, B + 3))); /* in the shorter one's place */
        assert_int_equal(cache->index.n_findable, 2);
        assert_false(serve_with_tail(cache, NULL, tokens_of(ids, B + 2)));
        ids[B]++;
        assert_true(serve_with_tail(cache, NULL, tokens_of(ids, B + 2))); /* beside it */
        assert_int_equal(cache->index.n_findable, 3);
        ids[B]--;
        assert_int_equal(serve(cache, NULL, tokens_of(ids, 2 * B)), B + 3);
        assert_int_equal(cache->index.n_findable, 3); /* the full block instead of the tail */
        drop(cache);
    }
}

static void init_may_fail(void **state) {
    (void)state;
    struct block_pool pool;
    struct prefix_index index;
    assert_int_equal(block_pool_init(&pool, 4), STATUS_OK);
    long n_live = mem_n_live();
    assert_int_equal(prefix_index_init(&index, &pool, 0, "", 0, hash_sha256), STATUS_INVALID);
    prefix_index_deinit(&index);
    enum status status = STATUS_NOMEM;
    for (int nth = 1; status == STATUS_NOMEM; nth++) {
        assert_true(nth < 20);
        mem_fail_from(nth);
        status = prefix_index_init(&index, &pool, B, "", 0, hash_sha256);
        mem_fail_from(0);
        if (status == STATUS_OK) break;
        assert_int_equal(status, STATUS_NOMEM);
        assert_int_equal(mem_n_live(), n_live);
        assert_null(pool.on_evict);
        prefix_index_deinit(&index);
    }
    assert_int_equal(status, STATUS_OK);
    prefix_index_deinit(&index);
    assert_int_equal(mem_n_live(), n_live);
    block_pool_deinit(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_token_is_never_cached),
        cmocka_unit_test(the_answer_is_found_again),
        cmocka_unit_test(a_refilled_block_is_not_found_under_its_old_prefix),
        cmocka_unit_test(an_equal_block_after_another_beginning_is_another_block),
        cmocka_unit_test(two_at_once_end_up_in_one_block),
        cmocka_unit_test(an_unheld_twin_may_go_stale),
        cmocka_unit_test(tenants_never_meet),
        cmocka_unit_test(models_have_other_keys),
        cmocka_unit_test(an_edit_is_named_by_its_position),
        cmocka_unit_test(the_longest_of_many_continuations_is_taken),
        cmocka_unit_test(a_preempted_sequence_finds_its_own_blocks),
        cmocka_unit_test(a_waiter_goes_on_from_the_last_published_block),
        cmocka_unit_test(what_continues_a_dropped_block_is_dropped),
        cmocka_unit_test(a_tail_is_found_as_far_as_it_goes),
        cmocka_unit_test(a_tail_gives_way_to_what_covers_it),
        cmocka_unit_test(init_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
