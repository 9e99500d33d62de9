/* prefill: gives prompts what decode left of the step, in the order of policy, and starts waiting sequences.
 *
 * The chunk of a prompt is the largest whose predicted step stays within plan->limit_ns. If not even a row fits, the
 * first prompt gets one all the same.
 * Blocks are taken chunk by chunk; room says who may start and how far a chunk may go. Who needs a block that this step
 * computes for another passes (single_flight).
 * While one waits for blocks, PREFILL_MAX_BYPASS sequences behind it may start, then no more until it has started. */
#ifndef KVICK_SCHED_PREFILL_H
#define KVICK_SCHED_PREFILL_H

#include "sched/plan.h"

#define PREFILL_MAX_BYPASS 8

/* A sequence begins as another answer to lead's prompt, which has been computed, beside lead: shares its blocks and has
 * a copy pending. If there is no room for it now it waits, and will be started like one that lost its blocks.
 * sequence: its tokens and its table, which is empty, are set; it is added to the state. */
void prefill_fork(struct sequence *sequence, struct sequence *lead, struct plan_state *state);

void prefill_plan(struct plan *plan, struct plan_state *state, int64_t now_ns);

/* The first position whose logits the prompt needs: for sampling its last one at least. n_prompt if none. */
int prefill_logits_from(const struct sequence *sequence);

#endif
