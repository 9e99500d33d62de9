/* Prefixes that are pinned: found whatever else takes blocks, until their time ends; bounded; counted. */
#include "kvcache/kv_pins.h"

#include "base/hash.h"
#include "base/rng.h"
#include "support/test.h"

#define BLOCK 4
#define MAX_TOKENS 40
#define N_BLOCKS 48 /* a quarter may be pinned */

struct world {
    struct kv_groups groups;
    struct kv_pins pins;
    struct kv_table table;
};

static const struct kv_groups_options sizes = {.n_groups = 2,
                                               .block_tokens = BLOCK,
                                               .tile_tokens = BLOCK,
                                               .windows = {0, 6},
                                               .n_blocks = {N_BLOCKS, N_BLOCKS},
                                               .has_index = true,
                                               .identity = "m",
                                               .n_identity = 1,
                                               .hash = hash_sha256};

static void open_world(struct world *w, const struct kv_groups_options *options) {
    assert_int_equal(kv_groups_init(&w->groups, options), STATUS_OK);
    assert_int_equal(kv_pins_init(&w->pins, &w->groups, MAX_TOKENS, 8), STATUS_OK);
    assert_int_equal(kv_table_init(&w->table, &w->groups, MAX_TOKENS), STATUS_OK);
}

static void check(const struct world *w) {
    assert_null(kv_groups_check(&w->groups));
    assert_null(kv_pins_check(&w->pins));
}

static void close_world(struct world *w) {
    kv_table_deinit(&w->table);
    kv_pins_deinit(&w->pins);
    for (int g = 0; g < w->groups.n_groups; g++) assert_int_equal(w->groups.groups[g].pool.n_held, 0);
    assert_null(kv_groups_check(&w->groups));
    kv_groups_deinit(&w->groups);
}

/* Tokens of a sequence that has nothing in common with others of another number. */
static struct prefix_tokens tokens_of(uint32_t number, int n_tokens) {
    static uint32_t ids[MAX_TOKENS];
    for (int i = 0; i < n_tokens; i++) ids[i] = number * 1000 + (uint32_t)i;
    return (struct prefix_tokens){ids, NULL, n_tokens};
}

/* Runs a sequence; pinned until until_ns if that is not 0. Returns what is pinned, -1: refused. */
static int run(struct world *w, uint32_t number, int n_tokens, uint64_t owner, int64_t until_ns) {
    struct prefix_tokens tokens = tokens_of(number, n_tokens);
    struct kv_found found;
    int n_pinned = 0;
    kv_table_start(&w->table, NULL, true);
    kv_table_find(&w->table, (struct prefix_tokens){tokens.ids, NULL, n_tokens - 1}, 0, &found);
    kv_table_end_copy(&w->table);
    assert_int_equal(kv_table_grow(&w->table, n_tokens), STATUS_OK);
    kv_table_publish(&w->table, tokens);
    if (until_ns && kv_pins_add(&w->pins, &w->table, n_tokens, owner, until_ns, &n_pinned)) n_pinned = -1;
    kv_table_release(&w->table);
    check(w);
    return n_pinned;
}

static int n_found(struct world *w, uint32_t number, int n_tokens) {
    struct kv_found found;
    kv_table_look(&w->groups, NULL, tokens_of(number, n_tokens), &found);
    return found.n_tokens;
}

static void crowd(struct world *w) {
    for (uint32_t number = 100; number < 140; number++) run(w, number, MAX_TOKENS, 0, 0);
}

static void test_pinned_prefix_outlives_a_crowd(void **state) {
    struct world w;
    (void)state;
    open_world(&w, &sizes);
    assert_int_equal(run(&w, 1, 22, 7, 1000), 20);
    run(&w, 2, 22, 0, 0);
    assert_int_equal(n_found(&w, 1, 20), 20);
    assert_int_equal(n_found(&w, 2, 20), 20);
    crowd(&w);
    assert_int_equal(n_found(&w, 1, 20), 20);
    assert_int_equal(n_found(&w, 2, 20), 0);
    assert_int_equal(w.pins.n_pinned[0], 5);
    assert_int_equal(w.pins.n_pinned[1], 2); /* what a window of 6 reaches */
    close_world(&w);
}

