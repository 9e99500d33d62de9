/* Block tables over KV groups, driven at random beside a model that keeps whole prefixes. Every slot carries a hash of
 * the prefix that it was computed for, so that KV of another prefix is seen wherever it comes from. */
#include "kvcache/kv_table.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/rng.h"
#include "support/test.h"

#define N_STEPS 100000
#define BLOCK 4
#define TILE 8
#define N_GROUPS 3
#define N_TABLES 5
#define MAX_TOKENS 72
#define MAX_BLOCKS 48
#define N_SALTS 2
#define CHECK_EVERY 16 /* steps between walks over everything */

/* What a block held when it was published. */
struct record {
    struct block_ref ref;
    int salt, n_tokens;
    uint32_t tokens[MAX_TOKENS];
};

struct user {
    bool is_busy, has_cache;
    int salt, n_tokens, n_computed;
    uint32_t tokens[MAX_TOKENS];
    struct kv_table table;
};

struct world {
    uint64_t seed, digest;
    uint32_t n_draws;
    struct kv_groups groups;
    struct user users[N_TABLES];
    uint64_t kv[N_GROUPS][MAX_BLOCKS][BLOCK];
    struct record records[N_GROUPS][MAX_BLOCKS];
    long n_hits, n_copies, n_mid_hits, n_cut_by_window, n_short, n_rows, n_swaps, n_trimmed, n_releases;
};

static const struct prefix_salt salts[N_SALTS] = {{{0}}, {{1}}};

static int below(struct world *w, int n) {
    return (int)(rng_uniform(w->seed, 0, w->n_draws++) * n);
}

static uint64_t kv_of(const struct user *user, int pos) {
    uint64_t hash = 77 + (uint64_t)user->salt;
    for (int i = 0; i <= pos; i++) hash = (hash ^ user->tokens[i]) * 0x9e3779b97f4a7c15u + 1;
    return hash;
}

static void constant_hash(const void *a, size_t n_a, const void *b, size_t n_b, uint8_t out[HASH_SHA256_BYTES]) {
    (void)a, (void)n_a, (void)b, (void)n_b;
    memset(out, 9, HASH_SHA256_BYTES);
}

static struct block_pool *pool_of(struct world *w, int group) {
    return &w->groups.groups[group].pool;
}

static const struct kv_groups_options sizes = {.n_groups = N_GROUPS,
                                               .block_tokens = BLOCK,
                                               .tile_tokens = TILE,
                                               .windows = {0, 6, 21},
                                               .n_blocks = {40, 24, 30},
                                               .has_index = true,
                                               .identity = "m",
                                               .n_identity = 1,
                                               .hash = hash_sha256};

static void open_world(struct world *w, uint64_t seed, const struct kv_groups_options *options) {
    *w = (struct world){.seed = seed};
    for (int g = 0; g < N_GROUPS; g++)
        for (int i = 0; i < MAX_BLOCKS; i++) w->records[g][i].ref.id = BLOCK_NONE;
    assert_int_equal(kv_groups_init(&w->groups, options), STATUS_OK);
    for (int i = 0; i < N_TABLES; i++)
        assert_int_equal(kv_table_init(&w->users[i].table, &w->groups, MAX_TOKENS), STATUS_OK);
}

static void close_world(struct world *w) {
    for (int i = 0; i < N_TABLES; i++) {
        kv_table_release(&w->users[i].table);
        kv_table_deinit(&w->users[i].table);
    }
    for (int g = 0; g < w->groups.n_groups; g++) assert_int_equal(pool_of(w, g)->n_held, 0);
    kv_groups_deinit(&w->groups);
}

/* ---- the model: what can be found ---- */

static bool is_known(struct world *w, int group, const struct user *user, int n_tokens) {
    for (int i = 0; i < pool_of(w, group)->n_blocks; i++) {
        const struct record *record = &w->records[group][i];
        if (!block_pool_is_current(pool_of(w, group), record->ref) || record->salt != user->salt) continue;
        if (!block_pool_is_findable(pool_of(w, group), record->ref.id) || record->n_tokens != n_tokens) continue;
        if (memcmp(record->tokens, user->tokens, (size_t)n_tokens * sizeof *user->tokens) == 0) return true;
    }
    return false;
}

