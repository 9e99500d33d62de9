/* phases: fits, medians and conclusions of made-up requests with known laws, and the report that is written of them. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/phases_figures.h"
#include "bench/phases_report.h"
#include "bench/quantile.h"
#include "bench/svg.h"

static void laws_are_found_again(void **state) {
    const double x[] = {32, 64, 128, 512, 1024, 4096, 8192};
    double y[7];
    struct fit fit;
    (void)state;
    for (int i = 0; i < 7; i++) y[i] = 12 + 0.5 * x[i] + 1e-4 * x[i] * x[i];
    assert_true(fit_polynomial(x, y, 7, 2, &fit));
    assert_true(fabs(fit.a - 12) < 1e-6 && fabs(fit.b - 0.5) < 1e-9 && fabs(fit.c - 1e-4) < 1e-12);
    assert_true(fit.max_share < 1e-9);
    /* A law without one of the terms, and with one that noise would make negative. */
    for (int i = 0; i < 7; i++) y[i] = 0.5 * x[i] - 1e-6 * x[i] * x[i];
    assert_true(fit_polynomial(x, y, 7, 2, &fit));
    assert_true(fit.a >= 0 && fit.c == 0 && fabs(fit.b - 0.5) < 0.01);
    /* The small values count as much as the large ones. */
    for (int i = 0; i < 7; i++) y[i] = (100 + x[i]) * (i == 6 ? 1.1 : 1);
    assert_true(fit_polynomial(x, y, 7, 1, &fit));
    assert_true(fabs(fit.a - 100) < 5);
    assert_true(fit.max_share > 0.05 && fit.rms_share < fit.max_share);
    assert_false(fit_polynomial(x, y, 2, 2, &fit));
    assert_true(fit_polynomial(x, y, 2, 1, &fit));
    const double same[] = {64, 64, 64};
    assert_false(fit_polynomial(same, y, 3, 1, &fit));
}

static void quantiles(void **state) {
    double values[] = {5, 1, 4, 2, 3, 6};
    (void)state;
    assert_true(quantile_median(values, 6) == 3.5 && quantile_median(values, 5) == 3);
    assert_true(quantile_of(values, 6, 0) == 1 && quantile_of(values, 6, 1) == 6 && quantile_of(values, 6, 0.5) == 3);
    assert_true(quantile_of(values, 6, 0.95) == 6 && quantile_of(values, 1, 0.99) == 1);
}

static void add(struct phases *phases, enum phases_series series, int idx, int n_prompt, int n_cached, int n_new) {
    double computed = n_prompt - n_cached, scale = phases->n_samples % 3 == 2 ? 3 : 1; /* every third was disturbed */
    struct phases_sample *sample = &phases->samples[phases->n_samples++];
    *sample = (struct phases_sample){.series = (int)series,
                                     .idx = idx,
                                     .n_prompt = n_prompt,
                                     .n_cached = n_cached,
                                     .n_new = n_new,
                                     .ttft_ms = (10 + 0.5 * computed + 1e-4 * computed * n_prompt) * scale,
                                     .token_ms = (4 + 1e-3 * n_prompt) * scale};
    sample->total_ms = sample->ttft_ms + sample->token_ms * (n_new - 1);
}

/* Known laws: first token 10 + N / 2 + N^2 / 10000, a token 4 + n / 1000. */
static struct phases *make_phases(void) {
    static const int lengths[] = {64, 256, 1024, 4096, 8000};
    struct phases *phases = mem_alloc(sizeof *phases);
    assert_non_null(phases);
    phases->shared_tokens = 1024;
    phases->n_rounds = 3;
    for (int i = 0; i < 5; i++) {
        phases->cold[phases->n_cold++] = (struct phases_point){.n_wanted = lengths[i], .n_samples = 3};
        for (int k = 0; k < 3; k++) add(phases, PHASES_COLD, i, lengths[i], 0, 32);
    }
    phases->shared[phases->n_shared++] = (struct phases_point){.n_wanted = 4096, .n_samples = 3};
    for (int k = 0; k < 3; k++) add(phases, PHASES_SHARED, 0, 4096, 1024, 32);
    phases->shared[phases->n_shared++] = (struct phases_point){.n_wanted = 1088, .n_samples = 3};
    for (int k = 0; k < 3; k++) add(phases, PHASES_SHARED, 1, 1088, 1024, 32);
    phases->cases[phases->n_cases++] = (struct phases_case){
        .prompt_name = "short", .answer_name = "long", .n_wanted = 128, .n_answer = 256, .n_samples = 3};
    for (int k = 0; k < 3; k++) add(phases, PHASES_CASE, 0, 128, 0, 256);
    phases->cases[phases->n_cases++] = (struct phases_case){
        .prompt_name = "long", .answer_name = "short", .n_wanted = 4096, .n_answer = 16, .n_samples = 3};
    for (int k = 0; k < 3; k++) add(phases, PHASES_CASE, 1, 4096, 0, 16);
    phases_conclude(phases);
    return phases;
}

