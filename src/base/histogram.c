#include "base/histogram.h"

#include <math.h>

#include "base/status.h"

void histogram_init(struct histogram *histogram, const double *bounds, int n_bounds) {
    REQUIRE(n_bounds >= 1 && n_bounds <= HISTOGRAM_MAX_BOUNDS);
    *histogram = (struct histogram){.bounds = bounds, .n_bounds = n_bounds};
}

void histogram_add(struct histogram *histogram, double value, uint64_t n) {
    int i = 0;
    if (!isfinite(value) || value < 0) return;
    while (i < histogram->n_bounds && value > histogram->bounds[i]) i++;
    histogram->counts[i] += n;
    histogram->n += n;
    histogram->sum += value * (double)n;
}