static void test_time_ends_a_pin(void **state) {
    struct world w;
    (void)state;
    open_world(&w, &sizes);
    assert_int_equal(kv_pins_next_ns(&w.pins), 0);
    run(&w, 1, 20, 7, 1000);
    run(&w, 2, 20, 7, 500);
    assert_int_equal(kv_pins_next_ns(&w.pins), 500);
    kv_pins_expire(&w.pins, 499);
    assert_int_equal(w.pins.n_pinned[0], 10);
    kv_pins_expire(&w.pins, 500);
    check(&w);
    assert_int_equal(w.pins.n_pinned[0], 5);
    assert_int_equal(kv_pins_next_ns(&w.pins), 1000);
    assert_int_equal(n_found(&w, 2, 20), 20); /* as long as nobody takes the blocks */
    crowd(&w);
    assert_int_equal(n_found(&w, 1, 20), 20);
    assert_int_equal(n_found(&w, 2, 20), 0);
    kv_pins_expire(&w.pins, 1000);
    crowd(&w);
    assert_int_equal(n_found(&w, 1, 20), 0);
    assert_int_equal(kv_pins_next_ns(&w.pins), 0);
    close_world(&w);
}

static void test_same_prefix_is_one_pin(void **state) {
    struct world w;
    (void)state;
    open_world(&w, &sizes);
    run(&w, 1, 20, 7, 1000);
    for (int i = 0; i < 2 * KV_PINS_MAX; i++) assert_int_equal(run(&w, 1, 20, 7, 2000 + i), 20);
    assert_int_equal(w.pins.n_pinned[0], 5);
    assert_int_equal(kv_pins_next_ns(&w.pins), 2000 + 2 * KV_PINS_MAX - 1);
    run(&w, 1, 20, 7, 300); /* a shorter time counts too */
    assert_int_equal(kv_pins_next_ns(&w.pins), 300);
    assert_int_equal(run(&w, 1, 20, 8, 200), 20); /* another owner's pin is his own */
    kv_pins_expire(&w.pins, 200);
    check(&w);
    assert_int_equal(w.pins.n_pinned[0], 5);
    assert_int_equal(kv_pins_next_ns(&w.pins), 300);
    close_world(&w);
}

static void test_pins_are_bounded(void **state) {
    struct world w;
    (void)state;
    open_world(&w, &sizes);
    assert_int_equal(w.pins.max_pinned[0], N_BLOCKS / KV_PINS_SHARE);
    assert_int_equal(run(&w, 1, 24, 7, 1000), 24);
    assert_int_equal(run(&w, 2, 24, 7, 1000), 24);
    assert_int_equal(run(&w, 3, 4, 7, 1000), -1);
    assert_int_equal(run(&w, 1, 16, 7, 1000), 16); /* blocks that are pinned already cost nothing */
    assert_int_equal(w.pins.n_pinned[0], 12);
    assert_int_equal(run(&w, 9, 3, 7, 1000), 0); /* no full block */
    close_world(&w);
    struct kv_groups_options small = sizes;
    small.n_blocks[0] = MAX_TOKENS / BLOCK; /* a request may need all of it */
    open_world(&w, &small);
    assert_int_equal(w.pins.max_pinned[0], 0);
    assert_int_equal(run(&w, 1, 20, 7, 1000), -1);
    close_world(&w);
    struct kv_groups_options blind = sizes;
    blind.has_index = false;
    open_world(&w, &blind);
    assert_int_equal(run(&w, 1, 20, 7, 1000), 0);
    close_world(&w);
}

static void test_random_pins(void **state) {
    struct world w;
    uint32_t n_draws = 0;
    int n_refused = 0, n_pinned = 0;
    (void)state;
    open_world(&w, &sizes);
    for (int64_t now = 1; now < 4000; now++) {
        double draw[4];
        for (int i = 0; i < 4; i++) draw[i] = rng_uniform(5, 0, n_draws++);
        int n = run(&w, (uint32_t)(draw[0] * 12), 1 + (int)(draw[1] * MAX_TOKENS), (uint64_t)(draw[2] * 2),
                    draw[3] < 0.5 ? now + 1 + (int64_t)(draw[3] * 60) : 0);
        n_refused += n < 0;
        n_pinned += n > 0;
        kv_pins_expire(&w.pins, now);
        check(&w);
    }
    assert_true(n_refused > 100 && n_pinned > 100);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned_prefix_outlives_a_crowd),
        cmocka_unit_test(test_time_ends_a_pin),
        cmocka_unit_test(test_same_prefix_is_one_pin),
        cmocka_unit_test(test_pins_are_bounded),
        cmocka_unit_test(test_random_pins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
