#include "bench/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_TEXT_BYTES 400
#define LEFT 108
#define RIGHT 26
#define TOP 22
#define BOTTOM 64

const char svg_style[] =
    ".k-bg{fill:#fff}.k-t{fill:#1c2024}.k-d{fill:#5b646e}.k-grid{stroke:#e4e8ec}.k-axis{stroke:#98a2ad}"
    ".k-cold,.k-prefill{fill:#0b6bcb;stroke:#0b6bcb}.k-shared{fill:#1a7f37;stroke:#1a7f37}"
    ".k-decode{fill:#d2691e;stroke:#d2691e}.k-linear{stroke:#5b646e}.k-square{stroke:#8250df}.k-star{stroke:#8250df}"
    ".k-on{fill:#fff}.k-line,.k-dash,.k-band{fill:none!important}.k-line{stroke-width:2.5}.k-dash{stroke-width:2;"
    "stroke-dasharray:7 6}"
    ".k-band{stroke-width:2.5;opacity:.35}.k-dots{stroke-width:0}.k-bar{stroke-width:0}"
    "svg.k{display:block;width:100%;height:auto}"
    "svg.k text{font:17px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}svg.k .k-b{font-weight:600}"
    "@media (prefers-color-scheme:dark){.k-bg{fill:#14171a}.k-t{fill:#e8ebee}.k-d{fill:#a4adb7}.k-grid{stroke:#262c32}"
    ".k-axis{stroke:#57616c}.k-cold,.k-prefill{fill:#4aa3ff;stroke:#4aa3ff}.k-shared{fill:#4cc566;stroke:#4cc566}"
    ".k-decode{fill:#f0a04b;stroke:#f0a04b}.k-linear{stroke:#a4adb7}.k-square,.k-star{stroke:#b794ff}"
    ".k-on{fill:#101316}}"
    "@media (max-width:560px){svg.k text{font-size:27px}svg.k .k-wide{display:none}}";

/* ---- text ---- */

enum status svg_escape(struct str *out, const char *text) {
    enum status status = STATUS_OK;
    for (; *text && !status; text++) {
        const char *as = *text == '<'    ? "&lt;"
                         : *text == '>'  ? "&gt;"
                         : *text == '&'  ? "&amp;"
                         : *text == '"'  ? "&quot;"
                         : *text == '\'' ? "&#39;"
                                         : NULL;
        status = as ? str_append_text(out, as) : str_append(out, text, 1);
    }
    return status;
}

const char *svg_number(double value, char out[32]) {
    if (value >= 1e15 || value != value) {
        snprintf(out, 32, "-");
    } else if (fabs(value) >= 99.5) {
        char digits[24], *to = out;
        int n = snprintf(digits, sizeof digits, "%.0f", value);
        for (int i = 0; i < n; i++) {
            *to++ = digits[i];
            if (digits[i] != '-' && i < n - 1 && (n - 1 - i) % 3 == 0) *to++ = ',';
        }
        *to = 0;
    } else if (fabs(value - round(value)) < 1e-9) {
        snprintf(out, 32, "%.0f", value);
    } else {
        snprintf(out, 32, fabs(value) >= 9.95 ? "%.1f" : "%.2f", value);
    }
    return out;
}

const char *svg_ms(double ms, char out[32]) {
    char number[32];
    if (fabs(ms) < 999.5)
        snprintf(out, 32, "%.20s ms", svg_number(fabs(ms) >= 99.5 ? round(ms) : ms, number));
    else
        snprintf(out, 32, ms < 99500 ? "%.3g s" : "%.0f s", ms / 1e3);
    return out;
}

