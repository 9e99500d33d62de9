/* simulate: the requests of a trace through the scheduler's own code, on a cost model and a clock that only it moves.
 *
 * The same admission, plan, policy, blocks and prefixes as in the engine; a step takes what the cost model says, tokens
 * are made up. Hours of trace take seconds.   Thread: any.   Memory: all at the start. */
#ifndef KVICK_BENCH_SIMULATE_H
#define KVICK_BENCH_SIMULATE_H

#include "bench/outcomes.h"
#include "sched/admission.h"

struct simulate_options {
    struct step_cost cost;
    struct step_limits step;
    enum policy_kind policy;
    struct admission_limits admission; /* max_context is that of below */
    int max_chunk, block_tokens, max_context, max_sequences, kv_tokens, n_vocab;
    bool has_prefix_cache;
    int64_t step_overhead_ns; /* of a step beside its forward */
};

/* scale, solo_ns: as replay_run. Errors: STATUS_NOMEM; STATUS_LIMIT if the scheduler stops with work left. */
WARN_UNUSED enum status simulate_run(const struct simulate_options *options, double scale, const int64_t *solo_ns,
                                     struct outcomes *outcomes, struct status_note *note);

#endif
