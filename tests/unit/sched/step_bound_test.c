#include "sched/step_bound.h"

#include "support/test.h"

#define MS INT64_C(1000000)

static const struct step_limits limits = {.target_itl_ns = 50 * MS, .max_step_ns = 60 * MS, .batch_step_ns = 250 * MS};

/* A row takes row_ms, and each one more a millisecond. */
static struct step_cost made(double row_ms) {
    const int rows[] = {1, 1001};
    const double ns[] = {row_ms * 1e6, (row_ms + 1000) * 1e6};
    struct step_cost cost;
    assert_int_equal(step_cost_init(&cost, 2, rows, ns, NULL), STATUS_OK);
    return cost;
}

static int64_t bound_of(double row_ms, int n_decoding, enum step_urgency urgency) {
    struct step_cost cost = made(row_ms);
    struct step_shape decode = {.n_rows = n_decoding, .n_decode_rows = n_decoding};
    return step_bound_ns(&cost, &limits, &decode, urgency) / MS;
}

static void the_table_of_plan_md(void **state) {
    (void)state;
    assert_int_equal(bound_of(10, 1, STEP_PROMPT), 50);
    assert_int_equal(bound_of(10, 31, STEP_PROMPT), 60); /* 1.5 x 40 */
    assert_int_equal(bound_of(10, 0, STEP_PROMPT), 60);
    assert_int_equal(bound_of(40, 0, STEP_PROMPT), 80);
    assert_int_equal(bound_of(10, 0, STEP_READY), 30);
    assert_int_equal(bound_of(10, 1, STEP_READY), 25);
    assert_int_equal(bound_of(10, 11, STEP_READY), 30); /* 1.5 x 20 */
    assert_int_equal(bound_of(40, 0, STEP_READY), 80);
    assert_int_equal(bound_of(10, 0, STEP_RELAXED), 250);
    assert_int_equal(bound_of(20, 1, STEP_RELAXED), 400);
    struct step_limits unbounded = limits;
    struct step_cost cost = made(10);
    unbounded.is_unbounded = true;
    assert_true(step_bound_ns(&cost, &unbounded, &(struct step_shape){0}, STEP_PROMPT) == STEP_COST_MAX_NS);
}

static void pace_is_what_a_prompt_gets(void **state) {
    (void)state;
    struct step_cost cost = made(10);
    cost.prefill_key_ns = 100;
    struct step_shape decode = {.n_rows = 1, .n_decode_rows = 1};
    struct step_pace pace = step_bound_pace(&cost, &limits, &decode, STEP_PROMPT, 512);
    assert_true(pace.limit_ns == 50 * MS && pace.decode_ns == 10 * MS);
    assert_true(pace.stretch == 1.25); /* 40 of 50 ms */
    assert_true(pace.row_ns == 1e6);
    assert_int_equal(step_bound_work_ns(&cost, &pace, 1, 3), 2 * MS + 500); /* keys 2 + 3 */
}

/* A prompt that has to itself what the bound leaves is through when work times stretch says, to a step. */
static void work_times_stretch_is_wall_time(void **state) {
    (void)state;
    struct step_cost cost = made(10);
    for (int n_decode = 0; n_decode <= 20; n_decode += 10) {
        struct step_shape decode = {.n_rows = n_decode, .n_decode_rows = n_decode};
        struct step_pace pace = step_bound_pace(&cost, &limits, &decode, STEP_PROMPT, 512);
        int64_t now_ns = 0;
        for (int pos = 0; pos < 3000;) {
            struct step_shape shape = decode;
            int n = step_cost_max_prefill(&cost, &decode, pos, 3000 - pos, 3000, pace.limit_ns);
            step_cost_add_prefill(&cost, &shape, pos, pos + n, 0);
            now_ns += step_cost_ns(&cost, &shape);
            pos += n;
        }
        double predicted = (double)step_bound_work_ns(&cost, &pace, 0, 3000) * pace.stretch;
        assert_true(predicted > (double)(now_ns - pace.limit_ns) && predicted < (double)(now_ns + pace.limit_ns));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_of_plan_md),
        cmocka_unit_test(pace_is_what_a_prompt_gets),
        cmocka_unit_test(work_times_stretch_is_wall_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
