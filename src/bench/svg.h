/* svg: figures as text: a plot with two axes, lines and marks in the axes' units, and bars.
 *
 * Colours are classes, so that one style sheet (svg_style) serves a file of its own and a page, light and dark. The
 * first failure is kept and told by svg_end. Thread: one owner. */
#ifndef KVICK_BENCH_SVG_H
#define KVICK_BENCH_SVG_H

#include <stdbool.h>

#include "base/str.h"

struct svg_axis {
    const char *title;
    double min, max; /* of a logarithmic axis above 0 */
    bool is_log;
    bool is_ms; /* ticks are written as times: 10 ms, 1 s */
};

struct svg {
    struct str *out;
    enum status status;
    double width, height;
    double left, right, top, bottom; /* of the plot, in pixels of the drawing */
    struct svg_axis x, y;
};

/* The style sheet of all figures, for a <style> element. */
extern const char svg_style[];

/* A drawing width wide; the reader's window scales it. has_style: it stands alone and brings its own style.
 * title and text say to those who cannot see it what it shows. */
void svg_begin(struct svg *svg, struct str *out, double width, double height, bool has_style, const char *title,
               const char *text);
WARN_UNUSED enum status svg_end(struct svg *svg);

/* Grid, ticks and titles; what is drawn afterwards uses them. */
void svg_axes(struct svg *svg, const struct svg_axis *x, const struct svg_axis *y);

/* Only what belongs to the lower axis. */
void svg_lower_axis(struct svg *svg, const struct svg_axis *x);

/* In pixels, from a value of the axes; what lies outside is put on the border. */
double svg_x(const struct svg *svg, double value);
double svg_y(const struct svg *svg, double value);

/* x, y: [n] values; those outside the plot are left out. class_: names of svg_style. */
void svg_line(struct svg *svg, const char *class_, const double *x, const double *y, int n);
void svg_dots(struct svg *svg, const char *class_, bool is_square, const double *x, const double *y, int n);

/* In pixels. anchor: start, middle or end. */
void svg_text(struct svg *svg, const char *class_, double x, double y, const char *anchor, const char *fmt, ...)
    PRINTF_LIKE(6, 7);
void svg_rect(struct svg *svg, const char *class_, double x, double y, double width, double height);
void svg_rule(struct svg *svg, const char *class_, double x1, double y1, double x2, double y2);

/* A line of the legend: a swatch and its words; returns the pixel below. */
double svg_legend(struct svg *svg, const char *class_, bool is_line, double x, double y, const char *words);

/* "4,096", "0.52", "3.1": what people read. */
const char *svg_number(double value, char out[32]);

/* "870 ms", "3.2 s". */
const char *svg_ms(double ms, char out[32]);

/* Text with <, >, & and quotes made harmless. */
WARN_UNUSED enum status svg_escape(struct str *out, const char *text);

#endif
