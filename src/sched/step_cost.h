/* step_cost: how long a step will take, from plain coefficients. Knows no model and measures nothing.
 *
 * ns = table[rows] + prefill keys * a + decode keys * b + decode rows * c + logit rows * d
 * The table is measured, because a product of M rows costs stairs and regimes, not a line. Between its points it is
 * interpolated, above the last one it goes on as between the last two. It never falls, so the cost never falls when a
 * row is added, and the inverse can be searched.
 * Keys: a row at position p sees p + 1 of them; in layers with a window at most window_tokens.
 * Thread: any, one writer.   Memory: a plain value. */
#ifndef KVICK_SCHED_STEP_COST_H
#define KVICK_SCHED_STEP_COST_H

#include <stdint.h>

#include "base/status.h"

#define STEP_COST_MAX_POINTS 32
#define STEP_COST_MAX_NS (INT64_MAX / 8) /* no prediction is longer, so that a few can be added */

struct step_cost {
    int n_points;
    int rows[STEP_COST_MAX_POINTS];       /* [n_points] ascending from 1 */
    double rows_ns[STEP_COST_MAX_POINTS]; /* [n_points] a step of so many rows, without what the terms below add */
    double prefill_key_ns;                /* per (prefill row, key) */
    double decode_key_ns;                 /* per (decode row, key) */
    double decode_row_ns;                 /* per decode row, beside its keys */
    double logit_row_ns;                  /* per row with logits */
    double window_share;                  /* of the layers, those that see window_tokens at most: 0 .. 1 */
    int window_tokens;
    double slowness; /* steps of late were predicted to take so many times what they were at first; > 0 */
};

/* What a step is made of, as far as its time depends on it. All zero: an empty step, which costs nothing. */
struct step_shape {
    int n_rows, n_decode_rows, n_logit_rows; /* n_rows: prefill and decode together */
    double n_prefill_keys, n_decode_keys;    /* step_cost_keys, summed over the rows */
};

/* Sets the table, all else 0. Where rows_ns falls it is raised to the point before.
 * Errors: STATUS_INVALID unless 1 <= n_points <= STEP_COST_MAX_POINTS, rows ascend from 1 and times are finite, > 0. */
WARN_UNUSED enum status step_cost_init(struct step_cost *cost, int n_points, const int *rows, const double *rows_ns,
                                       struct status_note *note);

/* Keys seen by rows [from, to) together, averaged over the layers. */
double step_cost_keys(const struct step_cost *cost, int from, int to);

/* Adds rows to a shape: a chunk of a prompt, of which n_logit_rows give logits, and a decoding row at a position. */
void step_cost_add_prefill(const struct step_cost *cost, struct step_shape *shape, int from, int to, int n_logit_rows);
void step_cost_add_decode(const struct step_cost *cost, struct step_shape *shape, int pos);

int64_t step_cost_ns(const struct step_cost *cost, const struct step_shape *shape);

/* The inverse: the largest n <= max_rows such that base with prefill rows [from, from + n) more, those at and after
 * logits_from with logits, is predicted to end within limit_ns. 0 if not even one fits.   Cost: O(log max_rows). */
int step_cost_max_prefill(const struct step_cost *cost, const struct step_shape *base, int from, int max_rows,
                          int logits_from, int64_t limit_ns);

#endif
