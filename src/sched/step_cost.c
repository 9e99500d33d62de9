#include "sched/step_cost.h"

#include <math.h>

enum status step_cost_init(struct step_cost *cost, int n_points, const int *rows, const double *rows_ns,
                           struct status_note *note) {
    *cost = (struct step_cost){.slowness = 1};
    if (n_points < 1 || n_points > STEP_COST_MAX_POINTS)
        return status_fail(note, STATUS_INVALID, "a cost table of %d points, not 1 to %d", n_points,
                           STEP_COST_MAX_POINTS);
    for (int i = 0; i < n_points; i++) {
        if (i == 0 ? rows[i] != 1 : rows[i] <= rows[i - 1])
            return status_fail(note, STATUS_INVALID, "point %d of the cost table is for %d rows: they ascend from 1", i,
                               rows[i]);
        if (!isfinite(rows_ns[i]) || rows_ns[i] <= 0)
            return status_fail(note, STATUS_INVALID, "%d rows cannot take %g ns", rows[i], rows_ns[i]);
        cost->rows[i] = rows[i];
        cost->rows_ns[i] = i && rows_ns[i] < cost->rows_ns[i - 1] ? cost->rows_ns[i - 1] : rows_ns[i];
    }
    cost->n_points = n_points;
    return STATUS_OK;
}

/* Keys of rows [0, n) if each sees window at most. */
static double keys_before(double n, double window) {
    if (n <= window) return n * (n + 1) / 2;
    return window * (window + 1) / 2 + (n - window) * window;
}

double step_cost_keys(const struct step_cost *cost, int from, int to) {
    double full = keys_before(to, to) - keys_before(from, from);
    if (cost->window_share == 0) return full;
    double near = keys_before(to, cost->window_tokens) - keys_before(from, cost->window_tokens);
    return full + cost->window_share * (near - full);
}

void step_cost_add_prefill(const struct step_cost *cost, struct step_shape *shape, int from, int to, int n_logit_rows) {
    shape->n_rows += to - from;
    shape->n_logit_rows += n_logit_rows;
    shape->n_prefill_keys += step_cost_keys(cost, from, to);
}

void step_cost_add_decode(const struct step_cost *cost, struct step_shape *shape, int pos) {
    shape->n_rows++;
    shape->n_decode_rows++;
    shape->n_logit_rows++;
    shape->n_decode_keys += step_cost_keys(cost, pos, pos + 1);
}

static double table_ns(const struct step_cost *cost, int n_rows) {
    int last = cost->n_points - 1, i = 1;
    if (last == 0) return cost->rows_ns[0] * n_rows;
    while (i < last && cost->rows[i] < n_rows) i++;
    double slope = (cost->rows_ns[i] - cost->rows_ns[i - 1]) / (cost->rows[i] - cost->rows[i - 1]);
    return cost->rows_ns[i - 1] + slope * (n_rows - cost->rows[i - 1]);
}

int64_t step_cost_ns(const struct step_cost *cost, const struct step_shape *shape) {
    if (shape->n_rows == 0) return 0;
    double ns = table_ns(cost, shape->n_rows) + shape->n_prefill_keys * cost->prefill_key_ns +
                shape->n_decode_keys * cost->decode_key_ns + shape->n_decode_rows * cost->decode_row_ns +
                shape->n_logit_rows * cost->logit_row_ns;
    return ns < (double)STEP_COST_MAX_NS ? (int64_t)ns : STEP_COST_MAX_NS;
}

int step_cost_max_prefill(const struct step_cost *cost, const struct step_shape *base, int from, int max_rows,
                          int logits_from, int64_t limit_ns) {
    int fits = 0, too_many = max_rows + 1;
    while (too_many - fits > 1) {
        int n = fits + (too_many - fits) / 2, to = from + n;
        int first_logit = logits_from > from ? logits_from : from;
        struct step_shape shape = *base;
        step_cost_add_prefill(cost, &shape, from, to, to > first_logit ? to - first_logit : 0);
        if (step_cost_ns(cost, &shape) <= limit_ns)
            fits = n;
        else
            too_many = n;
    }
    return fits;
}
