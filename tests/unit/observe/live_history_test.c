/* live_history and latency_window: quantiles of the last seconds, and a sample for each. */
#include "observe/live_history.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

#define SECOND INT64_C(1000000000)
#define MS INT64_C(1000000)

static struct live_history history;
static struct latency_window window;

static void quantiles_are_right_within_three_percent(void **state) {
    static const double shares[] = {.5, .95, .99, 1};
    double out_ms[4];
    (void)state;
    memset(&window, 0, sizeof window);
    assert_int_equal(latency_window_read(&window, 100 * SECOND, 60, shares, 4, out_ms), 0);
    assert_true(out_ms[0] == 0);
    /* 1 ms .. 10 s, evenly on a logarithmic scale: the quantile q is 10^(4q) ms. */
    for (int i = 0; i < 10000; i++)
        latency_window_add(&window, 100 * SECOND, (int64_t)(pow(10, 4 * (i + .5) / 10000) * 1e6));
    assert_int_equal(latency_window_read(&window, 100 * SECOND, 60, shares, 4, out_ms), 10000);
    for (int i = 0; i < 4; i++) {
        double right = pow(10, 4 * shares[i]);
        assert_true(fabs(out_ms[i] - right) < 0.03 * right);
    }
    for (int i = 0; i < 4; i++) assert_true(i == 0 || out_ms[i] > out_ms[i - 1]);
}

static void one_value_is_all_quantiles(void **state) {
    static const double shares[] = {.5, .99};
    double out_ms[2];
    (void)state;
    memset(&window, 0, sizeof window);
    latency_window_add(&window, 5 * SECOND, 40 * MS);
    latency_window_add(&window, 5 * SECOND, -1);
    assert_int_equal(latency_window_read(&window, 5 * SECOND, 1, shares, 2, out_ms), 1);
    assert_true(out_ms[0] == out_ms[1] && fabs(out_ms[0] - 40) < 1.2);
    latency_window_add(&window, 5 * SECOND, 0);
    latency_window_add(&window, 5 * SECOND, 10000 * SECOND); /* beyond both ends */
    assert_int_equal(latency_window_read(&window, 5 * SECOND, 1, shares, 2, out_ms), 3);
}

static void old_seconds_leave_the_window(void **state) {
    static const double shares[] = {.5};
    double out_ms[1];
    (void)state;
    memset(&window, 0, sizeof window);
    for (int s = 0; s < 200; s++) latency_window_add(&window, s * SECOND + 5, 10 * MS);
    assert_int_equal(latency_window_read(&window, 199 * SECOND, 10, shares, 1, out_ms), 10);
    assert_int_equal(latency_window_read(&window, 199 * SECOND, 60, shares, 1, out_ms), 60);
    assert_int_equal(latency_window_read(&window, 203 * SECOND, 10, shares, 1, out_ms), 6);
    assert_int_equal(latency_window_read(&window, 300 * SECOND, 60, shares, 1, out_ms), 0);
}

static void a_sample_tells_of_its_second(void **state) {
    struct engine_stats stats = {
        .n_groups = 1, .groups[0].n_blocks = 200, .n_held_blocks = 50, .n_reusable_blocks = 20};
    (void)state;
    live_history_init(&history, 10 * SECOND);
    assert_false(live_history_is_due(&history, 10 * SECOND + 900 * MS));
    live_history_note_first(&history, 10 * SECOND + 1, 80 * MS);
    live_history_note_first(&history, 10 * SECOND + 2, -1); /* of another choice: a token, no first one */
    live_history_note_next(&history, 10 * SECOND + 3, 10 * MS);
    stats.classes[0].n_running = 3;
    stats.classes[1].n_waiting = 2;
    stats.n_prefill_rows = 400;
    stats.n_cache_asked = 500;
    stats.n_cache_found = 100;
    stats.steps_ns = SECOND;
    assert_true(live_history_is_due(&history, 12 * SECOND));
    live_history_sample(&history, 12 * SECOND, &stats, 1);
    const struct live_sample *sample = live_history_at(&history, 0);
    assert_non_null(sample);
    assert_true(sample->n_running == 3 && sample->n_waiting == 3);
    assert_true(sample->held_share == .25 && sample->reusable_share == .1);
    assert_true(sample->n_computed == 200 && sample->n_cached == 50 && sample->n_output == 1.5);
    assert_true(sample->n_asked == 500 && sample->n_found == 100 && sample->busy_share == .5);
    assert_true(sample->n_ttft == 1 && sample->n_itl == 1 && fabs(sample->ttft_ms[0] - 80) < 2.4);
    live_history_sample(&history, 13 * SECOND, &stats, 0); /* nothing was done since */
    sample = live_history_at(&history, 1);
    assert_true(sample->n_computed == 0 && sample->n_output == 0 && sample->busy_share == 0 && sample->n_ttft == 1);
}

static void a_quarter_of_an_hour_is_kept(void **state) {
    struct engine_stats stats = {0};
    (void)state;
    live_history_init(&history, 0);
    for (int i = 1; i <= LIVE_HISTORY_MAX + 5; i++) live_history_sample(&history, i * SECOND, &stats, 0);
    assert_null(live_history_at(&history, 4));
    assert_null(live_history_at(&history, -1));
    assert_null(live_history_at(&history, LIVE_HISTORY_MAX + 5));
    for (int i = 5; i < LIVE_HISTORY_MAX + 5; i++) assert_true(live_history_at(&history, i)->at_ns == (i + 1) * SECOND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_right_within_three_percent),
        cmocka_unit_test(one_value_is_all_quantiles),
        cmocka_unit_test(old_seconds_leave_the_window),
        cmocka_unit_test(a_sample_tells_of_its_second),
        cmocka_unit_test(a_quarter_of_an_hour_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
