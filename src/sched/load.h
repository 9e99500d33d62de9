/* load: how much prefill work arrives per time of late, by class, tenant and size. From it admission guesses how much
 * later a prompt will be because of newcomers that go ahead of it.
 *
 * Forgets with a time constant of LOAD_TIME_NS.   Thread: the scheduler's.   Memory: a plain value. */
#ifndef KVICK_SCHED_LOAD_H
#define KVICK_SCHED_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/terms.h"

#define LOAD_N_SIZES 24 /* powers of two from 2^20 ns */
#define LOAD_HEAVY_FACTOR 3
#define LOAD_TIME_NS INT64_C(60000000000)

/* Decayed sums over prompts of one size. */
struct load_size {
    double work_ns, n;
};

struct load {
    struct load_size sizes[TERMS_N_CLASSES][TERMS_MAX_TENANTS][LOAD_N_SIZES];
    double span_ns;  /* time that the sums stand for */
    int64_t last_ns; /* until when; 0: nothing yet */
};

/* A prompt with so much work was offered. */
void load_add(struct load *load, const struct terms *terms, int64_t work_ns, int64_t now_ns);

/* Work offered per time of late; 1: all that can be done. */
double load_share(const struct load *load, int64_t now_ns);

/* A prompt that newcomers may overtake, and what its tenant's order makes of them. */
struct load_prompt {
    const struct terms *terms;
    int64_t work_ns;      /* its own */
    int64_t tenant_ns;    /* what others may be shorter than: its own and the shorter ones of its tenant, by weight */
    int64_t estimate_ns;  /* when its first token comes if nobody overtakes it, from now */
    double stretch;       /* wall time per work */
    const bool *is_heavy; /* [TERMS_MAX_TENANTS] */
};

/* How much later it will be. */
struct load_delay {
    double mean_ns;
    double likely_ns; /* as often less as more: 0 if most likely nobody comes meanwhile */
};

/* Who overtakes: interactive newcomers any batch prompt; within a class those of the same tenant that are shorter than
 * what is left of it, of other tenants those that are shorter than tenant_ns or, if its tenant is heavy and theirs is
 * not, all. While it waits nothing of it is done; then less and less is left. */
struct load_delay load_delay_of(const struct load *load, const struct load_prompt *prompt, int64_t now_ns);

/* Who sends more than LOAD_HEAVY_FACTOR times what the others send on average, both by their weights. */
void load_find_heavy(const struct load *load, const double weights[TERMS_MAX_TENANTS],
                     bool out_is_heavy[TERMS_MAX_TENANTS]);

#endif