static int window_begin(int group, int pos) {
    int first_key = pos - sizes.windows[group] + 1;
    return sizes.windows[group] == 0 || first_key < 0 ? 0 : first_key / TILE * TILE / BLOCK;
}

/* Blocks [from, to) are known in the group, or held by the user already. */
static bool is_run_known(struct world *w, int group, const struct user *user, int from, int to) {
    for (int b = from; b < to; b++)
        if (b >= user->n_computed / BLOCK && !is_known(w, group, user, (b + 1) * BLOCK)) return false;
    return true;
}

/* Longest number of full blocks that may be found. */
static int expected_blocks(struct world *w, const struct user *user, int n_usable, bool *out_is_cut) {
    int n = user->n_computed / BLOCK, n_nodes = n, n_best = n;
    while (n_nodes < n_usable / BLOCK && is_known(w, 0, user, (n_nodes + 1) * BLOCK)) n_nodes++;
    for (int end = n + 1; end <= n_nodes; end++) {
        bool is_usable = true;
        for (int g = 1; g < N_GROUPS; g++) is_usable &= is_run_known(w, g, user, window_begin(g, end * BLOCK), end);
        if (is_usable) n_best = end;
    }
    *out_is_cut = n_best < n_nodes;
    return n_best;
}

/* Tokens after n_blocks in which some findable block of group 0 agrees. */
static int expected_partial(struct world *w, const struct user *user, int n_blocks, int n_usable) {
    int best = 0, begin = n_blocks * BLOCK;
    for (int i = 0; i < pool_of(w, 0)->n_blocks; i++) {
        const struct record *record = &w->records[0][i];
        if (!block_pool_is_current(pool_of(w, 0), record->ref) || record->salt != user->salt) continue;
        if (!block_pool_is_findable(pool_of(w, 0), record->ref.id) || record->n_tokens != begin + BLOCK) continue;
        if (memcmp(record->tokens, user->tokens, (size_t)begin * sizeof *user->tokens) != 0) continue;
        int n = 0;
        while (n < BLOCK && begin + n < n_usable && record->tokens[begin + n] == user->tokens[begin + n]) n++;
        if (n > best) best = n;
    }
    return best;
}

/* ---- what a sequence does ---- */

static void make_copy(struct world *w, struct user *user) {
    struct kv_table *table = &user->table;
    for (int g = 0; table->has_copy && g < N_GROUPS; g++) {
        block_id to = table->blocks[g][table->copy_to];
        assert_true(to != table->copy_from[g]);
        memcpy(w->kv[g][to], w->kv[g][table->copy_from[g]], sizeof w->kv[g][to]);
    }
    w->n_copies += table->has_copy;
    kv_table_end_copy(table);
}

/* All that a row at pos may load is there and of this prefix. */
static void check_row(struct world *w, const struct user *user, int pos) {
    for (int g = 0; g < N_GROUPS; g++)
        for (int seen = window_begin(g, pos) * BLOCK; seen < pos; seen++) {
            block_id block = user->table.blocks[g][seen / BLOCK];
            assert_true(block < (block_id)pool_of(w, g)->n_blocks);
            assert_true(w->kv[g][block][seen % BLOCK] == kv_of(user, seen));
        }
}

static void find(struct world *w, struct user *user) {
    int n_usable = user->n_tokens - 1, before = user->n_computed;
    struct kv_found found;
    bool is_cut = false;
    int n_expected = before, n_partial = 0;
    if (user->has_cache && n_usable > before) {
        int n_blocks = expected_blocks(w, user, n_usable, &is_cut);
        if (n_blocks * BLOCK > before) n_expected = n_blocks * BLOCK;
        if (!is_cut) n_partial = n_blocks * BLOCK + expected_partial(w, user, n_blocks, n_usable);
    }
    kv_table_find(&user->table, (struct prefix_tokens){user->tokens, NULL, n_usable}, before, &found);
    user->n_computed = found.n_tokens;
    /* A copy may fail for want of a block or of a windowed block. */
    if (found.n_tokens != n_expected) assert_true(n_partial > n_expected && found.n_tokens == n_partial);
    if (found.n_tokens != n_expected) assert_true(user->table.has_copy);
    if (is_cut) assert_int_equal(found.miss, PREFIX_MISS_EVICTED);
    w->n_hits += found.n_tokens > before;
    w->n_mid_hits += before > 0 && found.n_tokens > before;
    w->n_cut_by_window += is_cut;
    w->digest = w->digest * 31 + (uint64_t)found.n_tokens;
    make_copy(w, user);
}

