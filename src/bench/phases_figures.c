#include "bench/phases_figures.h"

#include <math.h>
#include <stdio.h>

#include "bench/svg.h"

#define WIDTH 780
#define HEIGHT 440
#define N_CURVE 80
#define BAR_TOP 52
#define BAR_HEIGHT 30
#define CASE_HEIGHT 74
#define LEGEND_X 16  /* from the plot's left */
#define NOTABLE 1.05 /* a ratio below is no difference */
#define MAX_SENTENCE_BYTES 2000
#define TEXT_SHARE 0.17 /* a part of a bar this wide holds its own figure */

static const char *const titles[PHASES_FIGURES_N] = {"Time to first token against prompt length",
                                                     "Time per token against context", "Which phase fills the time"};

const char *phases_figures_title(int idx) {
    return titles[idx];
}

/* ---- what the figures are of ---- */

static const struct phases_point *outermost(const struct phases_point *points, int n, bool is_longest) {
    const struct phases_point *found = NULL;
    for (int i = 0; i < n; i++)
        if (points[i].n_samples && (!found || (points[i].n_prompt > found->n_prompt) == is_longest)) found = &points[i];
    return found;
}

/* Measured points as two rows of values. */
static int gather(const struct phases_point *points, int n, bool is_token, double *x, double *y) {
    int n_found = 0;
    for (int i = 0; i < n; i++) {
        double value = is_token ? points[i].token_ms : points[i].ttft_ms;
        if (!points[i].n_samples || value <= 0) continue;
        x[n_found] = points[i].n_prompt;
        y[n_found++] = value;
    }
    return n_found;
}

static double largest(const double *values, int n) {
    double found = 0;
    for (int i = 0; i < n; i++) found = fmax(found, values[i]);
    return found;
}

static double least(const double *values, int n) {
    double found = values[0];
    for (int i = 1; i < n; i++) found = fmin(found, values[i]);
    return found;
}

/* ---- sentences ---- */

static enum status ttft_sentence(const struct phases *phases, struct str *out) {
    char n[3][32];
    const struct phases_point *most = outermost(phases->cold, phases->n_cold, true);
    const struct phases_point *shared = outermost(phases->shared, phases->n_shared, true);
    double star = phases->crossover_tokens, saved_ms = shared ? phases_saved_ms(phases, shared) : NAN;
    enum status status = str_append_fmt(out, "A prompt of %s tokens waits %s for its first token; ",
                                        svg_number(most->n_prompt, n[0]), svg_ms(most->ttft_ms, n[1]));
    if (!status && star <= 0)
        status = str_append_text(out, "as far as was measured the time grows in line with the length");
    if (!status && star > 0)
        status = str_append_fmt(out,
                                "the part that grows with the square of the length (attention) passes the part in "
                                "line with it (the weights) at N* = %s tokens%s",
                                svg_number(star, n[0]), star > most->n_prompt ? ", further out than was measured" : "");
    if (!status && saved_ms == saved_ms)
        status = str_append_fmt(out, ", and a system prompt of %s tokens that the server has seen before %s %s",
                                svg_number(phases->shared_tokens, n[0]), saved_ms >= 0 ? "saves" : "adds",
                                svg_ms(fabs(saved_ms), n[1]));
    return status ? status : str_append_text(out, ".");
}

static enum status decode_sentence(const struct phases *phases, struct str *out) {
    char ms[32], n[32], rate[32];
    const struct phases_point *near = outermost(phases->cold, phases->n_cold, false),
                              *far = outermost(phases->cold, phases->n_cold, true);
    if (near->token_ms <= 0 || far->token_ms <= 0)
        return str_append_text(out, "The answers came in too few pieces to say how long a token takes.");
    enum status status =
        str_append_fmt(out, "Behind %s tokens a token takes %s (%s per second), ", svg_number(near->n_prompt, n),
                       svg_ms(near->token_ms, ms), svg_number(1e3 / near->token_ms, rate));
    if (!status)
        status = str_append_fmt(
            out, "behind %s it takes %s (%s per second)%s.", svg_number(far->n_prompt, n), svg_ms(far->token_ms, ms),
            svg_number(1e3 / far->token_ms, rate),
            far->token_ms > NOTABLE * near->token_ms
                ? ", since each one reads the weights and the keys and values of all tokens before it"
                : ": as far as was measured the context costs little beside the weights, which each token reads");
    return status;
}

/* The cold case with the wanted prompt. */
static const struct phases_case *case_with(const struct phases *phases, bool is_long) {
    for (int i = 0; i < phases->n_cases; i++) {
        const struct phases_case *one = &phases->cases[i];
        if (one->n_samples && !one->is_shared && one->n_new > 1 && (one->prompt_name[0] == 'l') == is_long) return one;
    }
    return NULL;
}

static double even_tokens(const struct phases_case *one) {
    return one->decode_ms > 0 ? 1 + one->ttft_ms / (one->decode_ms / (one->n_new - 1)) : 0;
}

