/* phases_figures: the three pictures of a phases measurement, each with the one sentence that says what it shows.
 *
 * Thread: any. */
#ifndef KVICK_BENCH_PHASES_FIGURES_H
#define KVICK_BENCH_PHASES_FIGURES_H

#include "bench/phases.h"

#define PHASES_FIGURES_N 3

/* Of figure idx: its heading and its sentence.   Errors: those of str_append. */
const char *phases_figures_title(int idx);
WARN_UNUSED enum status phases_figures_sentence(const struct phases *phases, int idx, struct str *out);

/* The picture itself; has_style: as svg_begin. Errors: those of str_append. */
WARN_UNUSED enum status phases_figures_draw(const struct phases *phases, int idx, bool has_style, struct str *out);

/* Why one phase fills the time of this case, as a sentence. */
WARN_UNUSED enum status phases_figures_why(const struct phases_case *one, struct str *out);

#endif