static void note_published(struct world *w, const struct user *user, int from) {
    for (int b = from; b < user->table.n_published; b++)
        for (int g = 0; g < N_GROUPS; g++) {
            block_id block = user->table.blocks[g][b];
            if (block == BLOCK_NONE) continue;
            struct record *record = &w->records[g][block];
            record->ref = block_pool_ref(pool_of(w, g), block);
            record->salt = user->salt;
            record->n_tokens = (b + 1) * BLOCK;
            memcpy(record->tokens, user->tokens, (size_t)record->n_tokens * sizeof *user->tokens);
        }
}

static void compute(struct world *w, struct user *user) {
    int n = 1 + below(w, 2 * BLOCK + 1), to = user->n_computed + n;
    if (to > user->n_tokens) to = user->n_tokens;
    kv_table_trim(&user->table, user->n_computed);
    for (int g = 0; g < N_GROUPS; g++) {
        w->n_trimmed += user->table.first[g] > 0;
        assert_int_equal(user->table.first[g], window_begin(g, user->n_computed));
    }
    int n_before[N_GROUPS];
    for (int g = 0; g < N_GROUPS; g++) n_before[g] = block_pool_n_available(pool_of(w, g));
    int n_missing = kv_table_n_missing(&user->table, to);
    enum status status = kv_table_grow(&user->table, to);
    bool has_room = true;
    for (int g = 0; g < N_GROUPS; g++) has_room &= n_before[g] >= n_missing;
    assert_int_equal(status, has_room ? STATUS_OK : STATUS_LIMIT);
    w->n_short += !has_room;
    for (int g = 0; !has_room && g < N_GROUPS; g++)
        assert_int_equal(block_pool_n_available(pool_of(w, g)), n_before[g]);
    if (!has_room) return;
    for (int pos = user->n_computed; pos < to; pos++) {
        check_row(w, user, pos);
        for (int g = 0; g < N_GROUPS; g++) w->kv[g][user->table.blocks[g][pos / BLOCK]][pos % BLOCK] = kv_of(user, pos);
    }
    w->n_rows += to - user->n_computed;
    user->n_computed = to;
    int n_published = user->table.n_published;
    block_id before = n_published < user->table.n_blocks ? user->table.blocks[0][n_published] : BLOCK_NONE;
    kv_table_publish(&user->table, (struct prefix_tokens){user->tokens, NULL, user->n_computed});
    w->n_swaps += user->table.n_published > n_published && user->table.blocks[0][n_published] != before;
    if (user->has_cache) assert_int_equal(user->table.n_published, user->n_computed / BLOCK);
    note_published(w, user, n_published);
}

static void arrive(struct world *w, struct user *user) {
    user->is_busy = true;
    user->salt = below(w, 8) == 0;
    user->has_cache = below(w, 6) != 0;
    user->n_computed = 0;
    user->n_tokens = 1 + below(w, MAX_TOKENS);
    for (int i = 0; i < MAX_TOKENS; i++) user->tokens[i] = below(w, 20) ? (uint32_t)(i % 3) : (uint32_t)below(w, 3);
    kv_table_start(&user->table, &salts[user->salt], user->has_cache);
}

static void step(struct world *w) {
    struct user *user = &w->users[below(w, N_TABLES)];
    if (!user->is_busy) {
        arrive(w, user);
        find(w, user);
        return;
    }
    int what = below(w, 24);
    if (what < 3 && user->n_computed < user->n_tokens) {
        find(w, user);
    } else if (what < 21 && user->n_computed < user->n_tokens) {
        compute(w, user);
    } else if (what == 21) {
        kv_table_release(&user->table); /* as when it is preempted: it goes on from what can be found */
        user->n_computed = 0;
        w->n_releases++;
    } else {
        kv_table_release(&user->table);
        user->is_busy = false;
    }
}

