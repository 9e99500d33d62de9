/* work: what the requests of a trace cost by a cost model, and how many of them could be served in time at best.
 *
 * Thread: any.   Memory: scratch during a call. */
#ifndef KVICK_BENCH_WORK_H
#define KVICK_BENCH_WORK_H

#include "bench/trace.h"
#include "sched/step_cost.h"

#define WORK_STREAMS 8      /* answers decoded at a time, for the share of a step that one token costs */
#define WORK_MAX_BOUND 1000 /* requests of which work_bound says something */

struct work {
    int64_t solo_ns;    /* of the first token on an idle machine, shared and earlier tokens cached */
    int64_t prefill_ns; /* the same as work */
    int64_t decode_ns;  /* work of the answer's tokens after the first */
};

/* out: [n_requests]. max_chunk: rows of a step at most. */
void work_of_trace(const struct trace *trace, const struct step_cost *cost, int max_chunk, bool has_cache,
                   struct work *out);

/* By what arrivals are multiplied so that the trace's load is reached; 1 if it asks for none. */
double work_scale(const struct trace *trace, const struct work *work);

/* How many requests can have their first token in time at most (offline_bound), fractions counted, on a machine that
 * does the given work. As answers are decoded meanwhile, prompts get the share of its time that they have of all work.
 * *out_n_in_time: -1 with `after` among them, as their arrival is not known, or with more than WORK_MAX_BOUND requests.
 * Errors: STATUS_NOMEM.   Cost: O(n^3). */
WARN_UNUSED enum status work_bound(const struct trace *trace, const struct work *work, double scale,
                                   double *out_n_in_time);

#endif