static enum status cases_sentence(const struct phases *phases, struct str *out) {
    char n[32], tokens[32];
    const struct phases_case *brief = case_with(phases, false), *full = case_with(phases, true);
    if (!brief) return str_append_text(out, "No case could be measured within the budget.");
    enum status status =
        str_append_fmt(out, "Behind a prompt of %s tokens decode takes longer than prefill from %s answer tokens on",
                       svg_number(brief->n_prompt, n), svg_number(ceil(even_tokens(brief)), tokens));
    if (!status && full)
        status = str_append_fmt(out, ", behind %s tokens only from %s on", svg_number(full->n_prompt, n),
                                svg_number(ceil(even_tokens(full)), tokens));
    return status ? status : str_append_text(out, ".");
}

enum status phases_figures_sentence(const struct phases *phases, int idx, struct str *out) {
    return idx == 0   ? ttft_sentence(phases, out)
           : idx == 1 ? decode_sentence(phases, out)
                      : cases_sentence(phases, out);
}

enum status phases_figures_why(const struct phases_case *one, struct str *out) {
    char n[32], each[32], tokens[32], token[32];
    double share = phases_prefill_share(one);
    int n_computed = one->n_prompt - (one->n_cached > 0 ? one->n_cached : 0);
    enum status status = str_append_fmt(out, "%s, %.0f %% of the time: ", share >= 0.5 ? "Prefill" : "Decode",
                                        100 * (share >= 0.5 ? share : 1 - share));
    if (!status)
        status = str_append_fmt(out, "%s prompt tokens %s computed before the first one, %s each; ",
                                svg_number(n_computed, n), one->n_cached > 0 ? "not in the cache were" : "were",
                                svg_ms(n_computed > 0 ? one->ttft_ms / n_computed : 0, each));
    if (!status)
        status = str_append_fmt(out, "the other %s tokens of the answer follow one by one, %s each.",
                                svg_number(one->n_new - 1, tokens),
                                svg_ms(one->n_new > 1 ? one->decode_ms / (one->n_new - 1) : 0, token));
    return status;
}

/* ---- first: TTFT ---- */

static void draw_terms(struct svg *svg, const struct fit *fit, double max_n) {
    double x[N_CURVE], whole[N_CURVE], linear[N_CURVE], square[N_CURVE];
    for (int i = 0; i < N_CURVE; i++) {
        x[i] = svg->x.min * pow(max_n / svg->x.min, (double)i / (N_CURVE - 1));
        whole[i] = fit_at(fit, x[i]);
        linear[i] = fit->b * x[i];
        square[i] = fit->c * x[i] * x[i];
    }
    svg_line(svg, "k-dash k-linear", x, linear, N_CURVE);
    svg_line(svg, "k-dash k-square", x, square, N_CURVE);
    svg_line(svg, "k-band k-cold", x, whole, N_CURVE);
}

static void draw_star(struct svg *svg, double star) {
    char text[32];
    double x = svg_x(svg, star);
    bool is_right = x > (svg->left + svg->right) / 2;
    svg_rule(svg, "k-dash k-star", x, svg->top, x, svg->bottom);
    svg_text(svg, "k-t k-b", x + (is_right ? -8 : 8), svg->bottom - 12, is_right ? "end" : "start", "N* = %s",
             svg_number(star, text));
}

static void draw_ttft(struct svg *svg, const struct phases *phases) {
    double x[PHASES_MAX_POINTS], y[PHASES_MAX_POINTS], shared_x[PHASES_MAX_POINTS], shared_y[PHASES_MAX_POINTS];
    int n = gather(phases->cold, phases->n_cold, false, x, y);
    int n_shared = gather(phases->shared, phases->n_shared, false, shared_x, shared_y);
    double low = n_shared ? fmin(least(y, n), least(shared_y, n_shared)) : least(y, n), high = largest(y, n);
    struct svg_axis tokens = {"prompt tokens", least(x, n) / 1.25, largest(x, n) * 1.2, true, false};
    struct svg_axis ms = {"", low / 2, high * 1.6, true, true};
    char words[80], number[32];
    svg_axes(svg, &tokens, &ms);
    draw_terms(svg, &phases->ttft, tokens.max);
    if (phases->crossover_tokens > tokens.min && phases->crossover_tokens < tokens.max)
        draw_star(svg, phases->crossover_tokens);
    for (int i = 0; i < phases->n_cold; i++) {
        const struct phases_point *point = &phases->cold[i];
        if (!point->n_samples) continue;
        double at = svg_x(svg, point->n_prompt);
        svg_rule(svg, "k-line k-cold", at, svg_y(svg, point->least_ttft_ms), at, svg_y(svg, point->most_ttft_ms));
    }
    svg_line(svg, "k-line k-shared", shared_x, shared_y, n_shared);
    svg_dots(svg, "k-dots k-cold", false, x, y, n);
    svg_dots(svg, "k-dots k-shared", true, shared_x, shared_y, n_shared);
    double left = svg->left + LEGEND_X;
    double at = svg_legend(svg, "k-bar k-cold", false, left, svg->top + 20, "new prompt, and a + bN + cN\xc2\xb2");
    snprintf(words, sizeof words, "%.20s tokens shared", svg_number(phases->shared_tokens, number));
    if (n_shared) at = svg_legend(svg, "k-bar k-shared", false, left, at, words);
    at = svg_legend(svg, "k-dash k-linear", true, left, at, "bN alone");
    svg_legend(svg, "k-dash k-square", true, left, at, "cN\xc2\xb2 alone");
}