static void check_everything(struct world *w) {
    const char *broken = kv_groups_check(&w->groups);
    for (int i = 0; !broken && i < N_TABLES; i++) broken = kv_table_check(&w->users[i].table);
    if (broken) fail_msg("%s", broken);
    for (int g = 0; g < N_GROUPS; g++) {
        int n_refs = 0, n_held = 0;
        for (int i = 0; i < pool_of(w, g)->n_blocks; i++) n_refs += block_pool_n_refs(pool_of(w, g), (block_id)i);
        for (int i = 0; i < N_TABLES; i++) n_held += kv_table_n_held(&w->users[i].table, g);
        assert_int_equal(n_refs, n_held);
    }
}

static uint64_t run(uint64_t seed, prefix_hash_fn *hash) {
    static struct world w;
    struct kv_groups_options options = sizes;
    options.hash = hash;
    open_world(&w, seed, &options);
    for (int i = 0; i < N_STEPS; i++) {
        step(&w);
        if (i % CHECK_EVERY == 0) check_everything(&w);
    }
    print_message("%ld rows, %ld hits, %ld while running, %ld copies, %ld cut by a window, %ld swaps, %ld short\n",
                  w.n_rows, w.n_hits, w.n_mid_hits, w.n_copies, w.n_cut_by_window, w.n_swaps, w.n_short);
    /* A run in which something never happened would prove nothing about it. */
    assert_true(w.n_hits > 1000 && w.n_mid_hits > 100 && w.n_copies > 500 && w.n_cut_by_window > 50);
    assert_true(w.n_swaps > 100 && w.n_short > 100 && w.n_trimmed > 1000 && w.n_releases > 500);
    close_world(&w);
    return w.digest;
}

static void random_tables(void **state) {
    (void)state;
    const char *asked = getenv("KVICK_SEED");
    uint64_t seed = asked ? strtoull(asked, NULL, 10) : (uint64_t)time(NULL);
    print_message("KVICK_SEED=%llu\n", (unsigned long long)seed);
    uint64_t digest = run(seed, hash_sha256);
    assert_true(run(seed, constant_hash) == digest);
}

/* ---- single properties ---- */

static void fill(struct world *w, struct user *user, int n_tokens) {
    user->n_tokens = n_tokens;
    while (user->n_computed < n_tokens) compute(w, user);
}

static struct user *begin(struct world *w, int i, int n_tokens) {
    struct user *user = &w->users[i];
    user->salt = 0;
    user->has_cache = true;
    user->n_computed = 0;
    user->n_tokens = n_tokens;
    for (int t = 0; t < MAX_TOKENS; t++) user->tokens[t] = (uint32_t)t;
    kv_table_start(&user->table, NULL, true);
    return user;
}

static void a_windowed_group_holds_its_window_only(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, &sizes);
    struct user *user = begin(&w, 0, 0);
    fill(&w, user, 60);
    kv_table_trim(&user->table, 60);
    assert_int_equal(kv_table_n_held(&user->table, 0), 15);
    assert_int_equal(kv_table_n_held(&user->table, 1), 15 - 48 / BLOCK); /* keys from 55 on, tile from 48 */
    assert_int_equal(kv_table_n_held(&user->table, 2), 15 - 40 / BLOCK); /* keys from 40 on */
    for (int b = 0; b < 12; b++) assert_int_equal(user->table.blocks[1][b], BLOCK_NONE);
    close_world(&w);
}

/* Takes and gives back so many blocks of a group that nothing findable is left there. */
static void evict_all(struct world *w, int group) {
    block_id blocks[MAX_BLOCKS];
    int n = block_pool_n_available(pool_of(w, group));
    assert_int_equal(block_pool_take(pool_of(w, group), n, blocks), STATUS_OK);
    block_pool_release_all(pool_of(w, group), n, blocks);
}

static void a_hit_needs_the_window_of_every_group(void **state) {
    (void)state;
    static struct world w;
    struct kv_found found;
    open_world(&w, 1, &sizes);
    struct user *user = begin(&w, 0, 0);
    fill(&w, user, 60);
    kv_table_release(&user->table);
    user = begin(&w, 0, 60);
    kv_table_find(&user->table, (struct prefix_tokens){user->tokens, NULL, 60}, 0, &found);
    assert_int_equal(found.n_tokens, 60);
    assert_int_equal(found.miss, PREFIX_MISS_NONE);
    kv_table_release(&user->table);
    evict_all(&w, 1);
    user = begin(&w, 0, 60);
    kv_table_find(&user->table, (struct prefix_tokens){user->tokens, NULL, 60}, 0, &found);
    assert_int_equal(found.n_tokens, 0);
    assert_int_equal(found.miss, PREFIX_MISS_EVICTED);
    assert_int_equal(user->table.n_blocks, 0);
    /* The window's blocks computed again join the nodes that are there. */
    fill(&w, user, 60);
    kv_table_release(&user->table);
    user = begin(&w, 1, 60);
    kv_table_find(&user->table, (struct prefix_tokens){user->tokens, NULL, 60}, 0, &found);
    assert_int_equal(found.n_tokens, 60);
    close_world(&w);
}

