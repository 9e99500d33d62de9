#include "bench/phases_report.h"

#include <math.h>
#include <stdio.h>

#include "base/json_write.h"
#include "bench/phases_figures.h"
#include "bench/report_page.h"
#include "bench/svg.h"

#define MAX_FIGURE_BYTES 100000
#define MAX_TEXT_BYTES 4000

static const char *const series_names[PHASES_N_SERIES] = {"cold", "shared", "case"};

static const char *ms_or_dash(double ms, char out[32]) {
    if (!(ms > 0)) snprintf(out, 32, "-");
    return ms > 0 ? svg_ms(ms, out) : out;
}

static const char *count_or_dash(double n, char out[32]) {
    if (!(n >= 0)) snprintf(out, 32, "-");
    return n >= 0 ? svg_number(n, out) : out;
}

static double rate(double n, double ms) {
    return ms > 0 ? n * 1e3 / ms : -1;
}

/* ---- the page ---- */

static void add_figures(struct report_page *page, const struct phases *phases) {
    for (int i = 0; i < PHASES_FIGURES_N; i++) {
        struct str figure, sentence;
        str_init(&figure, MAX_FIGURE_BYTES);
        str_init(&sentence, MAX_TEXT_BYTES);
        enum status status = phases_figures_draw(phases, i, false, &figure);
        if (!status) status = phases_figures_sentence(phases, i, &sentence);
        report_page_text(page, "h2", "%s", phases_figures_title(i));
        report_page_figure(page, &figure, status, sentence.ptr);
        str_deinit(&sentence);
    }
}

static void add_reasons(struct report_page *page, const struct phases *phases) {
    struct str why;
    str_init(&why, MAX_TEXT_BYTES);
    report_page_text(page, "h2", "Why");
    report_page_raw(page, "<ul>\n");
    for (int i = 0; i < phases->n_cases; i++) {
        const struct phases_case *one = &phases->cases[i];
        if (!one->n_samples) continue;
        str_clear(&why);
        enum status status = phases_figures_why(one, &why);
        if (!page->status) page->status = status;
        report_page_text(page, "li", "%s prompt, %s answer%s. %s", one->prompt_name, one->answer_name,
                         one->is_shared ? ", shared system prompt" : "", why.ptr);
    }
    report_page_raw(page, "</ul>\n");
    str_deinit(&why);
}

static void add_points(struct report_page *page, const struct phases *phases) {
    static const char *const headers[] = {"prompt tokens",   "first token", "least",    "most",
                                          "prompt tokens/s", "per token",   "tokens/s", "even at"};
    char n[8][32];
    report_page_table(page,
                      "New prompts: medians, with the least and the most seen. 'even at': answer tokens from which on "
                      "decode takes longer than prefill.",
                      headers, 8);
    for (int i = 0; i < phases->n_cold; i++) {
        const struct phases_point *point = &phases->cold[i];
        if (!point->n_samples) continue;
        report_page_row(page);
        report_page_cell(page, "%s", svg_number(point->n_prompt, n[0]));
        report_page_cell(page, "%s", svg_ms(point->ttft_ms, n[1]));
        report_page_cell(page, "%s", svg_ms(point->least_ttft_ms, n[2]));
        report_page_cell(page, "%s", svg_ms(point->most_ttft_ms, n[3]));
        report_page_cell(page, "%s", svg_number(rate(point->n_prompt, point->ttft_ms), n[4]));
        report_page_cell(page, "%s", ms_or_dash(point->token_ms, n[5]));
        report_page_cell(page, "%s", count_or_dash(rate(1, point->token_ms), n[6]));
        report_page_cell(page, "%s", svg_number(ceil(phases_even_tokens(point)), n[7]));
    }
    report_page_end_table(page);
}

static void add_shared(struct report_page *page, const struct phases *phases) {
    static const char *const headers[] = {"prompt tokens", "of them cached", "first token", "saved", "per token"};
    char n[5][32];
    report_page_text(page, "h2", "Again, behind a shared system prompt");
    report_page_table(page, "The system prompt is the same in all of these and has been seen before; the rest is new.",
                      headers, 5);
    for (int i = 0; i < phases->n_shared; i++) {
        const struct phases_point *point = &phases->shared[i];
        double saved_ms = phases_saved_ms(phases, point);
        if (!point->n_samples) continue;
        report_page_row(page);
        report_page_cell(page, "%s", svg_number(point->n_prompt, n[0]));
        report_page_cell(page, "%s", count_or_dash(point->n_cached, n[1]));
        report_page_cell(page, "%s", svg_ms(point->ttft_ms, n[2]));
        report_page_cell(page, "%s", isnan(saved_ms) ? "-" : svg_ms(saved_ms, n[3]));
        report_page_cell(page, "%s", ms_or_dash(point->token_ms, n[4]));
    }
    report_page_end_table(page);
}