/* ---- second: decode ---- */

static void draw_decode(struct svg *svg, const struct phases *phases) {
    double x[PHASES_MAX_POINTS], y[PHASES_MAX_POINTS], shared_x[PHASES_MAX_POINTS], shared_y[PHASES_MAX_POINTS];
    int n = gather(phases->cold, phases->n_cold, true, x, y);
    int n_shared = gather(phases->shared, phases->n_shared, true, shared_x, shared_y);
    if (n == 0) return;
    struct svg_axis tokens = {"tokens in the context", 0, largest(x, n) * 1.05, false, false};
    struct svg_axis ms = {"", 0, fmax(largest(y, n), largest(shared_y, n_shared)) * 1.5, false, true};
    svg_axes(svg, &tokens, &ms);
    if (phases->has_decode_fit) {
        double ends[] = {0, tokens.max}, values[] = {phases->decode.a, fit_at(&phases->decode, tokens.max)};
        svg_line(svg, "k-band k-decode", ends, values, 2);
    }
    svg_dots(svg, "k-dots k-decode", false, x, y, n);
    svg_dots(svg, "k-dots k-shared", true, shared_x, shared_y, n_shared);
    double left = svg->left + LEGEND_X;
    double at = svg_legend(svg, "k-bar k-decode", false, left, svg->top + 20, "ms per token, new prompt");
    if (n_shared) svg_legend(svg, "k-bar k-shared", false, left, at, "behind a shared system prompt");
}

/* ---- third: cases ---- */

static void draw_case(struct svg *svg, const struct phases_case *one, double y) {
    char n[32], tokens[32], first[32], rest[32];
    double left = 20, width = svg->width - 40, share = phases_prefill_share(one), split = share * width;
    svg_text(svg, "k-t", left, y + 18, "start", "%s prompt (%s), %s answer (%s)%s", one->prompt_name,
             svg_number(one->n_prompt, n), one->answer_name, svg_number(one->n_new, tokens),
             one->is_shared ? ", shared" : "");
    svg_text(svg, "k-d k-wide", left + width, y + 18, "end", "%s + %s", svg_ms(one->ttft_ms, first),
             svg_ms(one->decode_ms, rest));
    svg_rect(svg, "k-bar k-prefill", left, y + 26, split, BAR_HEIGHT);
    svg_rect(svg, "k-bar k-decode", left + split, y + 26, width - split, BAR_HEIGHT);
    if (share > TEXT_SHARE) svg_text(svg, "k-on k-b", left + 10, y + 48, "start", "%s", first);
    if (share < 1 - TEXT_SHARE) svg_text(svg, "k-on k-b", left + width - 10, y + 48, "end", "%s", rest);
}

static int n_measured(const struct phases *phases) {
    int n = 0;
    for (int i = 0; i < phases->n_cases; i++) n += phases->cases[i].n_samples > 0;
    return n;
}

static void draw_cases(struct svg *svg, const struct phases *phases) {
    double y = BAR_TOP;
    svg_legend(svg, "k-bar k-prefill", false, 16, 30, "until the first token");
    svg_legend(svg, "k-bar k-decode", false, 16 + WIDTH / 2.0, 30, "the other tokens");
    for (int i = 0; i < phases->n_cases; i++) {
        if (!phases->cases[i].n_samples) continue;
        draw_case(svg, &phases->cases[i], y);
        y += CASE_HEIGHT;
    }
}

enum status phases_figures_draw(const struct phases *phases, int idx, bool has_style, struct str *out) {
    struct svg svg;
    struct str sentence;
    str_init(&sentence, MAX_SENTENCE_BYTES);
    enum status status = phases_figures_sentence(phases, idx, &sentence);
    double height = idx < 2 ? HEIGHT : BAR_TOP + n_measured(phases) * CASE_HEIGHT + 8;
    svg_begin(&svg, out, WIDTH, height, has_style, titles[idx], sentence.ptr);
    if (idx == 0)
        draw_ttft(&svg, phases);
    else if (idx == 1)
        draw_decode(&svg, phases);
    else
        draw_cases(&svg, phases);
    str_deinit(&sentence);
    enum status drawn = svg_end(&svg);
    return status ? status : drawn;
}