static void evicting_a_node_frees_its_windowed_blocks(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, &sizes);
    struct user *user = begin(&w, 0, 0);
    fill(&w, user, 40);
    kv_table_release(&user->table);
    assert_true(pool_of(&w, 1)->n_reusable > 0 && pool_of(&w, 2)->n_reusable > 0);
    evict_all(&w, 0);
    assert_int_equal(pool_of(&w, 1)->n_free, pool_of(&w, 1)->n_blocks);
    assert_int_equal(pool_of(&w, 2)->n_free, pool_of(&w, 2)->n_blocks);
    close_world(&w);
}

static void a_part_of_a_block_is_copied_in_every_group(void **state) {
    (void)state;
    static struct world w;
    struct kv_found found;
    open_world(&w, 1, &sizes);
    fill(&w, begin(&w, 0, 0), 40);
    struct user *user = begin(&w, 1, 40);
    user->tokens[38] = 99;
    kv_table_find(&user->table, (struct prefix_tokens){user->tokens, NULL, 40}, 0, &found);
    assert_int_equal(found.n_tokens, 38);
    assert_int_equal(found.miss_pos, 38);
    assert_int_equal(found.miss, PREFIX_MISS_EDITED);
    assert_true(user->table.has_copy);
    assert_int_equal(user->table.copy_to, 9);
    for (int g = 0; g < N_GROUPS; g++) assert_int_equal(user->table.copy_from[g], w.users[0].table.blocks[g][9]);
    for (int g = 0; g < N_GROUPS; g++) assert_int_equal(block_pool_n_refs(pool_of(&w, g), user->table.copy_from[g]), 2);
    kv_table_release(&user->table); /* a copy that is never made holds nothing */
    for (int g = 0; g < N_GROUPS; g++)
        assert_int_equal(block_pool_n_refs(pool_of(&w, g), w.users[0].table.blocks[g][9]), 1);
    close_world(&w);
}

static void damage_is_seen(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, &sizes);
    struct user *user = begin(&w, 0, 0);
    fill(&w, user, 40);
    assert_null(kv_groups_check(&w.groups));
    assert_null(kv_table_check(&user->table));
    struct kv_table saved = user->table;
    user->table.n_published++;
    assert_non_null(kv_table_check(&user->table));
    user->table = saved;
    user->table.first[1] = 0;
    assert_non_null(kv_table_check(&user->table));
    user->table = saved;
    block_id *entry = &user->table.blocks[2][9], right = *entry;
    *entry = user->table.blocks[2][8];
    assert_non_null(kv_table_check(&user->table));
    *entry = right;
    w.groups.groups[1].of_node[user->table.blocks[0][9]] = BLOCK_NONE;
    assert_non_null(kv_groups_check(&w.groups));
    w.groups.groups[1].of_node[user->table.blocks[0][9]] = user->table.blocks[1][9];
    assert_null(kv_groups_check(&w.groups));
    close_world(&w);
}

static void bad_sizes_are_refused(void **state) {
    (void)state;
    struct kv_groups groups;
    struct kv_groups_options bad[4] = {sizes, sizes, sizes, sizes};
    bad[0].windows[0] = 8;
    bad[1].windows[1] = 0;
    bad[2].n_blocks[2] = 0;
    bad[3].n_groups = KV_LAYERS_MAX_GROUPS + 1;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kv_groups_init(&groups, &bad[i]), STATUS_INVALID);
        kv_groups_deinit(&groups);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_windowed_group_holds_its_window_only),
        cmocka_unit_test(a_hit_needs_the_window_of_every_group),
        cmocka_unit_test(evicting_a_node_frees_its_windowed_blocks),
        cmocka_unit_test(a_part_of_a_block_is_copied_in_every_group),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(bad_sizes_are_refused),
        cmocka_unit_test(random_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
