/* prefill: gives prompts the rows that decode left, oldest first, and starts waiting sequences.
 *
 * A sequence starts only when the pool has all blocks that it can ever need, so nothing that runs is ever short of one.
 */
#ifndef KVICK_SCHED_PREFILL_H
#define KVICK_SCHED_PREFILL_H

#include "sched/plan.h"

void prefill_plan(struct plan *plan, struct plan_state *state);

#endif
