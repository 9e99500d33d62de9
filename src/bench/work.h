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

/* Of all requests: what they take if nothing is lost. */
double work_sum_ns(const struct trace *trace, const struct work *work);

/* By what arrivals are multiplied so that the trace's load is reached; 1 if it asks for none. busy_ns: what the machine
 * takes for all requests when there is always something to do, as measured (on the cost model). */
double work_scale(const struct trace *trace, double busy_ns);

/* Whether work_bound says something: not with `after`, as those arrivals are not known, nor of too many requests. */
bool work_has_bound(const struct trace *trace);

/* How many requests can have their first token in time at most (offline_bound), fractions counted, on a machine whose
 * capacity is to do all of them in busy_ns: prompts get the share of its time that they have of all work.
 * *out_n_in_time: -1 without a bound.   Errors: STATUS_NOMEM.   Cost: O(n^3). */
WARN_UNUSED enum status work_bound(const struct trace *trace, const struct work *work, double scale, double busy_ns,
                                   double *out_n_in_time);

#endif
