#include "bench/load_page.h"

#include <math.h>
#include <stdio.h>

#include "bench/report_page.h"
#include "bench/svg.h"

#define WIDTH 780
#define ROW_HEIGHT 56
#define SWEEP_HEIGHT 400
#define LEGEND_HEIGHT 104
#define MIN_MS 0.5 /* several tokens of one event are no time apart */
#define MAX_FIGURE_BYTES 200000
#define MAX_SENTENCE_BYTES 1000

/* ---- spreads: a row for each kind of load ---- */

static const struct load_spread *spread_of(const struct load_row *row, bool is_gap) {
    return is_gap ? &row->gap : &row->ttft;
}

static bool has_spread(const struct load_row *row, bool is_gap) {
    return row->group == LOAD_GROUP_SCENARIO && spread_of(row, is_gap)->p50 >= 0;
}

static void draw_spread(struct svg *svg, const char *name, const struct load_spread *spread, double y) {
    char half[32], most[32];
    svg_text(svg, "k-t", svg->left, y + 16, "start", "%s", name);
    svg_text(svg, "k-d k-wide", svg->right, y + 16, "end", "%s, at most %s", svg_ms(spread->p50, half),
             svg_ms(spread->max, most));
    double line = y + 38, p50 = svg_x(svg, spread->p50), p95 = svg_x(svg, spread->p95), p99 = svg_x(svg, spread->p99);
    svg_rule(svg, "k-axis", p99, line, svg_x(svg, spread->max), line);
    svg_rect(svg, "k-bar k-cold", p50, line - 5, fmax(p95 - p50, 3), 10);
    svg_rect(svg, "k-bar k-shared", p95, line - 3, fmax(p99 - p95, 3), 6);
}

static void add_spreads(struct report_page *page, const struct load_rows *rows, bool is_gap, const char *title) {
    struct str figure;
    struct svg svg;
    int n = 0;
    double least = INFINITY, most = 0;
    for (int i = 0; i < rows->n; i++) {
        if (!has_spread(&rows->of[i], is_gap)) continue;
        const struct load_spread *spread = spread_of(&rows->of[i], is_gap);
        n++;
        least = fmin(least, fmax(spread->p50, MIN_MS));
        most = fmax(most, spread->max);
    }
    if (n == 0) return;
    struct svg_axis ms = {"", least / 1.3, most * 1.1, true, true};
    report_page_text(page, "h2", "%s", title);
    str_init(&figure, MAX_FIGURE_BYTES);
    svg_begin(&svg, &figure, WIDTH, LEGEND_HEIGHT + n * ROW_HEIGHT + 56, false, title,
              "a row for each kind of load: from the median to the slowest");
    svg.left = 20;
    double at = svg_legend(&svg, "k-bar k-cold", false, 16, 24, "from the median to 95 % of them");
    at = svg_legend(&svg, "k-bar k-shared", false, 16, at, "from there to 99 %");
    svg_legend(&svg, "k-axis", true, 16, at, "to the slowest");
    svg.top = LEGEND_HEIGHT - 4;
    svg_lower_axis(&svg, &ms);
    for (int i = 0, k = 0; i < rows->n; i++)
        if (has_spread(&rows->of[i], is_gap))
            draw_spread(&svg, rows->of[i].name, spread_of(&rows->of[i], is_gap), LEGEND_HEIGHT + ROW_HEIGHT * k++);
    enum status status = svg_end(&svg);
    report_page_figure(page, &figure, status,
                       is_gap ? "Between two tokens of one answer: what makes reading smooth or not."
                              : "From the request to its first token: what its user waits for.");
}

/* ---- sweeps: tokens per second and both waits, as multiples of the first value's ---- */

#define N_CURVES 3

static const struct {
    const char *class_, *words;
} curves[N_CURVES] = {{"k-shared", "tokens per second"},
                      {"k-prefill", "first token, 95 % of them"},
                      {"k-decode", "gap between tokens, 95 % of them"}};

static double curve_value(const struct load_row *row, int curve) {
    return curve == 0 ? row->new_tok_s : curve == 1 ? row->ttft.p95 : row->gap.p95;
}

/* Rows of the group with all three values, in order of what is varied. */
static int gather(const struct load_rows *rows, enum load_group group, const struct load_row *out[LOAD_ROWS_MAX]) {
    int n = 0;
    for (int i = 0; i < rows->n; i++) {
        const struct load_row *row = &rows->of[i];
        if (row->group != group || row->value <= 0 || row->new_tok_s <= 0 || row->ttft.p95 <= 0 || row->gap.p95 <= 0)
            continue;
        int at = n++;
        for (; at > 0 && out[at - 1]->value > row->value; at--) out[at] = out[at - 1];
        out[at] = row;
    }
    return n;
}

