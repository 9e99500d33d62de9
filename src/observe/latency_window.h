/* latency_window: quantiles of the times that came within the last seconds.
 *
 * Buckets grow by a twelfth root of 2, from 0.05 ms to 100 s: a quantile is right within 3 %.
 * Thread: one owner.   Memory: a plain value. */
#ifndef KVICK_OBSERVE_LATENCY_WINDOW_H
#define KVICK_OBSERVE_LATENCY_WINDOW_H

#include <stdint.h>

#define LATENCY_WINDOW_SECONDS 60
#define LATENCY_WINDOW_BUCKETS 252
#define LATENCY_WINDOW_MAX_QUANTILES 4

struct latency_second {
    int64_t second; /* of the clock; another one's counts are old */
    uint32_t counts[LATENCY_WINDOW_BUCKETS];
};

struct latency_window {
    struct latency_second seconds[LATENCY_WINDOW_SECONDS];
};

/* now_ns never falls. A negative value is left out. */
void latency_window_add(struct latency_window *window, int64_t now_ns, int64_t value_ns);

/* Quantiles, as shares above 0 and up to 1, of what came within the n_seconds (1..LATENCY_WINDOW_SECONDS) that end with
 * the one that now_ns is in. out_ms: [n_shares], 0 if there was nothing. Returns how much there was. */
uint64_t latency_window_read(const struct latency_window *window, int64_t now_ns, int n_seconds, const double *shares,
                             int n_shares, double *out_ms);

#endif
