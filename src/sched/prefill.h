/* prefill: gives prompts what decode left of the step, in the order of policy, and starts waiting sequences.
 *
 * The chunk of a prompt is the largest whose predicted step stays within plan->limit_ns. If not even a row fits, the
 * first prompt gets one all the same.
 * Blocks are taken chunk by chunk, but a sequence starts only when every group has all that it and those that run may
 * still take, so nothing that runs is ever short of one.
 * While one waits for blocks, PREFILL_MAX_BYPASS sequences behind it may start, then no more until it has started. */
#ifndef KVICK_SCHED_PREFILL_H
#define KVICK_SCHED_PREFILL_H

#include "sched/plan.h"

#define PREFILL_MAX_BYPASS 8

void prefill_plan(struct plan *plan, struct plan_state *state, int64_t now_ns);

/* The first position whose logits the prompt needs: for sampling its last one at least. n_prompt if none. */
int prefill_logits_from(const struct sequence *sequence);

#endif