static void draw_curves(struct svg *svg, enum load_group group, const struct load_row *const *of, int n) {
    double x[LOAD_ROWS_MAX], y[N_CURVES][LOAD_ROWS_MAX], least = 1, most = 1;
    for (int i = 0; i < n; i++) {
        x[i] = of[i]->value;
        for (int c = 0; c < N_CURVES; c++) {
            y[c][i] = curve_value(of[i], c) / curve_value(of[0], c);
            least = fmin(least, y[c][i]);
            most = fmax(most, y[c][i]);
        }
    }
    struct svg_axis varied = {load_rows_what(group), x[0] / 1.2, x[n - 1] * 1.2, true, false};
    struct svg_axis times = {"", least / 1.3, most * 1.3, true, false};
    svg->top = LEGEND_HEIGHT;
    svg_axes(svg, &varied, &times);
    double at = 24;
    for (int c = 0; c < N_CURVES; c++) {
        char class_[32];
        snprintf(class_, sizeof class_, "k-line %s", curves[c].class_);
        svg_line(svg, class_, x, y[c], n);
        snprintf(class_, sizeof class_, "k-dots %s", curves[c].class_);
        svg_dots(svg, class_, c == 0, x, y[c], n);
        snprintf(class_, sizeof class_, "k-bar %s", curves[c].class_);
        at = svg_legend(svg, class_, false, svg->left, at, curves[c].words);
    }
}

static void add_sweep(struct report_page *page, const struct load_rows *rows, enum load_group group) {
    const struct load_row *of[LOAD_ROWS_MAX];
    struct str figure;
    struct svg svg;
    char caption[MAX_SENTENCE_BYTES], n[8][32];
    int n_rows = gather(rows, group, of);
    if (n_rows < 2) return;
    const struct load_row *first = of[0], *last = of[n_rows - 1];
    snprintf(caption, sizeof caption,
             "From %s to %s: %s to %s tokens per second, 95 %% of the first tokens within %s to %s, of the gaps within "
             "%s to %s. The curves are multiples of the values at %s.",
             svg_number(first->value, n[0]), svg_number(last->value, n[1]), svg_number(first->new_tok_s, n[2]),
             svg_number(last->new_tok_s, n[3]), svg_ms(first->ttft.p95, n[4]), svg_ms(last->ttft.p95, n[5]),
             svg_ms(first->gap.p95, n[6]), svg_ms(last->gap.p95, n[7]), n[0]);
    report_page_text(page, "h2", "%s", load_rows_heading(group));
    str_init(&figure, MAX_FIGURE_BYTES);
    svg_begin(&svg, &figure, WIDTH, SWEEP_HEIGHT, false, load_rows_heading(group), caption);
    draw_curves(&svg, group, of, n_rows);
    enum status status = svg_end(&svg);
    report_page_figure(page, &figure, status, caption);
}

/* ---- numbers ---- */

static void add_cells(struct report_page *page, const struct load_spread *spread) {
    const double values[] = {spread->p50, spread->p95, spread->p99, spread->max};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char text[32];
        report_page_cell(page, "%s", values[i] >= 0 ? svg_ms(values[i], text) : "-");
    }
}

static void add_table(struct report_page *page, const struct load_rows *rows, enum load_group group) {
    static const char *const headers[] = {"",    "done",    "refused", "first p50", "p95", "p99",
                                          "max", "gap p50", "p95",     "p99",       "max", "tokens/s"};
    bool has_table = false;
    for (int i = 0; i < rows->n; i++) {
        const struct load_row *row = &rows->of[i];
        char rate[32];
        if (row->group != group) continue;
        if (!has_table) report_page_table(page, load_rows_heading(group), headers, 12);
        has_table = true;
        report_page_row(page);
        report_page_cell(page, "%s", row->name);
        report_page_cell(page, "%d", row->n_done);
        report_page_cell(page, "%d", row->n_refused);
        add_cells(page, &row->ttft);
        add_cells(page, &row->gap);
        report_page_cell(page, "%s", row->new_tok_s >= 0 ? svg_number(row->new_tok_s, rate) : "-");
    }
    if (has_table) report_page_end_table(page);
}

enum status load_page_html(const struct load_rows *rows, const struct load_page_about *about, struct str *out) {
    struct report_page page;
    char title[300];
    snprintf(title, sizeof title, "%.200s under load", about->model);
    report_page_begin(&page, out, title);
    report_page_lead(&page, about->server, about->machine);
    if (about->advice) report_page_text(&page, "p", "%s", about->advice);
    add_spreads(&page, rows, false, "Time to the first token");
    add_spreads(&page, rows, true, "Time between tokens");
    for (int group = LOAD_GROUP_CLIENTS; group < LOAD_N_GROUPS; group++) add_sweep(&page, rows, (enum load_group)group);
    report_page_text(&page, "h2", "Numbers");
    for (int group = 0; group < LOAD_N_GROUPS; group++) add_table(&page, rows, (enum load_group)group);
    report_page_text(&page, "h2", "How this was measured");
    report_page_text(
        &page, "p",
        "Times are the client's: the first token is the first event with content, gaps are between two "
        "tokens of one answer. A refused request (429, 503) is counted apart. Percentiles by nearest rank.");
    report_page_command(&page, about->command);
    return report_page_end(&page);
}
