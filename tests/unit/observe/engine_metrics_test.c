/* engine_metrics: what the engine counts, under its names and in seconds and bytes. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/engine_metrics.h"
#include "observe/metric_table.h"

static struct engine_stats stats;
static struct str out;

static int setup(void **state) {
    (void)state;
    memset(&stats, 0, sizeof stats);
    engine_stats_init(&stats);
    str_init(&out, 1 << 20);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    str_deinit(&out);
    return 0;
}

static void write(void) {
    struct prom_text text;
    str_clear(&out);
    metric_table_init(&text, &out, "m");
    engine_metrics_write(&text, &stats, 3);
    assert_int_equal(text.status, STATUS_OK);
    assert_null(strstr(out.ptr, " nan"));
    assert_null(strstr(out.ptr, "-nan"));
}

/* labels: beside the common ones, with the comma in front, or "". */
static double value_of(const char *family, const char *labels) {
    char line[300];
    snprintf(line, sizeof line, "\n%s{model_name=\"m\",engine=\"0\"%s} ", family, labels);
    const char *at = strstr(out.ptr, line);
    if (!at) fail_msg("no line%s", line);
    return strtod(at + strlen(line), NULL);
}

static void states_of_blocks_add_up(void **state) {
    static const char *const states[] = {"free", "reusable", "held", "pinned"};
    double n_blocks = 0, n_bytes = 0;
    (void)state;
    stats.n_groups = 2;
    stats.groups[0] = (struct engine_group_stats){.n_blocks = 100,
                                                  .n_free = 50,
                                                  .n_reusable = 20,
                                                  .n_held = 30,
                                                  .n_pinned = 5,
                                                  .block_bytes = 4096,
                                                  .n_held_slots = 480,
                                                  .n_unused_slots = 120,
                                                  .n_refs = 40};
    stats.groups[1] = (struct engine_group_stats){.window = 512, .n_blocks = 10, .n_free = 10};
    write();
    for (int i = 0; i < 4; i++) {
        char labels[100];
        snprintf(labels, sizeof labels, ",group=\"0\",window=\"0\",state=\"%s\"", states[i]);
        n_blocks += value_of("kvick_kv_blocks", labels);
        n_bytes += value_of("kvick_kv_bytes", labels);
    }
    assert_true(n_blocks == 100 && n_bytes == 100 * 4096);
    assert_true(value_of("kvick_kv_blocks", ",group=\"0\",window=\"0\",state=\"pinned\"") == 5);
    assert_true(value_of("kvick_kv_blocks", ",group=\"1\",window=\"512\",state=\"free\"") == 10);
    assert_true(value_of("kvick_kv_waste_ratio", ",group=\"0\",window=\"0\"") == 0.25);
    assert_true(value_of("kvick_kv_waste_ratio", ",group=\"1\",window=\"512\"") == 0); /* nothing held */
    assert_true(value_of("kvick_kv_references", ",group=\"0\",window=\"0\"") == 40);
}

static void phases_are_never_merged(void **state) {
    (void)state;
    stats.n_rows = 110;
    stats.n_prefill_rows = 100;
    stats.prefill = (struct engine_phase_stats){{1e9, 2e6, 3e3}, 40000000};
    stats.decode = (struct engine_phase_stats){{5e8, 7e6, 4e3}, 60000000};
    stats.n_prompt_tokens = 100;
    stats.n_cache_found = 40;
    stats.n_new_tokens = 10;
    write();
    assert_true(value_of("kvick_rows_total", ",phase=\"prefill\"") == 100);
    assert_true(value_of("kvick_rows_total", ",phase=\"decode\"") == 10);
    assert_true(value_of("kvick_busy_seconds_total", ",phase=\"prefill\"") == 0.04);
    assert_true(value_of("kvick_busy_seconds_total", ",phase=\"decode\"") == 0.06);
    assert_true(value_of("kvick_flops_total", ",phase=\"prefill\"") == 1e9);
    assert_true(value_of("kvick_read_bytes_total", ",phase=\"decode\"") == 7e6);
    assert_true(value_of("kvick_kv_written_bytes_total", "") == 7e3);
    assert_true(value_of("kvick_prompt_tokens_total", ",source=\"computed\"") == 60);
    assert_true(value_of("kvick_prompt_tokens_total", ",source=\"cached\"") == 40);
    assert_true(value_of("kvick_output_tokens_total", "") == 10);
}

static void what_went_wrong_has_its_reason(void **state) {
    (void)state;
    stats.n_refused_by[ADMISSION_ADMITTED] = 1;
    stats.n_refused_by[ADMISSION_DEADLINE] = 2;
    stats.n_misses[PREFIX_MISS_NONE] = 5;
    stats.n_misses[PREFIX_MISS_EDITED] = 3;
    stats.n_misses[PREFIX_MISS_STALE] = 1;
    stats.promises[REQUEST_BATCH] =
        (struct engine_promise_stats){.n = 10, .n_late = 4, .predicted_ns = 1000000000, .measured_ns = 1500000000};
    stats.classes[REQUEST_BATCH].n_waiting = 7;
    write();
    assert_true(value_of("kvick_requests_refused_total", ",reason=\"invalid\"") == 1);
    assert_true(value_of("kvick_requests_refused_total", ",reason=\"deadline\"") == 2);
    assert_true(value_of("kvick_prefix_lookups_total", "") == 9);
    assert_true(value_of("kvick_prefix_misses_total", ",reason=\"edited\"") == 3);
    assert_true(value_of("kvick_prefix_misses_total", ",reason=\"stale\"") == 1);
    assert_true(value_of("kvick_ttft_predictions_total", ",class=\"batch\",kept=\"true\"") == 6);
    assert_true(value_of("kvick_ttft_predictions_total", ",class=\"batch\",kept=\"false\"") == 4);
    assert_true(value_of("kvick_ttft_measured_seconds_total", ",class=\"batch\"") == 1.5);
    assert_true(value_of("kvick_requests_waiting", ",class=\"batch\"") == 7);
    assert_true(value_of("kvick_requests_preparing", "") == 3);
    assert_null(strstr(out.ptr, "kvick_hw_int8_flops")); /* not measured */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(states_of_blocks_add_up, setup, teardown),
        cmocka_unit_test_setup_teardown(phases_are_never_merged, setup, teardown),
        cmocka_unit_test_setup_teardown(what_went_wrong_has_its_reason, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
