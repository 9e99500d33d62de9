/* policy: in which order prompts get what a step has left for them.
 *
 * POLICY_PROMISES, in this order:
 *   1. interactive sequences that had a token already and must be computed anew (preempted), those of batch work are
 *      the first of their class;
 *   2. interactive before batch, except that batch gets BATCH_SHARE of the work while both wait, and what it did
 *      between counts;
 *   3. in a class: overdue prompts, oldest first. A prompt is overdue patience + 4 x promised time after its arrival;
 *   4. urgent ones, earliest due first. Due is the deadline, or without one promise plus slack. As long as
 *      all prompts with promises can be served by their dues in that order, none is urgent; one that can no longer be
 *      on time is not urgent either, so that it does not make others late, nor one of 7. Batch promises are not
 *      reservations;
 *   5. the rest by weighted fair queueing over tenants, shortest remaining prefill first within one: ascending
 *      (work the tenant received beyond the others + its work up to this prompt) / its weight. Between tenants with one
 *      prompt each that is shortest first; who sends more waits behind its own work;
 *   6. those that admission holds back for the sake of promises made before, in the same order;
 *   7. those of tenants that send far more than their share and have several waiting, while they have received more
 *      than another that waits.
 * Who waits for another prompt's blocks lends it its place. A batch prompt that is about to miss its promise, and may
 * yet keep it, passes interactive ones of 5 to 7 that have more left than it.
 * Nobody starves: an overdue prompt waits for older ones of its class only, at most max_sequences of them, with at
 * least a quarter (batch: BATCH_SHARE of a quarter) of the time.
 * POLICY_FCFS: by arrival, nothing else; for comparison.
 * Thread: the scheduler's.   Memory: a plain value; copies are independent. */
#ifndef KVICK_SCHED_POLICY_H
#define KVICK_SCHED_POLICY_H

#include <stdbool.h>

#include "sched/step_bound.h"
#include "sched/terms.h"

#define POLICY_BATCH_SHARE 0.05
#define POLICY_CREDIT_NS 1e9 /* work that a tenant which paused may be ahead of the others */
#define POLICY_INTERACTIVE_PATIENCE_NS INT64_C(60000000000)
#define POLICY_BATCH_PATIENCE_NS INT64_C(600000000000)

enum policy_kind { POLICY_PROMISES, POLICY_FCFS };

struct policy {
    enum policy_kind kind;
    uint64_t ids[TERMS_MAX_TENANTS];
    bool is_known[TERMS_MAX_TENANTS];   /* ids is set */
    double weights[TERMS_MAX_TENANTS];  /* > 0 */
    double received[TERMS_MAX_TENANTS]; /* work / weight; at the end of a pause no less than start - credit */
    bool is_waiting[TERMS_MAX_TENANTS]; /* has a prompt */
    bool is_heavy[TERMS_MAX_TENANTS];   /* sends far more than its share, says admission */
    double start;                       /* least received of those that wait */
    double batch_credit_ns;             /* work that batch may do ahead of interactive */
    bool has_class[TERMS_N_CLASSES];    /* some prompt of it waits */
};

/* A prompt, or rest of one, as policy sees it. */
struct policy_prompt {
    const struct terms *terms; /* borrowed */
    int64_t work_ns;           /* predicted, what is left of it */
    bool is_resumed;           /* had a token already */
    int owner;                 /* the prompt whose blocks it waits for; -1: none */
    /* Filled by policy_order: */
    int level;
    double key;
    bool is_yielding; /* its tenant is heavy and gives way to another's prompt */
    bool is_keepable; /* has a promise that can still be kept */
};

/* All weights 1. */
void policy_init(struct policy *policy, enum policy_kind kind);

/* The slot of a tenant. A new one takes that of an idle tenant, in_use says which slots sequences have; if all do, it
 * shares one.   weight > 0 replaces the one before. */
int policy_tenant(struct policy *policy, uint64_t id, double weight, const bool in_use[TERMS_MAX_TENANTS]);

/* When a promise becomes late: who asked for a deadline is promised that. INT64_MAX if none was made. */
int64_t policy_due_ns(const struct terms *terms);

/* Must see all prompts before each policy_order: tenants that return start a little ahead of the others. */
void policy_refresh(struct policy *policy, const struct policy_prompt *prompts, int n_prompts);

/* Fills order[n_prompts] with indices, first to be served first.   Cost: three insertion sorts. */
void policy_order(const struct policy *policy, struct policy_prompt *prompts, int n_prompts, int64_t now_ns,
                  const struct step_pace *pace, int *order);

/* What its waiting counts beside that of others, once policy_order has filled it: little if others go first anyway. */
double policy_weight(const struct policy_prompt *prompt);

/* So much work is done for a prompt with these terms. */
void policy_charge(struct policy *policy, const struct terms *terms, int64_t work_ns);

#endif
