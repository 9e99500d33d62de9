/* histogram: counts of values by fixed upper bounds, and their sum.   Thread: one writer. */
#ifndef KVICK_BASE_HISTOGRAM_H
#define KVICK_BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_MAX_BOUNDS 32

struct histogram {
    const double *bounds; /* [n_bounds] ascending, borrowed; a value equal to a bound is below it */
    int n_bounds;
    uint64_t counts[HISTOGRAM_MAX_BOUNDS + 1]; /* the last: above all bounds */
    uint64_t n;
    double sum;
};

void histogram_init(struct histogram *histogram, const double *bounds, int n_bounds);

/* n equal values. What is no finite number, or negative, is left out. */
void histogram_add(struct histogram *histogram, double value, uint64_t n);

#endif
