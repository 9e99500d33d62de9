/* load: how much prefill work arrives per time of late, by tenant and by size. From it admission guesses how much of
 * the prefill time goes to newcomers that will overtake a prompt.
 *
 * Forgets with a time constant of LOAD_TIME_NS.   Thread: the scheduler's.   Memory: a plain value. */
#ifndef KVICK_SCHED_LOAD_H
#define KVICK_SCHED_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/terms.h"

#define LOAD_N_SIZES 24 /* powers of two from 2^20 ns */
#define LOAD_HEAVY_FACTOR 2
#define LOAD_TIME_NS INT64_C(20000000000)

struct load {
    double work_ns[TERMS_MAX_TENANTS][LOAD_N_SIZES]; /* decayed sums */
    double span_ns;                                  /* time that they stand for */
    int64_t last_ns;                                 /* until when; 0: nothing yet */
};

/* A prompt with so much work was admitted. */
void load_add(struct load *load, int tenant, int64_t work_ns, int64_t now_ns);

/* The share of time that arriving work takes which is shorter than own_ns if it is this tenant's, or than others_ns if
 * it is another's, heavy ones left out unless this one is heavy. */
double load_share(const struct load *load, int tenant, int64_t own_ns, int64_t others_ns,
                  const bool is_heavy[TERMS_MAX_TENANTS], int64_t now_ns);

/* Who sends more than LOAD_HEAVY_FACTOR times what tenants send on average, both by their weights. */
void load_find_heavy(const struct load *load, const double weights[TERMS_MAX_TENANTS],
                     bool out_is_heavy[TERMS_MAX_TENANTS]);

#endif
