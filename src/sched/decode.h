/* decode: gives every decoding sequence its row of the step, or if rows are short those that had theirs longest ago.
 *
 * What a sequence may take was counted when it started, so none fails. */
#ifndef KVICK_SCHED_DECODE_H
#define KVICK_SCHED_DECODE_H

#include "sched/plan.h"

void decode_plan(struct plan *plan, const struct plan_state *state);

#endif
