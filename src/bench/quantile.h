/* quantile: what lies in the middle or at the end of measured values.   Thread: any. */
#ifndef KVICK_BENCH_QUANTILE_H
#define KVICK_BENCH_QUANTILE_H

/* Nearest rank. Sorts values [n], n >= 1; share 0..1, where 1 is the largest. */
double quantile_of(double *values, int n, double share);

/* Likewise; of an even number the mean of the two in the middle. */
double quantile_median(double *values, int n);

#endif
