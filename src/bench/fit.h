/* fit: times as a polynomial of lengths, a + b x + c x^2, none of the terms negative.
 *
 * Least squares of the relative residuals, since a millisecond matters where the whole is ten of them and not where it
 * is ten thousand.   Thread: any. */
#ifndef KVICK_BENCH_FIT_H
#define KVICK_BENCH_FIT_H

#include <stdbool.h>

struct fit {
    double a, b, c;
    double rms_share, max_share; /* of the residuals, relative to the values */
};

/* x, y: [n], all above 0. degree 1 (c is 0) or 2. False with less than degree + 1 different x. */
bool fit_polynomial(const double *x, const double *y, int n, int degree, struct fit *out);

double fit_at(const struct fit *fit, double x);

#endif
