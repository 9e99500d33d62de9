/* prefill: gives prompts the rows that decode left, oldest first, and starts waiting sequences.
 *
 * Blocks are taken chunk by chunk, but a sequence starts only when every group has all that it and those that run may
 * still take, so nothing that runs is ever short of one.
 */
#ifndef KVICK_SCHED_PREFILL_H
#define KVICK_SCHED_PREFILL_H

#include "sched/plan.h"

void prefill_plan(struct plan *plan, struct plan_state *state);

#endif
