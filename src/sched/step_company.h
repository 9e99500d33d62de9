/* step_company: whether one more chunk joins a step or waits for the next one.
 *
 * Joining delays those who get their first token from the step. It lets those behind go sooner, by what a step of its
 * own would take more than it adds here: the decode rows again, and what few rows cost more each. It joins where that
 * is the less waiting in all: long queues fill their steps, a short prompt beside a long one need not carry its rows.
 * Thread: any.   Memory: a plain value. */
#ifndef KVICK_SCHED_STEP_COMPANY_H
#define KVICK_SCHED_STEP_COMPANY_H

#include <stdbool.h>

#include "sched/policy.h"
#include "sched/step_cost.h"

/* Prompts by what their waiting counts (policy_weight). */
struct step_company {
    double ending;  /* they end with the step, as it is so far */
    double waiting; /* they do not */
    bool takes_all; /* by first come, first served, and in steps without a bound, whatever fits joins */
};

/* Of a step that nobody ends with yet. prompts: as policy_order has filled them. */
struct step_company step_company_begin(const struct policy *policy, bool is_unbounded,
                                       const struct policy_prompt *prompts, int n_prompts);

/* decode: the step's decode rows alone; step: as it is so far; joined: with the chunk. */
bool step_company_joins(const struct step_company *company, const struct step_cost *cost,
                        const struct step_shape *decode, const struct step_shape *step,
                        const struct step_shape *joined);

/* A prompt of that weight ends with the step now. */
void step_company_end(struct step_company *company, double weight);

#endif
