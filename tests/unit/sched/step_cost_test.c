#include "sched/step_cost.h"

#include <math.h>

#include "base/rng.h"
#include "support/test.h"

static const int rows[] = {1, 2, 4, 16, 64, 256};
static const double rows_ns[] = {10e6, 10e6, 12e6, 15e6, 40e6, 150e6};

static struct step_cost made(void) {
    struct step_cost cost;
    assert_int_equal(step_cost_init(&cost, 6, rows, rows_ns, NULL), STATUS_OK);
    cost.prefill_key_ns = 50;
    cost.decode_key_ns = 200;
    cost.decode_row_ns = 1000;
    cost.logit_row_ns = 30000;
    return cost;
}

static int64_t ns_of_rows(const struct step_cost *cost, int n) {
    return step_cost_ns(cost, &(struct step_shape){.n_rows = n});
}

static void between_points_and_above(void **state) {
    (void)state;
    struct step_cost cost = made();
    assert_int_equal(ns_of_rows(&cost, 0), 0);
    for (int i = 0; i < 6; i++) assert_int_equal(ns_of_rows(&cost, rows[i]), (int64_t)rows_ns[i]);
    assert_int_equal(ns_of_rows(&cost, 3), 11000000);
    assert_int_equal(ns_of_rows(&cost, 40), 27500000);
    assert_int_equal(ns_of_rows(&cost, 256 + 192), 260000000); /* goes on as from 64 to 256 */
    struct step_cost line;
    assert_int_equal(step_cost_init(&line, 1, rows, rows_ns, NULL), STATUS_OK);
    assert_int_equal(ns_of_rows(&line, 7), 70000000);
}

static void terms_add_up(void **state) {
    (void)state;
    struct step_cost cost = made();
    struct step_shape shape = {0};
    step_cost_add_prefill(&cost, &shape, 10, 13, 2); /* keys 11 + 12 + 13 */
    step_cost_add_decode(&cost, &shape, 99);         /* 100 keys */
    assert_int_equal(shape.n_rows, 4);
    assert_int_equal(shape.n_decode_rows, 1);
    assert_int_equal(shape.n_logit_rows, 3);
    int64_t expected = 12000000 + 36 * 50 + 100 * 200 + 1000 + 3 * 30000;
    assert_int_equal(step_cost_ns(&cost, &shape), expected);
}

static void keys_in_windows(void **state) {
    (void)state;
    struct step_cost cost = made();
    cost.window_share = 0.75;
    cost.window_tokens = 20;
    for (int from = 0; from < 50; from += 7)
        for (int to = from; to < 60; to++) {
            double sum = 0;
            for (int pos = from; pos < to; pos++) sum += 0.25 * (pos + 1) + 0.75 * (pos + 1 < 20 ? pos + 1 : 20);
            assert_true(fabs(step_cost_keys(&cost, from, to) - sum) < 1e-6);
        }
}

static void bad_tables_are_refused(void **state) {
    (void)state;
    struct step_cost cost;
    struct status_note note;
    const int falling[] = {1, 4, 3}, late[] = {2, 3, 4}, good[] = {1, 2, 3};
    const double times[] = {1, 2, 3}, zero[] = {1, 0, 3}, not_finite[] = {1, 2, INFINITY};
    assert_int_equal(step_cost_init(&cost, 0, good, times, &note), STATUS_INVALID);
    assert_int_equal(step_cost_init(&cost, STEP_COST_MAX_POINTS + 1, good, times, &note), STATUS_INVALID);
    assert_int_equal(step_cost_init(&cost, 3, falling, times, &note), STATUS_INVALID);
    assert_int_equal(step_cost_init(&cost, 3, late, times, &note), STATUS_INVALID);
    assert_int_equal(step_cost_init(&cost, 3, good, zero, &note), STATUS_INVALID);
    assert_int_equal(step_cost_init(&cost, 3, good, not_finite, &note), STATUS_INVALID);
    assert_string_equal(note.text, "3 rows cannot take inf ns");
}

/* A dip in what was measured is noise: the inverse needs a cost that never falls. */
static void a_dip_is_levelled(void **state) {
    (void)state;
    struct step_cost cost;
    const double dip[] = {10e6, 9e6, 12e6, 11e6, 40e6, 150e6};
    assert_int_equal(step_cost_init(&cost, 6, rows, dip, NULL), STATUS_OK);
    for (int n = 1; n < 300; n++) assert_true(ns_of_rows(&cost, n) <= ns_of_rows(&cost, n + 1));
    assert_int_equal(ns_of_rows(&cost, 2), 10000000);
    assert_int_equal(ns_of_rows(&cost, 16), 12000000);
}

static int64_t ns_with(const struct step_cost *cost, struct step_shape shape, int from, int n, int logits_from) {
    int n_logits = 0;
    for (int pos = from; pos < from + n; pos++) n_logits += pos >= logits_from;
    step_cost_add_prefill(cost, &shape, from, from + n, n_logits);
    return step_cost_ns(cost, &shape);
}

static void inverse_is_the_largest_that_fits(void **state) {
    (void)state;
    struct step_cost cost = made();
    int n_cut = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        struct step_shape base = {0};
        int n_decode = (int)(rng_uniform(5, 0, i) * 5), from = (int)(rng_uniform(5, 1, i) * 4000);
        int max_rows = (int)(rng_uniform(5, 2, i) * 600), logits_from = from + (int)(rng_uniform(5, 3, i) * 600);
        int64_t limit = (int64_t)(rng_uniform(5, 4, i) * 200e6);
        for (int d = 0; d < n_decode; d++) step_cost_add_decode(&cost, &base, 100 * d);
        int n = step_cost_max_prefill(&cost, &base, from, max_rows, logits_from, limit);
        assert_true(n >= 0 && n <= max_rows);
        if (n > 0) assert_true(ns_with(&cost, base, from, n, logits_from) <= limit);
        if (n < max_rows) assert_true(ns_with(&cost, base, from, n + 1, logits_from) > limit);
        n_cut += n > 0 && n < max_rows;
    }
    assert_true(n_cut > 500);
}

static void huge_costs_stay_numbers(void **state) {
    (void)state;
    struct step_cost cost = made();
    cost.prefill_key_ns = 1e30;
    assert_true(ns_with(&cost, (struct step_shape){0}, 0, 1000, 0) == STEP_COST_MAX_NS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_points_and_above), cmocka_unit_test(terms_add_up),
        cmocka_unit_test(keys_in_windows),          cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(a_dip_is_levelled),        cmocka_unit_test(inverse_is_the_largest_that_fits),
        cmocka_unit_test(huge_costs_stay_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
