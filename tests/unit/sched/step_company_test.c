#include "sched/step_company.h"

#include "support/test.h"

/* 4 ms for a row, half a millisecond for each one more. */
static struct step_cost made(void) {
    const int rows[] = {1, 1001};
    const double ns[] = {4e6, 504e6};
    struct step_cost cost;
    assert_int_equal(step_cost_init(&cost, 2, rows, ns, NULL), STATUS_OK);
    return cost;
}

static struct step_shape rows_of(int n_decode, int n_prefill) {
    return (struct step_shape){.n_rows = n_decode + n_prefill, .n_decode_rows = n_decode};
}

/* n_more rows beside n_rows that give `ending` their first token while `waiting` go on waiting. */
static bool joins(double ending, double waiting, int n_rows, int n_more) {
    struct step_cost cost = made();
    struct step_shape decode = rows_of(1, 0), step = rows_of(1, n_rows), joined = rows_of(1, n_rows + n_more);
    return step_company_joins(&(struct step_company){.ending = ending, .waiting = waiting}, &cost, &decode, &step,
                              &joined);
}

static void where_nobody_ends_all_join(void **state) {
    (void)state;
    assert_true(joins(0, 2, 24, 76));
    assert_true(joins(0.05, 1, 24, 76)); /* batch work */
}

/* 76 rows take 38 ms here, and 42 in a step of their own: 4 ms are saved for each who waits. */
static void it_is_less_waiting_in_all_that_decides(void **state) {
    (void)state;
    assert_false(joins(1, 1, 24, 76));
    assert_false(joins(1, 9, 24, 76));
    assert_true(joins(1, 10, 24, 76));
    assert_false(joins(2, 10, 24, 76));
    assert_true(joins(1, 1, 24, 8)); /* few rows cost little: 4 ms */
    assert_false(joins(1, 1, 24, 9));
}

static void who_ends_waits_no_more(void **state) {
    (void)state;
    struct step_company company = {.waiting = 3};
    step_company_end(&company, 1);
    assert_true(company.ending == 1 && company.waiting == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_nobody_ends_all_join),
        cmocka_unit_test(it_is_less_waiting_in_all_that_decides),
        cmocka_unit_test(who_ends_waits_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
