#include "bench/quantile.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quantile_of(double *values, int n, double share) {
    qsort(values, (size_t)n, sizeof *values, compare);
    int rank = (int)ceil(share * n);
    return values[rank > 0 ? rank - 1 : 0];
}

double quantile_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
