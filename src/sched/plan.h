/* plan: which rows of which sequences the next step computes. Decides; computes nothing, and knows no time.
 *
 * Decoding sequences get one row each (decode), what is left of the step's rows goes to prompts in order of arrival
 * (prefill).   Thread: engine.   Memory: sized at init. */
#ifndef KVICK_SCHED_PLAN_H
#define KVICK_SCHED_PLAN_H

#include "sched/sequence.h"

/* A copy that is pending in the sequence's kv_table is made before the step runs. */
struct plan_item {
    struct sequence *sequence;
    int from, to;    /* positions to compute */
    int logits_from; /* of them, those whose logits are wanted: [logits_from, to) */
    bool is_sampled; /* the last of them gets a next token */
};

struct plan {
    struct plan_item *items; /* [max_sequences] */
    int n_items, n_rows, n_logit_rows;
    int n_decode_rows;
};

struct plan_limits {
    int max_sequences;  /* known at a time */
    int max_rows;       /* of a step: the largest chunk */
    int max_logit_rows; /* of a step, >= max_sequences */
};

/* All sequences in order of arrival, and what they share. */
struct plan_state {
    struct plan_limits limits;
    struct sequence **sequences; /* [max_sequences], oldest first */
    int n_sequences;
    struct kv_groups *groups;
};

WARN_UNUSED enum status plan_init(struct plan *plan, const struct plan_limits *limits);
void plan_deinit(struct plan *plan);

/* Fills plan; sequences get the blocks of their rows here. An empty plan means nothing can be computed now. */
void plan_make(struct plan *plan, struct plan_state *state);

/* Adds rows [from, to) of a sequence; the caller has checked that they fit. */
void plan_add(struct plan *plan, struct sequence *sequence, int from, int to);

#endif
