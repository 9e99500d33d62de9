/* offline_bound: how many requests could have had their first token in time, had everything been known beforehand.
 *
 * An upper bound for any schedule: one machine, work may be interrupted at will and costs nothing to resume, and a job
 * may be done in part for a part of its worth. Under that, the amounts of work that fit into the times between arrivals
 * and deadlines form a polymatroid, so taking jobs by ascending work, each as far as it still fits, is optimal.
 * Thread: any. */
#ifndef KVICK_BENCH_OFFLINE_BOUND_H
#define KVICK_BENCH_OFFLINE_BOUND_H

#include <stdint.h>

#include "base/status.h"

struct offline_job {
    int64_t arrival_ns, deadline_ns;
    int64_t work_ns; /* the least machine time that its first token takes */
};

/* *out_n_jobs: the largest number, fractions counted.   Cost: O(n_jobs^3); 1,000 jobs take about a second.
 * Errors: STATUS_NOMEM. */
WARN_UNUSED enum status offline_bound_max_jobs(const struct offline_job *jobs, int n_jobs, double *out_n_jobs);

#endif
