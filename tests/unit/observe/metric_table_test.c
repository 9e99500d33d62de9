/* metric_table: /metrics has exactly the families of the table, and docs/METRICS.md its rows. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/metric_table.h"
#include "observe/request_metrics.h"

#define DOC "docs/METRICS.md"
#define MAX_DOC_BYTES 100000

static char *read_doc(void) {
    static char text[MAX_DOC_BYTES];
    FILE *file = fopen(DOC, "re");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_true(n > 0 && n < sizeof text - 1);
    text[n] = 0;
    return text;
}

static void the_document_has_its_rows(void **state) {
    char *text = read_doc(), *save = NULL;
    int n_lines = 0;
    (void)state;
    for (int i = 0; i < METRIC_N; i++) {
        const struct metric_row *row = metric_table_row((enum metric)i);
        char line[1000];
        snprintf(line, sizeof line, "\n| `%s` | %s | %s | %s |\n", row->name, row->type, row->labels, row->help);
        if (!strstr(text, line)) fail_msg("%s has no line%s", DOC, line);
    }
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        n_lines += strncmp(line, "| `", 3) == 0;
    assert_int_equal(n_lines, METRIC_N);
}

static void names_say_what_they_count(void **state) {
    (void)state;
    for (int i = 0; i < METRIC_N; i++) {
        const struct metric_row *row = metric_table_row((enum metric)i);
        size_t n = strlen(row->name);
        bool is_counter = strcmp(row->type, "counter") == 0;
        assert_true(is_counter == (strcmp(row->name + n - strlen("_total"), "_total") == 0));
        assert_true(strncmp(row->name, "vllm:", 5) == 0 ||
                    (strncmp(row->name, "kvick_", 6) == 0 && !strchr(row->name, ':')));
        for (int j = 0; j < i; j++) assert_string_not_equal(row->name, metric_table_row((enum metric)j)->name);
    }
}

/* Those of the API's own parts have their own writers: tests/e2e/web/prometheus_test.sh has a server with them. */
static void all_are_written_from_the_first_request_on(void **state) {
    static struct request_metrics metrics;
    struct request_metrics_now now = {
        .model_name = "m", .n_blocks = 4, .block_tokens = 16, .kv_dtype = "f16", .engine = {.int8_peak_ops = 1}};
    struct str out;
    (void)state;
    request_metrics_init(&metrics, 8192);
    engine_stats_init(&now.engine);
    metrics.slo.target_ns[REQUEST_INTERACTIVE][SLO_TTFT] = 1;
    now.engine.n_groups = 1;
    str_init(&out, 1 << 20);
    assert_int_equal(request_metrics_write(&metrics, &now, &out), STATUS_OK);
    for (int i = 0; i < METRIC_N; i++) {
        const struct metric_row *row = metric_table_row((enum metric)i);
        bool is_beside = i >= METRIC_HTTP_ERRORS;
        char head[200], sample[120];
        snprintf(head, sizeof head, "# HELP %s %.60s", row->name, row->help);
        snprintf(sample, sizeof sample, "\n%s%s{", row->name, strcmp(row->type, "histogram") == 0 ? "_count" : "");
        if ((strstr(out.ptr, head) != NULL) == is_beside) fail_msg("%s: its head", row->name);
        if ((strstr(out.ptr, sample) != NULL) == is_beside) fail_msg("%s: its samples", row->name);
    }
    str_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_document_has_its_rows),
        cmocka_unit_test(names_say_what_they_count),
        cmocka_unit_test(all_are_written_from_the_first_request_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