/* kvick tells where each request's time went; of the longest new prompt. */
static void add_phases(struct report_page *page, const struct phases *phases) {
    const struct phases_sample *sample = NULL;
    static const char *const headers[] = {"phase", "ms", "share"};
    char n[2][32];
    for (int i = 0; i < phases->n_samples; i++)
        if (phases->samples[i].has_phases && (!sample || phases->samples[i].n_prompt > sample->n_prompt))
            sample = &phases->samples[i];
    if (!sample) return;
    report_page_text(page, "h2", "Where one request's time went");
    report_page_table(page, "The server's own stamps of the longest prompt; its answer's later tokens are decode.",
                      headers, 3);
    for (int i = 0; i < N_PHASES; i++) {
        if (sample->phase_ms[i] <= 0) continue;
        report_page_row(page);
        report_page_cell(page, "%s", phase_stats_name((enum phase)i));
        report_page_cell(page, "%s", svg_number(sample->phase_ms[i], n[0]));
        report_page_cell(page, "%.1f %%", 100 * sample->phase_ms[i] / sample->total_ms);
    }
    report_page_row(page);
    report_page_cell(page, "unaccounted");
    report_page_cell(page, "%s", svg_number(sample->unaccounted_ms, n[1]));
    report_page_cell(page, "%.1f %%", 100 * sample->unaccounted_ms / sample->total_ms);
    report_page_end_table(page);
}

static void add_method(struct report_page *page, const struct phases *phases, const struct phases_report_about *about) {
    char n[32];
    const struct fit *fit = &phases->ttft;
    report_page_text(page, "h2", "How this was measured");
    report_page_text(
        page, "p",
        "One request at a time, streamed. The first token is the first event with content; tokens are "
        "counted by the server. Every prompt is new from its first words on. %d round%s in %.0f s; figures "
        "are medians.",
        phases->n_rounds, phases->n_rounds == 1 ? "" : "s", phases->wall_s);
    report_page_text(
        page, "p",
        "First token in ms = %.3g + %.4g N + %.3g N\xc2\xb2; the residuals are %.1f %% (root mean square), "
        "at most %.1f %%. N* = %s is where both terms are equal.",
        fit->a, fit->b, fit->c, 100 * fit->rms_share, 100 * fit->max_share,
        phases->crossover_tokens > 0 ? svg_number(phases->crossover_tokens, n) : "nowhere");
    if (phases->has_decode_fit)
        report_page_text(page, "p", "A token in ms = %.4g + %.3g n behind n tokens; residuals %.1f %%.",
                         phases->decode.a, phases->decode.b, 100 * phases->decode.rms_share);
    if (phases->is_cut)
        report_page_text(page, "p", "Longer prompts would fit into the context, but not into the time given.");
    report_page_command(page, about->command);
}

enum status phases_report_html(const struct phases *phases, const struct load_target *target,
                               const struct phases_report_about *about, struct str *out) {
    struct report_page page;
    char title[LOAD_CLIENT_MAX_NAME_BYTES + 40];
    snprintf(title, sizeof title, "The phases of %s", target->model);
    report_page_begin(&page, out, title);
    report_page_lead(&page, about->server, about->machine);
    add_figures(&page, phases);
    add_reasons(&page, phases);
    report_page_text(&page, "h2", "Points");
    add_points(&page, phases);
    add_shared(&page, phases);
    add_phases(&page, phases);
    add_method(&page, phases, about);
    return report_page_end(&page);
}

/* ---- data ---- */

enum status phases_report_csv(const struct phases *phases, struct str *out) {
    enum status status = str_append_text(out, "series,point,round,prompt_tokens,cached_tokens,new_tokens,ttft_ms,"
                                              "token_ms,total_ms\n");
    for (int i = 0; i < phases->n_samples && !status; i++) {
        const struct phases_sample *s = &phases->samples[i];
        status = str_append_fmt(out, "%s,%d,%d,%d,%d,%d,%.3f,%.4f,%.3f\n", series_names[s->series], s->idx, s->round,
                                s->n_prompt, s->n_cached, s->n_new, s->ttft_ms, s->token_ms, s->total_ms);
    }
    return status;
}

static void write_fit(struct json_write *json, const char *key, const struct fit *fit) {
    json_write_field_object(json, key);
    json_write_field_real(json, "a_ms", fit->a);
    json_write_field_real(json, "b_ms_per_token", fit->b);
    json_write_field_real(json, "c_ms_per_token2", fit->c);
    json_write_field_real(json, "residual_rms_share", fit->rms_share);
    json_write_field_real(json, "residual_max_share", fit->max_share);
    json_write_end_object(json);
}