static void put(struct svg *svg, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void put(struct svg *svg, const char *fmt, ...) {
    char text[MAX_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    REQUIRE(n >= 0 && n < (int)sizeof text);
    if (!svg->status) svg->status = str_append(svg->out, text, (size_t)n);
}

static void put_escaped(struct svg *svg, const char *text) {
    if (!svg->status) svg->status = svg_escape(svg->out, text);
}

void svg_text(struct svg *svg, const char *class_, double x, double y, const char *anchor, const char *fmt, ...) {
    char text[MAX_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put(svg, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", class_, x, y, anchor);
    put_escaped(svg, text);
    put(svg, "</text>\n");
}

/* ---- the drawing ---- */

void svg_begin(struct svg *svg, struct str *out, double width, double height, bool has_style, const char *title,
               const char *text) {
    *svg = (struct svg){.out = out,
                        .width = width,
                        .height = height,
                        .left = LEFT,
                        .right = width - RIGHT,
                        .top = TOP,
                        .bottom = height - BOTTOM};
    put(svg, "<svg class=\"k\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\"", width,
        height);
    /* A file of its own has a size; in a page the style gives it the page's width. */
    if (has_style) put(svg, " width=\"%.0f\" height=\"%.0f\"", width, height);
    put(svg, ">\n<title>");
    put_escaped(svg, title);
    put(svg, "</title>\n<desc>");
    put_escaped(svg, text);
    put(svg, "</desc>\n");
    if (has_style && !svg->status) {
        put(svg, "<style>");
        if (!svg->status) svg->status = str_append_text(out, svg_style);
        put(svg, "</style>\n");
    }
    svg_rect(svg, "k-bg", 0, 0, width, height);
}

enum status svg_end(struct svg *svg) {
    put(svg, "</svg>\n");
    return svg->status;
}

void svg_rect(struct svg *svg, const char *class_, double x, double y, double width, double height) {
    put(svg, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", class_, x, y, width,
        height);
}

void svg_rule(struct svg *svg, const char *class_, double x1, double y1, double x2, double y2) {
    put(svg, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class_, x1, y1, x2, y2);
}

double svg_legend(struct svg *svg, const char *class_, bool is_line, double x, double y, const char *words) {
    if (is_line)
        svg_rule(svg, class_, x, y - 6, x + 28, y - 6);
    else
        svg_rect(svg, class_, x + 4, y - 15, 18, 14);
    svg_text(svg, "k-t", x + 38, y, "start", "%s", words);
    return y + 27;
}

/* ---- axes ---- */

static double place(const struct svg_axis *axis, double value) {
    if (axis->is_log) return log(fmax(value, 1e-12) / axis->min) / log(axis->max / axis->min);
    return (value - axis->min) / (axis->max - axis->min);
}

double svg_x(const struct svg *svg, double value) {
    return svg->left + fmin(fmax(place(&svg->x, value), 0), 1) * (svg->right - svg->left);
}

double svg_y(const struct svg *svg, double value) {
    return svg->bottom - fmin(fmax(place(&svg->y, value), 0), 1) * (svg->bottom - svg->top);
}

/* The tick behind value: of a logarithmic axis twice as much for lengths, the next of 1, 2, 5 for times. */
static double next_tick(const struct svg_axis *axis, double value, double step) {
    if (!axis->is_log) return value + step;
    double mantissa = value / pow(10, floor(log10(value) + 1e-9));
    return axis->is_ms && mantissa > 1.5 && mantissa < 3 ? value * 2.5 : value * 2;
}

static double first_tick(const struct svg_axis *axis, double step) {
    if (!axis->is_log) return ceil(axis->min / step - 1e-9) * step + 0.0; /* never -0 */
    double at = axis->is_ms ? pow(10, floor(log10(axis->min))) : pow(2, floor(log2(axis->min)));
    while (at < axis->min * (1 - 1e-9)) at = next_tick(axis, at, step);
    return at;
}

/* 1, 2 or 5 times a power of ten, so that there are about five. */
static double step_of(const struct svg_axis *axis) {
    double rough = (axis->max - axis->min) / 5, power = pow(10, floor(log10(rough)));
    double ratio = rough / power;
    return power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
}

static const char *tick_text(const struct svg_axis *axis, double value, char out[32]) {
    return axis->is_ms ? svg_ms(value, out) : svg_number(value, out);
}

static void draw_axis(struct svg *svg, const struct svg_axis *axis, bool is_x) {
    double step = step_of(axis);
    int n = 0;
    char text[32];
    for (double at = first_tick(axis, step); at <= axis->max * (1 + 1e-9); at = next_tick(axis, at, step), n++) {
        /* Narrow windows have larger letters: there every other label of the lower axis goes. */
        const char *class_ = is_x && n % 2 ? "k-d k-wide" : "k-d";
        double place_px = is_x ? svg_x(svg, at) : svg_y(svg, at);
        if (is_x) {
            svg_rule(svg, "k-grid", place_px, svg->top, place_px, svg->bottom);
            svg_text(svg, class_, place_px, svg->bottom + 24, "middle", "%s", tick_text(axis, at, text));
        } else {
            svg_rule(svg, "k-grid", svg->left, place_px, svg->right, place_px);
            svg_text(svg, class_, svg->left - 10, place_px + 6, "end", "%s", tick_text(axis, at, text));
        }
        if (n > 40) break;
    }
}

void svg_axes(struct svg *svg, const struct svg_axis *x, const struct svg_axis *y) {
    svg->y = *y;
    draw_axis(svg, y, false);
    svg_lower_axis(svg, x);
}

void svg_lower_axis(struct svg *svg, const struct svg_axis *x) {
    svg->x = *x;
    draw_axis(svg, x, true);
    svg_rule(svg, "k-axis", svg->left, svg->bottom, svg->right, svg->bottom);
    svg_text(svg, "k-d", (svg->left + svg->right) / 2, svg->height - 12, "middle", "%s", x->title);
}

/* ---- marks ---- */

static bool is_inside(const struct svg *svg, double x, double y) {
    double at_x = place(&svg->x, x), at_y = place(&svg->y, y);
    return at_x > -1e-9 && at_x < 1 + 1e-9 && at_y > -1e-9 && at_y < 1 + 1e-9;
}

void svg_line(struct svg *svg, const char *class_, const double *x, const double *y, int n) {
    put(svg, "<path class=\"%s\" d=\"", class_);
    bool is_begun = false;
    for (int i = 0; i < n; i++) {
        if (!is_inside(svg, x[i], y[i])) {
            is_begun = false;
            continue;
        }
        put(svg, "%c%.1f %.1f", is_begun ? 'L' : 'M', svg_x(svg, x[i]), svg_y(svg, y[i]));
        is_begun = true;
    }
    put(svg, "\"/>\n");
}

void svg_dots(struct svg *svg, const char *class_, bool is_square, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        if (!is_inside(svg, x[i], y[i])) continue;
        double at_x = svg_x(svg, x[i]), at_y = svg_y(svg, y[i]);
        if (is_square)
            svg_rect(svg, class_, at_x - 5.5, at_y - 5.5, 11, 11);
        else
            put(svg, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>\n", class_, at_x, at_y);
    }
}
