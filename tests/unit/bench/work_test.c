#include "bench/work.h"

#include <math.h>

#include "support/test.h"

#define MS 1000000

static struct trace_request requests[8];
static struct work work[8];

/* A prompt that takes prefill_ms, arrives and is due then; no answer. */
static void set(int i, double arrival_ms, int prefill_ms, double deadline_ms) {
    requests[i] = (struct trace_request){.arrival_ms = arrival_ms,
                                         .after = -1,
                                         .n_prompt = 100,
                                         .n_own = 100,
                                         .n_output = 1,
                                         .has_deadline = deadline_ms > 0,
                                         .deadline_ms = deadline_ms};
    work[i] = (struct work){(int64_t)prefill_ms * MS, (int64_t)prefill_ms * MS, 0};
}

static double bound(int n, double scale) {
    struct trace trace = {.requests = requests, .n_requests = n};
    double n_in_time = 0;
    assert_int_equal(work_bound(&trace, work, scale, work_sum_ns(&trace, work), &n_in_time), STATUS_OK);
    return n_in_time;
}

static void check_near(double value, double expected) {
    if (fabs(value - expected) > 1e-6) fail_msg("%g is not %g", value, expected);
}

static void what_fits_is_counted(void **state) {
    (void)state;
    set(0, 0, 10, 100);
    set(1, 0, 10, 100);
    check_near(bound(2, 1), 2);
    set(1, 0, 180, 100);
    check_near(bound(2, 1), 1.5); /* the larger one in part */
    set(1, 0, 180, 0);            /* without a deadline it waits */
    check_near(bound(2, 1), 2);
}

static void stretched_arrivals_leave_more_time(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) set(i, 5 * i, 10, 10);
    check_near(bound(8, 1), 4.5); /* 45 ms from the first arrival to the last deadline */
    check_near(bound(8, 2), 8);
}

static void answers_take_their_share(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) set(i, 0, 10, 20);
    check_near(bound(2, 1), 2);
    work[0].decode_ns = work[1].decode_ns = 10 * MS; /* as much again */
    check_near(bound(2, 1), 1);
}

static void what_is_not_known_is_not_told(void **state) {
    (void)state;
    static struct trace_request many[WORK_MAX_BOUND + 1];
    static struct work much[WORK_MAX_BOUND + 1];
    struct trace trace = {.requests = many, .n_requests = WORK_MAX_BOUND + 1};
    double n_in_time;
    assert_int_equal(work_bound(&trace, much, 1, 1, &n_in_time), STATUS_OK);
    assert_true(n_in_time == -1);
    set(0, 0, 10, 100);
    set(1, 0, 10, 100);
    requests[1].after = 0;
    assert_true(bound(2, 1) == -1);
}

static void the_load_is_work_by_time(void **state) {
    (void)state;
    struct trace trace = {.requests = requests, .n_requests = 5, .load = 0.5};
    for (int i = 0; i < 5; i++) set(i, 100 * i, 40, 0);
    /* 200 ms of work; half load is 400 ms, as between the arrivals. */
    assert_true(fabs(work_scale(&trace, work_sum_ns(&trace, work)) - 1) < 1e-9);
    trace.load = 2;
    assert_true(fabs(work_scale(&trace, work_sum_ns(&trace, work)) - 0.25) < 1e-9);
    trace.load = 0;
    assert_true(work_scale(&trace, work_sum_ns(&trace, work)) == 1);
}

static void cached_tokens_are_no_work(void **state) {
    (void)state;
    const int rows[] = {1, 1000};
    const double rows_ns[] = {1000, 1000000};
    struct step_cost cost;
    struct trace trace = {.requests = requests, .n_requests = 3};
    assert_int_equal(step_cost_init(&cost, 2, rows, rows_ns, NULL), STATUS_OK);
    set(0, 0, 0, 0);
    set(1, 0, 0, 0);
    set(2, 0, 0, 0);
    requests[0].shared_id = requests[1].shared_id = 4;
    requests[0].n_shared = requests[1].n_shared = 90;
    requests[2].after = 0;
    requests[2].n_prompt = 100 + 1 + 100;
    work_of_trace(&trace, &cost, 512, true, work);
    assert_int_equal(work[0].prefill_ns, 100000);
    assert_int_equal(work[1].prefill_ns, 10000);
    assert_int_equal(work[2].prefill_ns, 101000);
    work_of_trace(&trace, &cost, 512, false, work);
    assert_int_equal(work[1].prefill_ns, 100000);
    assert_int_equal(work[0].decode_ns, 0);
    requests[0].n_output = 11;
    work_of_trace(&trace, &cost, 512, true, work);
    assert_int_equal(work[0].decode_ns, 10 * 8000 / WORK_STREAMS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_counted),     cmocka_unit_test(stretched_arrivals_leave_more_time),
        cmocka_unit_test(answers_take_their_share), cmocka_unit_test(what_is_not_known_is_not_told),
        cmocka_unit_test(the_load_is_work_by_time), cmocka_unit_test(cached_tokens_are_no_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
