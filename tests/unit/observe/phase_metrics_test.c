/* phase_metrics: every part of a request's time in its own histogram, and predictions by which side they miss on. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "observe/metric_table.h"
#include "observe/phase_metrics.h"

#define MS INT64_C(1000000)

static struct phase_metrics metrics;

/* A request of 100 ms, of which 10 are the queue's, 30 its own prefill, 20 others', 39 decode and 1 nobody's. */
static struct request *request_of(enum request_class class_, int64_t predicted_ns) {
    static struct request request;
    memset(&request, 0, sizeof request);
    request.class_ = class_;
    request.stats = (struct phase_stats){.submitted_ns = 1000 * MS,
                                         .admitted_ns = 1001 * MS,
                                         .predicted_ns = predicted_ns,
                                         .first_token_ns = 1061 * MS,
                                         .finished_ns = 1100 * MS,
                                         .part_ns = {[PHASE_QUEUE] = 10 * MS,
                                                     [PHASE_PREFILL_OWN] = 30 * MS,
                                                     [PHASE_PREFILL_LOST] = 20 * MS,
                                                     [PHASE_DECODE] = 39 * MS}};
    return &request;
}

static int setup(void **state) {
    (void)state;
    phase_metrics_init(&metrics);
    return 0;
}

static bool is(double sum, double expected) {
    return fabs(sum - expected) < 1e-9;
}

static void no_phase_has_anothers_time(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) phase_metrics_finish(&metrics, request_of(REQUEST_INTERACTIVE, 0));
    for (int i = 0; i < N_PHASES; i++) {
        double ms = i == PHASE_QUEUE          ? 10
                    : i == PHASE_PREFILL_OWN  ? 30
                    : i == PHASE_PREFILL_LOST ? 20
                    : i == PHASE_DECODE       ? 39
                                              : 0;
        assert_int_equal(metrics.phases[i].n, 3);
        assert_true(is(metrics.phases[i].sum, 3 * ms / 1e3));
    }
    assert_true(is(metrics.unaccounted.sum, 0.003));
}

/* Two phases that have the same time are as wrong as none that has it. */
static void time_counted_twice_is_unaccounted_too(void **state) {
    struct request *request = request_of(REQUEST_INTERACTIVE, 0);
    (void)state;
    request->stats.part_ns[PHASE_DECODE] += 3 * MS;
    phase_metrics_finish(&metrics, request);
    assert_int_equal(metrics.unaccounted.n, 1);
    assert_true(is(metrics.unaccounted.sum, 0.002));
}

static void predictions_miss_on_one_side(void **state) {
    (void)state;
    phase_metrics_finish(&metrics, request_of(REQUEST_BATCH, 1051 * MS));
    phase_metrics_finish(&metrics, request_of(REQUEST_BATCH, 1066 * MS));
    phase_metrics_finish(&metrics, request_of(REQUEST_BATCH, 0)); /* nothing was told */
    assert_true(is(metrics.errors[REQUEST_BATCH][PHASE_METRICS_LATE].sum, 0.010));
    assert_true(is(metrics.errors[REQUEST_BATCH][PHASE_METRICS_EARLY].sum, 0.005));
    assert_int_equal(metrics.errors[REQUEST_BATCH][PHASE_METRICS_LATE].n, 1);
    assert_int_equal(metrics.errors[REQUEST_INTERACTIVE][PHASE_METRICS_LATE].n, 0);
    assert_int_equal(metrics.ttft[REQUEST_BATCH].n, 3);
    assert_int_equal(metrics.ttft[REQUEST_INTERACTIVE].n, 0);
}

/* Tokens of one to ten milliseconds lie in buckets of their own. */
static void buckets_are_fine_below_ten_milliseconds(void **state) {
    (void)state;
    for (int ms = 1; ms <= 10; ms++) phase_metrics_gap(&metrics, REQUEST_INTERACTIVE, ms * MS);
    int n_used = 0;
    for (int i = 0; i <= metrics.inter_token[0].n_bounds; i++) n_used += metrics.inter_token[0].counts[i] > 0;
    assert_int_equal(n_used, 10);
}

static void what_is_lost_is_told_by_who_lost_it(void **state) {
    struct prom_text text;
    struct str out;
    (void)state;
    phase_metrics_finish(&metrics, request_of(REQUEST_INTERACTIVE, 0));
    str_init(&out, 1 << 20);
    metric_table_init(&text, &out, "m");
    phase_metrics_write(&metrics, 250 * MS, &text);
    assert_non_null(
        strstr(out.ptr, "\nkvick_interference_seconds_total{model_name=\"m\",engine=\"0\",phase=\"prefill\"} 0.02"));
    assert_non_null(
        strstr(out.ptr, "\nkvick_interference_seconds_total{model_name=\"m\",engine=\"0\",phase=\"decode\"} 0.25\n"));
    str_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_phase_has_anothers_time, setup),
        cmocka_unit_test_setup(time_counted_twice_is_unaccounted_too, setup),
        cmocka_unit_test_setup(predictions_miss_on_one_side, setup),
        cmocka_unit_test_setup(buckets_are_fine_below_ten_milliseconds, setup),
        cmocka_unit_test_setup(what_is_lost_is_told_by_who_lost_it, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
