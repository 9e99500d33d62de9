/* decode: gives every decoding sequence its row of the step, or if rows are short those that had theirs longest ago.
 *
 * Slots are given by room; who has none passes. */
#ifndef KVICK_SCHED_DECODE_H
#define KVICK_SCHED_DECODE_H

#include "sched/plan.h"

/* may_yield: batch answers pass while interactive prompts wait. */
void decode_plan(struct plan *plan, const struct plan_state *state, bool may_yield);

#endif
