/* load_rows, load_page: made-up results of a server under load, the flags that follow from them, and the page. */
#include "support/test.h"

#include <string.h>

#include "bench/load_page.h"

#define MAX_BYTES 1000000

static struct load_rows rows;

static void add(enum load_group group, const char *name, double value, double ttft_ms, double gap_ms, double tok_s) {
    json_t *summary =
        json_pack("{s:i, s:i, s:{s:f, s:f, s:f, s:f}, s:{s:f, s:f, s:f, s:f}, s:f}", "finished", 9, "refused", 1,
                  "ttft_ms", "p50", ttft_ms / 2, "p95", ttft_ms, "p99", ttft_ms, "max", ttft_ms * 2, "gap_ms", "p50",
                  gap_ms / 2, "p95", gap_ms, "p99", gap_ms, "max", gap_ms * 2, "new_tok_s", tok_s);
    const struct load_row *row = load_rows_add(&rows, group, name, value, summary);
    assert_non_null(row);
    assert_true(row->n_done == 9 && row->n_refused == 1 && row->ttft.p95 == ttft_ms && row->gap.max == 2 * gap_ms);
    json_decref(summary);
}

static void flags_are(double max_gap_ms, const char *expected) {
    struct str text;
    str_init(&text, MAX_BYTES);
    assert_int_equal(load_rows_flags(&rows, max_gap_ms, &text), STATUS_OK);
    assert_string_equal(text.ptr, expected);
    str_deinit(&text);
}

static void the_most_tokens_within_the_gap_are_advised(void **state) {
    (void)state;
    rows.n = 0;
    assert_null(load_rows_best(&rows, LOAD_GROUP_CLIENTS, 50));
    flags_are(50, "");
    add(LOAD_GROUP_CLIENTS, "1 client", 1, 20, 10, 90);
    add(LOAD_GROUP_CLIENTS, "4 clients", 4, 40, 30, 250);
    add(LOAD_GROUP_CLIENTS, "16 clients", 16, 200, 70, 600);
    assert_true(load_rows_best(&rows, LOAD_GROUP_CLIENTS, 50)->value == 4);
    flags_are(50, " --max-num-seqs 4");
    flags_are(5, " --max-num-seqs 1"); /* none is within: the smoothest */
    add(LOAD_GROUP_AT_ONCE, "--max-num-seqs 16", 16, 100, 60, 600);
    add(LOAD_GROUP_AT_ONCE, "--max-num-seqs 8", 8, 150, 45, 450);
    add(LOAD_GROUP_THREADS, "--threads 2", 2, 100, 40, 500);
    add(LOAD_GROUP_THREADS, "--threads 1", 1, 200, 45, 300);
    flags_are(50, " --max-num-seqs 8 --threads 2");
}

static void a_chunk_is_named_where_it_wins_both(void **state) {
    (void)state;
    rows.n = 0;
    add(LOAD_GROUP_CHUNK, "--chunk 512", 512, 100, 50, 100);
    add(LOAD_GROUP_CHUNK, "--chunk 64", 64, 150, 20, 100);
    flags_are(50, "");
    add(LOAD_GROUP_CHUNK, "--chunk 256", 256, 95, 46, 100);
    flags_are(50, "");
    add(LOAD_GROUP_CHUNK, "--chunk 128", 128, 80, 40, 100);
    flags_are(50, " --chunk 128");
    add(LOAD_GROUP_CHUNK, "--chunk 0", 0, 50, 30, 100);
    flags_are(50, " --chunk 0");
}

static void what_was_not_measured_is_no_row_of_a_figure(void **state) {
    (void)state;
    rows.n = 0;
    json_t *nothing = json_pack("{s:i, s:i, s:n, s:n}", "finished", 0, "refused", 4, "ttft_ms", "gap_ms");
    const struct load_row *row = load_rows_add(&rows, LOAD_GROUP_SCENARIO, "storm", 0, nothing);
    struct str text;
    str_init(&text, MAX_BYTES);
    assert_true(row->ttft.p50 < 0 && row->gap.max < 0 && row->n_refused == 4);
    assert_int_equal(load_rows_text(row, &text), STATUS_OK);
    assert_non_null(strstr(text.ptr, "       - "));
    str_clear(&text);
    assert_int_equal(load_page_html(&rows, &(struct load_page_about){"m", "s", NULL, "c", NULL}, &text), STATUS_OK);
    assert_null(strstr(text.ptr, "<svg"));
    assert_non_null(strstr(text.ptr, "storm"));
    for (int i = 1; i < LOAD_ROWS_MAX; i++) assert_non_null(load_rows_add(&rows, LOAD_GROUP_SCENARIO, "x", 0, nothing));
    assert_null(load_rows_add(&rows, LOAD_GROUP_SCENARIO, "x", 0, nothing));
    json_decref(nothing);
    str_deinit(&text);
}

static void the_page_has_all_and_needs_nothing(void **state) {
    (void)state;
    struct load_page_about about = {"<smol>", "kvick serve", "a CPU", "kvick bench serve smollm2", "Do this & that."};
    struct str page;
    rows.n = 0;
    add(LOAD_GROUP_SCENARIO, "length, <short>", 0, 40, 10, 90);
    add(LOAD_GROUP_SCENARIO, "storm", 0, 4000, 0, 90);
    for (int group = LOAD_GROUP_CLIENTS; group < LOAD_N_GROUPS; group++)
        for (int i = 4; i >= 1; i--) add((enum load_group)group, "one", i * i, 40 * i, 10 * i, 90 * i);
    str_init(&page, MAX_BYTES);
    assert_int_equal(load_page_html(&rows, &about, &page), STATUS_OK);
    const char *const words[] = {
        "&lt;smol&gt;", "&lt;short&gt;", "this &amp; that", "Clients",
        "Batch limit",  "Chunks",        "Cores",           "From 1 to 16: 90 to 360 tokens per second"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strstr(page.ptr, words[i])) fail_msg("no '%s' in the page", words[i]);
    int n_figures = 0;
    for (const char *at = page.ptr; (at = strstr(at, "<svg")); at++) n_figures++;
    assert_int_equal(n_figures, 2 + LOAD_N_GROUPS - 1);
    assert_null(strstr(page.ptr, "<script"));
    assert_null(strstr(page.ptr, "nan"));
    assert_null(strstr(page.ptr, "inf"));
    str_deinit(&page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_tokens_within_the_gap_are_advised),
        cmocka_unit_test(a_chunk_is_named_where_it_wins_both),
        cmocka_unit_test(what_was_not_measured_is_no_row_of_a_figure),
        cmocka_unit_test(the_page_has_all_and_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
