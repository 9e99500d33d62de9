/* plan: which rows of which sequences the next step computes. Decides; computes nothing, and reads no clock.
 *
 * Decoding sequences get one row each (decode), and what is left of the step's time, L of step_bound, goes to prompts
 * in the order of policy (prefill), as far as they are not better off in a later one (step_company). If rows are short,
 * those that decoded longest ago come first, and while a prompt waits a quarter of the rows is kept for prompts. A
 * step's predicted time exceeds L only if not even one prompt row fits, and then by that row.
 *
 * Thread: engine.   Memory: sized at init. */
#ifndef KVICK_SCHED_PLAN_H
#define KVICK_SCHED_PLAN_H

#include "sched/policy.h"
#include "sched/sequence.h"
#include "sched/step_bound.h"

struct plan_item {
    struct sequence *sequence;
    int from, to;    /* positions to compute */
    int logits_from; /* of them, those whose logits are wanted: [logits_from, to) */
    int n_again;     /* of them, from the first on: computed before the sequence was preempted */
    bool is_sampled; /* the last of them gets a next token */
};

struct plan {
    struct plan_item *items; /* [max_sequences] */
    int n_items, n_rows, n_logit_rows;
    int n_decode_rows;
    struct step_shape shape; /* of the items */
    int64_t limit_ns;        /* L */
    int64_t predicted_ns;    /* by the cost model */
    /* Scratch. */
    struct sequence **candidates;  /* [max_sequences] of decode, or those behind prompts */
    struct policy_prompt *prompts; /* [max_sequences] */
    int *order;                    /* [max_sequences] */
};

struct plan_limits {
    int max_sequences;    /* known at a time */
    int max_rows;         /* of a step */
    int max_logit_rows;   /* of a step, >= max_sequences */
    int max_prefill_rows; /* of a step, 1 .. max_rows: the largest chunk */
    struct step_limits step;
};

/* All sequences in order of arrival, and what they share. */
struct plan_state {
    struct plan_limits limits;
    struct sequence **sequences; /* [max_sequences], oldest first */
    int n_sequences;
    struct kv_groups *groups;
    struct step_cost cost;
    struct policy policy;
    uint64_t n_steps;     /* planned */
    double answer_tokens; /* of late, a decaying mean over answers that ended; 0: none yet */
    double decode_rows;   /* of late, a decaying mean over time of those that decode */
    int64_t last_plan_ns;
    int64_t last_interactive_ns; /* the last plan that knew of interactive work */
    enum step_urgency urgency;   /* of the last plan */
    int64_t n_preempted;
};

WARN_UNUSED enum status plan_init(struct plan *plan, const struct plan_limits *limits);
void plan_deinit(struct plan *plan);

/* Fills plan; sequences get the blocks of their rows here. Copies that are then pending in any sequence's kv_table must
 * be made before the step runs, also for sequences without rows. An empty plan means nothing can be computed now.
 * now_ns: of the clock of all terms. */
void plan_make(struct plan *plan, struct plan_state *state, int64_t now_ns);

/* Whether somebody interactive is there. */
bool plan_has_interactive(const struct plan_state *state);

/* Whether somebody interactive waits for a first token, and may have it. */
bool plan_has_interactive_prompt(const struct plan_state *state);

/* Adds rows [from, to) of a sequence; the caller has checked that they fit. */
void plan_add(struct plan *plan, struct sequence *sequence, int from, int to);

#endif
