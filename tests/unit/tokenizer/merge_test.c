#include "tokenizer/merge.h"

#include <stdlib.h>

#include "base/mem.h"
#include "support/test.h"

/* A toy rule with everything that matters: several ranks, equal ranks, symbols that stop merging. */
struct rule {
    uint32_t max_bytes;
    long n_calls;
};

static uint32_t toy_pair(const void *context, const struct merge_symbol *left, const struct merge_symbol *right,
                         int32_t *out_merged_id) {
    struct rule *rule = (struct rule *)context;
    rule->n_calls++;
    if (left->n_bytes + right->n_bytes > rule->max_bytes) return MERGE_NO_RANK;
    uint32_t rank = (uint32_t)(left->id * 7 + right->id * 13) % 11;
    if (rank == 5) return MERGE_NO_RANK;
    *out_merged_id = (left->id * 3 + right->id + 1) % 17;
    return rank;
}

/* The definition: as long as some pair merges, the leftmost of the best rank does. */
static size_t merge_naively(struct rule *rule, struct merge_symbol *symbols, size_t n) {
    for (;;) {
        uint32_t best_rank = MERGE_NO_RANK;
        size_t best = 0;
        int32_t id = 0, best_id = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = toy_pair(rule, &symbols[i], &symbols[i + 1], &id);
            if (rank < best_rank) {
                best_rank = rank;
                best = i;
                best_id = id;
            }
        }
        if (best_rank == MERGE_NO_RANK) return n;
        symbols[best].id = best_id;
        symbols[best].n_bytes += symbols[best + 1].n_bytes;
        for (size_t i = best + 1; i + 1 < n; i++) symbols[i] = symbols[i + 1];
        n--;
    }
}

static void equals_the_definition(void **state) {
    (void)state;
    struct merge merge;
    struct merge_symbol naive[200];
    merge_init(&merge);
    srand(7);
    for (int round = 0; round < 2000; round++) {
        size_t n = 1 + (size_t)rand() % 200;
        struct rule rule = {1 + (uint32_t)rand() % 12, 0};
        assert_int_equal(merge_reserve(&merge, n), STATUS_OK);
        for (size_t i = 0; i < n; i++)
            naive[i] = merge.symbols[i] = (struct merge_symbol){.from = (uint32_t)i, .n_bytes = 1, .id = rand() % 4};
        merge_run(&merge, n, toy_pair, &rule);
        size_t n_left = merge_naively(&rule, naive, n), k = 0;
        for (uint32_t i = 0; i != MERGE_NO_SYMBOL; i = merge.symbols[i].next, k++) {
            assert_true(k < n_left);
            assert_int_equal(merge.symbols[i].id, naive[k].id);
            assert_int_equal(merge.symbols[i].from, naive[k].from);
            assert_int_equal(merge.symbols[i].n_bytes, naive[k].n_bytes);
        }
        assert_int_equal(k, n_left);
    }
    merge_deinit(&merge);
}

static void looks_at_each_pair_a_few_times(void **state) {
    (void)state;
    struct merge merge;
    merge_init(&merge);
    for (size_t n = 1000; n <= 256000; n *= 4) {
        struct rule rule = {64, 0};
        assert_int_equal(merge_reserve(&merge, n), STATUS_OK);
        for (size_t i = 0; i < n; i++)
            merge.symbols[i] = (struct merge_symbol){.from = (uint32_t)i, .n_bytes = 1, .id = (int32_t)(i % 2)};
        merge_run(&merge, n, toy_pair, &rule);
        assert_true(rule.n_calls <= 3 * (long)n);
    }
    merge_deinit(&merge);
}

static void survives_memory_failure(void **state) {
    (void)state;
    struct merge merge;
    merge_init(&merge);
    long before = mem_n_live();
    for (int nth = 1; nth <= 2; nth++) {
        mem_fail_from(nth);
        assert_int_equal(merge_reserve(&merge, 1000), STATUS_NOMEM);
        mem_fail_from(0);
    }
    assert_int_equal(merge_reserve(&merge, 1000), STATUS_OK);
    merge_deinit(&merge);
    assert_int_equal(mem_n_live(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_definition),
        cmocka_unit_test(looks_at_each_pair_a_few_times),
        cmocka_unit_test(survives_memory_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
