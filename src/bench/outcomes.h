/* outcomes: what became of each request of a trace, on a machine (replay) or on a cost model (simulate).
 *
 * Times are nanoseconds since the run's start.   Thread: the run's.   Memory: all at init, from the trace's lengths. */
#ifndef KVICK_BENCH_OUTCOMES_H
#define KVICK_BENCH_OUTCOMES_H

#include <jansson.h>

#include "bench/trace.h"
#include "engine/phase_stats.h"
#include "sched/admission.h"

enum outcome_kind {
    OUTCOME_SKIPPED, /* what it continues was refused or cancelled */
    OUTCOME_FINISHED,
    OUTCOME_REFUSED,
    OUTCOME_CANCELLED
};

struct outcome {
    enum outcome_kind kind;
    int64_t arrival_ns;   /* when it was due */
    int64_t submitted_ns; /* when it was sent */
    int64_t *token_ns;    /* [n_output] when each token was seen */
    int n_tokens;
    int64_t finished_ns;
    int64_t deadline_ns;           /* of the first token, since the start; -1: none */
    int64_t predicted_ns;          /* TTFT as told at admission; -1: nothing was told */
    enum admission_reason refusal; /* if refused by admission */
    int64_t retry_after_ns;        /* if refused; 0: never */
    int n_prompt, n_cached;
    bool has_phases;
    struct phase_stats phases;        /* as the engine stamped them, on its own clock */
    char note[STATUS_NOTE_MAX_BYTES]; /* why it was refused */
};

/* What the run as a whole cost. Negative: not known. */
struct outcomes_totals {
    double wall_ms;
    double stolen_ms, waited_ms;  /* time that the host, and other processes, took from our threads */
    double outside_forward_share; /* of the steps' time */
    double kv_waste_share;        /* unused slots of held blocks, averaged over steps */
    double kv_contiguous_waste_share;
    int64_t n_steps, n_preemptions;
};

struct outcomes {
    const struct trace *trace;
    struct outcome *of; /* [trace->n_requests] */
    struct outcomes_totals totals;
};

WARN_UNUSED enum status outcomes_init(struct outcomes *outcomes, const struct trace *trace);
void outcomes_deinit(struct outcomes *outcomes);

/* {"summary": of all, "labels": {label: of those}, "requests": [...]}: docs/formats/trace.md. NULL: no memory.
 * with_requests: also what became of each. */
json_t *outcomes_json(const struct outcomes *outcomes, bool with_requests);

#endif