static void write_points(struct json_write *json, const char *key, const struct phases *phases,
                         const struct phases_point *points, int n_points, bool is_shared) {
    json_write_field_array(json, key);
    for (int i = 0; i < n_points; i++) {
        if (!points[i].n_samples) continue;
        json_write_object(json);
        json_write_field_int(json, "prompt_tokens", points[i].n_prompt);
        json_write_field_int(json, "cached_tokens", points[i].n_cached);
        json_write_field_real(json, "ttft_ms", points[i].ttft_ms);
        json_write_field_real(json, "ttft_least_ms", points[i].least_ttft_ms);
        json_write_field_real(json, "ttft_most_ms", points[i].most_ttft_ms);
        json_write_field_real(json, "token_ms", points[i].token_ms > 0 ? points[i].token_ms : NAN);
        if (is_shared)
            json_write_field_real(json, "saved_ms", phases_saved_ms(phases, &points[i]));
        else
            json_write_field_real(json, "even_answer_tokens", phases_even_tokens(&points[i]));
        json_write_field_int(json, "samples", points[i].n_samples);
        json_write_end_object(json);
    }
    json_write_end_array(json);
}

static void write_cases(struct json_write *json, const struct phases *phases) {
    json_write_field_array(json, "cases");
    for (int i = 0; i < phases->n_cases; i++) {
        const struct phases_case *one = &phases->cases[i];
        if (!one->n_samples) continue;
        json_write_object(json);
        json_write_field_text(json, "prompt", one->prompt_name);
        json_write_field_text(json, "answer", one->answer_name);
        json_write_field_flag(json, "is_shared", one->is_shared);
        json_write_field_int(json, "prompt_tokens", one->n_prompt);
        json_write_field_int(json, "cached_tokens", one->n_cached);
        json_write_field_int(json, "new_tokens", one->n_new);
        json_write_field_real(json, "ttft_ms", one->ttft_ms);
        json_write_field_real(json, "decode_ms", one->decode_ms);
        json_write_field_text(json, "dominated_by", phases_prefill_share(one) >= 0.5 ? "prefill" : "decode");
        json_write_end_object(json);
    }
    json_write_end_array(json);
}

enum status phases_report_json(const struct phases *phases, const struct load_target *target,
                               const struct phases_report_about *about, struct str *out) {
    struct json_write json;
    json_write_init(&json, out);
    json_write_object(&json);
    json_write_field_text(&json, "kind", "kvick bench phases");
    json_write_field_text(&json, "version", KVICK_VERSION);
    json_write_field_text(&json, "server", about->server);
    json_write_field_text(&json, "model", target->model);
    json_write_field_text(&json, "endpoint", target->endpoint == LOAD_CHAT ? "chat" : "completions");
    if (about->machine) json_write_field_text(&json, "machine", about->machine);
    json_write_field_text(&json, "command", about->command);
    json_write_field_int(&json, "rounds", phases->n_rounds);
    json_write_field_real(&json, "wall_s", phases->wall_s);
    json_write_field_flag(&json, "is_cut", phases->is_cut);
    json_write_field_int(&json, "shared_tokens", phases->shared_tokens);
    if (phases->has_fit) write_fit(&json, "ttft_fit", &phases->ttft);
    if (phases->has_decode_fit) write_fit(&json, "decode_fit", &phases->decode);
    json_write_field_real(&json, "crossover_tokens", phases->crossover_tokens > 0 ? phases->crossover_tokens : NAN);
    write_points(&json, "cold", phases, phases->cold, phases->n_cold, false);
    write_points(&json, "shared", phases, phases->shared, phases->n_shared, true);
    write_cases(&json, phases);
    json_write_end_object(&json);
    enum status status = json_write_finish(&json);
    return status ? status : str_append_text(out, "\n");
}

enum status phases_report_text(const struct phases *phases, struct str *out) {
    char n[6][32];
    enum status status = str_append_fmt(out, "%14s %12s %14s %12s %10s %8s\n", "prompt tokens", "first token",
                                        "prompt tok/s", "per token", "tok/s", "even at");
    for (int i = 0; i < phases->n_cold && !status; i++) {
        const struct phases_point *point = &phases->cold[i];
        if (!point->n_samples) continue;
        status = str_append_fmt(out, "%14s %12s %14s %12s %10s %8s\n", svg_number(point->n_prompt, n[0]),
                                svg_ms(point->ttft_ms, n[1]), svg_number(rate(point->n_prompt, point->ttft_ms), n[2]),
                                ms_or_dash(point->token_ms, n[3]), count_or_dash(rate(1, point->token_ms), n[4]),
                                svg_number(ceil(phases_even_tokens(point)), n[5]));
    }
    for (int i = 0; i < PHASES_FIGURES_N && !status; i++) {
        status = str_append_text(out, "\n");
        if (!status) status = phases_figures_sentence(phases, i, out);
    }
    return status ? status : str_append_text(out, "\n");
}
