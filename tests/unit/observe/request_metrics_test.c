/* request_metrics: the text format, and what counts how often. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/metric_table.h"
#include "observe/request_metrics.h"

static struct request_metrics metrics;

static char *write(int n_waiting, struct str *out) {
    struct request_metrics_now now = {.model_name = "a\"b\\c\n\xff",
                                      .n_pending = n_waiting,
                                      .block_tokens = 16,
                                      .n_blocks = 100,
                                      .kv_dtype = "f16",
                                      .has_prefix_cache = true,
                                      .engine = {.n_held_blocks = 25, .classes[0].n_running = 3}};
    str_init(out, 1 << 20);
    assert_int_equal(request_metrics_write(&metrics, &now, out), STATUS_OK);
    return out->ptr;
}

/* The value of the line that begins like this. */
static double value_of(const char *text, const char *line) {
    const char *at = strstr(text, line);
    assert_non_null(at);
    return strtod(at + strlen(line), NULL);
}

static void finish(enum request_end end, int n_prompt, int n_cached, int n_new, int n_choices) {
    static struct request request;
    memset(&request, 0, sizeof request);
    request.n_prompt = n_prompt;
    request.n_choices = n_choices;
    request.max_new = 50;
    request.has_cache = true;
    request.stats.n_cached_tokens = n_cached;
    request.stats.submitted_ns = 1000000000;
    request.stats.prefill_end_ns = 1040000000;
    request.stats.first_token_ns = n_new ? 1050000000 : 0;
    request.stats.last_token_ns = 1150000000;
    request.stats.finished_ns = 1150000000;
    struct request_record record = {&request, end, n_new, 50, "a-key"};
    request_metrics_finish(&metrics, &record);
}

static void a_fresh_server_has_no_nan(void **state) {
    struct str out;
    (void)state;
    request_metrics_init(&metrics, 8192);
    const char *text = write(0, &out);
    assert_null(strstr(text, " nan"));
    assert_null(strstr(text, "-nan"));
    assert_null(strstr(text, "inf "));
    assert_non_null(strstr(text, "model_name=\"a\\\"b\\\\c\\n?\",engine=\"0\""));
    str_deinit(&out);
}

static void every_family_is_told_once_and_every_line_parses(void **state) {
    struct str out;
    (void)state;
    request_metrics_init(&metrics, 8192);
    finish(REQUEST_STOP, 100, 96, 7, 1);
    char *text = write(2, &out), *save = NULL, seen[METRIC_N][80];
    int n_seen = 0;
    char *copy = strdup(text);
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            char name[80];
            assert_int_equal(sscanf(line + 7, "%79s", name), 1);
            for (int i = 0; i < n_seen; i++) assert_string_not_equal(seen[i], name);
            strcpy(seen[n_seen++], name);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_true(strncmp(line + 7, seen[n_seen - 1], strlen(seen[n_seen - 1])) == 0);
        } else {
            char *end, *space = strrchr(line, ' ');
            assert_true(strncmp(line, seen[n_seen - 1], strlen(seen[n_seen - 1])) == 0);
            assert_non_null(space);
            strtod(space + 1, &end);
            assert_int_equal(*end, 0);
        }
    }
    assert_int_equal(n_seen, METRIC_HTTP_ERRORS - 1); /* no peak is measured */
    free(copy);
    str_deinit(&out);
}

static void tokens_are_counted_once(void **state) {
    struct str out;
    (void)state;
    request_metrics_init(&metrics, 8192);
    finish(REQUEST_STOP, 100, 0, 7, 1);
    finish(REQUEST_LENGTH, 100, 96, 28, 4); /* four choices, one prompt */
    finish(REQUEST_ABORT, 50, 0, 3, 1);
    finish(REQUEST_ABORT, 50, 0, 0, 1); /* before its first token */
    const char *text = write(2, &out);
    assert_true(value_of(text, "vllm:prompt_tokens_total{model_name=\"a\\\"b\\\\c\\n?\",engine=\"0\"}") == 300);
    assert_true(value_of(text, "vllm:prefix_cache_hits_total{model_name=\"a\\\"b\\\\c\\n?\",engine=\"0\"}") == 96);
    assert_true(value_of(text, "vllm:generation_tokens_total{model_name=\"a\\\"b\\\\c\\n?\",engine=\"0\"}") == 38);
    assert_true(value_of(text, "vllm:time_to_first_token_seconds_count{model_name=\"a\\\"b\\\\c\\n?\",engine=\"0\"}") ==
                3);
    assert_true(value_of(text, "vllm:e2e_request_latency_seconds_count{model_name=\"a\\\"b\\\\c\\n?\",engine=\"0\"}") ==
                2);
    assert_true(value_of(text, "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\\\\c\\n?\",engine=\"0\"}") == 0.25);
    assert_true(value_of(text, "vllm:num_requests_waiting{model_name=\"a\\\"b\\\\c\\n?\",engine=\"0\"}") == 2);
    str_deinit(&out);
}

static void buckets_add_up(void **state) {
    static const double bounds[] = {0.1, 1, 10};
    static const char *const labels[] = {NULL};
    struct histogram histogram;
    struct prom_text text;
    struct str out;
    (void)state;
    histogram_init(&histogram, bounds, 3);
    histogram_add(&histogram, 0.1, 1);
    histogram_add(&histogram, 0.5, 2);
    histogram_add(&histogram, 100, 1);
    histogram_add(&histogram, -1, 1); /* no time */
    str_init(&out, 10000);
    prom_text_init(&text, &out, labels);
    prom_text_family(&text, "x", "histogram", "A test.");
    prom_text_histogram(&text, &histogram);
    assert_int_equal(text.status, STATUS_OK);
    assert_string_equal(out.ptr,
                        "# HELP x A test.\n# TYPE x histogram\nx_bucket{le=\"0.1\"} 1\nx_bucket{le=\"1\"} 3\n"
                        "x_bucket{le=\"10\"} 3\nx_bucket{le=\"+Inf\"} 4\nx_sum 101.09999999999999\nx_count 4\n");
    str_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_server_has_no_nan),
        cmocka_unit_test(every_family_is_told_once_and_every_line_parses),
        cmocka_unit_test(tokens_are_counted_once),
        cmocka_unit_test(buckets_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
