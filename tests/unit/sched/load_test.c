#include "sched/load.h"

#include <string.h>

#include "support/test.h"

#define MS INT64_C(1000000)
#define S INT64_C(1000000000)

static struct load load;
static bool is_heavy[TERMS_MAX_TENANTS];

static void begin(void) {
    memset(&load, 0, sizeof load);
    memset(is_heavy, 0, sizeof is_heavy);
}

static int64_t add_steadily(enum terms_class class_, int tenant, int64_t work_ns, int64_t every_ns, int64_t from_ns,
                            int64_t to_ns) {
    struct terms terms = {.service_class = class_, .tenant = tenant};
    for (; from_ns < to_ns; from_ns += every_ns) load_add(&load, &terms, work_ns, from_ns);
    return to_ns;
}

static struct load_delay ask(enum terms_class class_, int64_t work_ns, int64_t estimate_ns, int64_t now_ns) {
    struct terms terms = {.service_class = class_};
    struct load_prompt prompt = {.terms = &terms,
                                 .work_ns = work_ns,
                                 .tenant_ns = work_ns,
                                 .estimate_ns = estimate_ns,
                                 .stretch = 1,
                                 .is_heavy = is_heavy};
    return load_delay_of(&load, &prompt, now_ns);
}

static void nobody_comes_nothing_is_added(void **state) {
    (void)state;
    begin();
    struct load_delay delay = ask(TERMS_INTERACTIVE, S, 2 * S, 5 * S);
    assert_true(delay.mean_ns == 0 && delay.likely_ns == 0);
}

/* Short ones take 30 % of the time: one that waits for 10 s will wait for 10 / 0.7. */
static void a_long_wait_is_stretched_by_the_share_of_short_ones(void **state) {
    (void)state;
    begin();
    int64_t now_ns = add_steadily(TERMS_INTERACTIVE, 0, 60 * MS, 200 * MS, S, 200 * S);
    struct load_delay delay = ask(TERMS_INTERACTIVE, 2 * S, 12 * S, now_ns);
    double expected_ns = 12e9 * (1 / 0.7 - 1);
    assert_true(delay.mean_ns > 0.9 * expected_ns && delay.mean_ns < 1.1 * expected_ns);
    assert_true(delay.likely_ns > 0.9 * delay.mean_ns && delay.likely_ns < delay.mean_ns);
}

/* Within 100 ms half a newcomer is expected: none is more likely than one. */
static void a_short_wait_is_most_likely_left_alone(void **state) {
    (void)state;
    begin();
    int64_t now_ns = add_steadily(TERMS_INTERACTIVE, 0, 60 * MS, 200 * MS, S, 200 * S);
    struct load_delay delay = ask(TERMS_INTERACTIVE, 100 * MS, 100 * MS, now_ns);
    assert_true(delay.mean_ns > 0 && delay.likely_ns == 0);
}

static void only_who_goes_first_counts(void **state) {
    (void)state;
    begin();
    int64_t now_ns = add_steadily(TERMS_INTERACTIVE, 0, 500 * MS, S, S, 200 * S);
    /* Longer ones of its class do not overtake, but any interactive one overtakes batch work. */
    assert_true(ask(TERMS_INTERACTIVE, 100 * MS, 5 * S, now_ns).mean_ns == 0);
    assert_true(ask(TERMS_BATCH, 100 * MS, 5 * S, now_ns).mean_ns > 4e9);
    begin();
    now_ns = add_steadily(TERMS_BATCH, 0, 10 * MS, 100 * MS, S, 200 * S);
    assert_true(ask(TERMS_INTERACTIVE, S, 5 * S, now_ns).mean_ns == 0);
    begin();
    now_ns = add_steadily(TERMS_INTERACTIVE, 1, 10 * MS, 20 * MS, S, 200 * S);
    assert_true(ask(TERMS_INTERACTIVE, S, 5 * S, now_ns).mean_ns > 4e9);
    is_heavy[1] = true;
    assert_true(ask(TERMS_INTERACTIVE, S, 5 * S, now_ns).mean_ns == 0);
}

static void a_share_is_forgotten_while_nobody_comes(void **state) {
    (void)state;
    begin();
    int64_t now_ns = add_steadily(TERMS_INTERACTIVE, 0, 60 * MS, 200 * MS, S, 200 * S);
    double share = load_share(&load, now_ns);
    assert_true(share > 0.25 && share < 0.35);
    double later = load_share(&load, now_ns + 2 * LOAD_TIME_NS);
    assert_true(later > 0.02 && later < 0.1);
    assert_true(load_share(&load, now_ns) == share);
}

static void too_much_is_bounded(void **state) {
    (void)state;
    begin();
    int64_t now_ns = add_steadily(TERMS_INTERACTIVE, 0, 50 * MS, 20 * MS, S, 200 * S);
    struct load_delay delay = ask(TERMS_INTERACTIVE, 3 * S, 4 * S, now_ns);
    assert_true(delay.mean_ns > 4e9 && delay.mean_ns <= 16e9 && delay.likely_ns <= delay.mean_ns);
}

static void a_storm_is_heavy_once_there_is_another(void **state) {
    (void)state;
    double weights[TERMS_MAX_TENANTS];
    begin();
    for (int t = 0; t < TERMS_MAX_TENANTS; t++) weights[t] = 1;
    int64_t now_ns = add_steadily(TERMS_INTERACTIVE, 3, 50 * MS, 100 * MS, S, 5 * S);
    load_find_heavy(&load, weights, is_heavy);
    assert_false(is_heavy[3]);
    add_steadily(TERMS_INTERACTIVE, 4, 50 * MS, S, now_ns, now_ns + 4 * S);
    load_find_heavy(&load, weights, is_heavy);
    assert_true(is_heavy[3]);
    assert_false(is_heavy[4]);
    weights[3] = 20; /* that much is its share */
    load_find_heavy(&load, weights, is_heavy);
    assert_false(is_heavy[3]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_comes_nothing_is_added),
        cmocka_unit_test(a_long_wait_is_stretched_by_the_share_of_short_ones),
        cmocka_unit_test(a_short_wait_is_most_likely_left_alone),
        cmocka_unit_test(only_who_goes_first_counts),
        cmocka_unit_test(a_share_is_forgotten_while_nobody_comes),
        cmocka_unit_test(too_much_is_bounded),
        cmocka_unit_test(a_storm_is_heavy_once_there_is_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
