/* key_metrics: a bounded number of series, of the keys that cost most; every request counts in one of them. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/key_metrics.h"
#include "observe/metric_table.h"

static struct key_metrics metrics;

static int setup(void **state) {
    (void)state;
    metrics = (struct key_metrics){0};
    return 0;
}

static void count_key(int number, int n_prefill_tokens) {
    char name[32];
    snprintf(name, sizeof name, "key-%d", number);
    key_metrics_count(&metrics, name, n_prefill_tokens, 1);
}

/* Lines of a family; out_sum: of their values. */
static int lines_of(const char *family, double *out_sum) {
    struct prom_text text;
    struct str out;
    char *save = NULL;
    int n = 0;
    str_init(&out, 1 << 20);
    metric_table_init(&text, &out, "m");
    key_metrics_write(&metrics, &text);
    assert_int_equal(text.status, STATUS_OK);
    *out_sum = 0;
    for (char *line = strtok_r(out.ptr, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, family, strlen(family)) != 0) continue;
        n++;
        *out_sum += strtod(strrchr(line, ' '), NULL);
    }
    str_deinit(&out);
    return n;
}

static const struct key_place *place_of(const char *name) {
    for (int i = 0; i < metrics.n_shown; i++)
        if (strcmp(metrics.shown[i].name, name) == 0) return &metrics.shown[i];
    return NULL;
}

static void series_are_bounded_and_lose_nothing(void **state) {
    double n_requests, n_tokens;
    (void)state;
    for (int i = 0; i < 1000; i++) count_key(i % 100, 10);
    assert_int_equal(lines_of("kvick_key_requests_total{", &n_requests), KEY_METRICS_N_SHOWN + 1);
    assert_int_equal(lines_of("kvick_key_prefill_tokens_total{", &n_tokens), KEY_METRICS_N_SHOWN + 1);
    assert_true(n_requests == 1000 && n_tokens == 10000);
}

static void who_comes_late_and_costs_most_is_shown(void **state) {
    (void)state;
    for (int i = 0; i < 3000; i++) {
        count_key(i % 300, 10);
        if (i >= 1500 && i % 10 == 0) key_metrics_count(&metrics, "whale", 500, 0);
    }
    const struct key_place *whale = place_of("whale");
    assert_non_null(whale);
    assert_true(whale->counts.n_prefill_tokens > 0.9 * 150 * 500);
}

/* A key that is shown no more counts with the others, and comes back with a series of its own from 0. */
static void who_costs_little_of_late_gives_way(void **state) {
    (void)state;
    key_metrics_count(&metrics, "early", 1000, 0);
    for (int i = 0; i < KEY_METRICS_N_SHOWN - 1; i++) count_key(i, 500000);
    assert_non_null(place_of("early"));
    for (int i = 0; i < 10; i++) key_metrics_count(&metrics, "next", 1000, 0);
    assert_non_null(place_of("next"));
    assert_null(place_of("early"));
    double n_others = metrics.others.n_requests;
    key_metrics_count(&metrics, "early", 1, 0);
    assert_true(metrics.others.n_requests == n_others + 1);
    key_metrics_count(&metrics, "early", 100000, 0);
    assert_non_null(place_of("early"));
    assert_true(place_of("early")->counts.n_requests == 1);
}

static void requests_without_a_key_are_one_key(void **state) {
    (void)state;
    key_metrics_count(&metrics, NULL, 5, 2);
    key_metrics_count(&metrics, "", 5, 2);
    assert_int_equal(metrics.n_shown, 1);
    assert_true(place_of("(none)")->counts.n_requests == 2 && place_of("(none)")->counts.n_output_tokens == 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(series_are_bounded_and_lose_nothing, setup),
        cmocka_unit_test_setup(who_comes_late_and_costs_most_is_shown, setup),
        cmocka_unit_test_setup(who_costs_little_of_late_gives_way, setup),
        cmocka_unit_test_setup(requests_without_a_key_are_one_key, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