static void conclusions_follow_the_laws(void **state) {
    struct phases *phases = make_phases();
    (void)state;
    assert_true(phases->has_fit && phases->has_decode_fit);
    assert_true(fabs(phases->crossover_tokens - 5000) < 1);
    assert_true(phases->ttft.max_share < 1e-6 && fabs(phases->decode.a - 4) < 1e-6);
    assert_true(phases->cold[0].least_ttft_ms * 2.9 < phases->cold[0].most_ttft_ms);
    /* Saved: 10 + 4096 / 2 + 4096^2 / 10^4 against 3,072 of them computed. */
    assert_true(fabs(phases_saved_ms(phases, &phases->shared[0]) - (512 + 0.1024 * 4096)) < 0.1);
    assert_true(fabs(phases_saved_ms(phases, &phases->shared[1]) - (512 + 0.1024 * 1088)) < 0.1);
    assert_true(phases_prefill_share(&phases->cases[0]) < 0.1 && phases_prefill_share(&phases->cases[1]) > 0.9);
    double even = phases_even_tokens(&phases->cold[0]);
    assert_true(fabs(even - (1 + (10 + 32 + 0.4096) / 4.064)) < 1e-6);
    mem_free(phases);
}

static const char *no_foreign(const char *html) {
    const char *at = html;
    while ((at = strstr(at, "http"))) {
        if (strncmp(at, "http://www.w3.org/2000/svg", 26) != 0 && strncmp(at, "http://x/&lt;b&gt;", 17) != 0) return at;
        at++;
    }
    return NULL;
}

static void the_report_is_whole_and_harmless(void **state) {
    struct phases *phases = make_phases();
    struct load_target target = {.model = "a<script>b", .endpoint = LOAD_CHAT};
    struct phases_report_about about = {"http://x/<b>", NULL, "kvick \"&\""};
    struct str html, text;
    (void)state;
    str_init(&html, 300000);
    str_init(&text, 100000);
    assert_int_equal(phases_report_html(phases, &target, &about, &html), STATUS_OK);
    assert_non_null(strstr(html.ptr, "N* = 5,000"));
    assert_non_null(strstr(html.ptr, "a&lt;script&gt;b"));
    assert_null(strstr(html.ptr, "<script"));
    assert_null(no_foreign(html.ptr));
    assert_null(strstr(html.ptr, "nan"));
    const char *at = html.ptr;
    for (int i = 0; i < 3; i++) assert_non_null(at = strstr(at + 1, "<svg"));
    assert_null(strstr(at + 1, "<svg"));
    assert_int_equal(phases_report_json(phases, &target, &about, &text), STATUS_OK);
    assert_non_null(strstr(text.ptr, "\"dominated_by\":\"prefill\""));
    assert_non_null(strstr(text.ptr, "\"dominated_by\":\"decode\""));
    str_clear(&text);
    assert_int_equal(phases_report_csv(phases, &text), STATUS_OK);
    int n_lines = 0;
    for (size_t i = 0; i < text.n_bytes; i++) n_lines += text.ptr[i] == '\n';
    assert_int_equal(n_lines, phases->n_samples + 1);
    str_deinit(&html);
    str_deinit(&text);
    mem_free(phases);
}

static void numbers_for_people(void **state) {
    char out[32];
    (void)state;
    assert_string_equal(svg_number(4096, out), "4,096");
    assert_string_equal(svg_number(1234567, out), "1,234,567");
    assert_string_equal(svg_number(0.523, out), "0.52");
    assert_string_equal(svg_number(7, out), "7");
    assert_string_equal(svg_number(99.7, out), "100");
    assert_string_equal(svg_number(-1234, out), "-1,234");
    assert_string_equal(svg_ms(870.4, out), "870 ms");
    assert_string_equal(svg_ms(3214, out), "3.21 s");
    assert_string_equal(svg_ms(999.7, out), "1 s");
    assert_string_equal(svg_ms(123456, out), "123 s");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laws_are_found_again),        cmocka_unit_test(quantiles),
        cmocka_unit_test(conclusions_follow_the_laws), cmocka_unit_test(the_report_is_whole_and_harmless),
        cmocka_unit_test(numbers_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
