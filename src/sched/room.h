/* room: blocks for those that run: who may start, and who gives way when a pool runs out.
 *
 * A sequence starts when every group has the blocks for all tokens that it knows and one block more, not counting what
 * those that run will take for theirs. Answers grow beyond that; when a block is missing, the last in rank of those
 * that run is preempted: it gives all blocks back, waits, and is computed anew, where its published blocks are found as
 * long as nobody took them. Rank: interactive before batch, then order of arrival. Only who ranks behind gives way; who
 * is last itself waits with what it has. So the first in rank always gets its slot (all others give way, and what is
 * admitted fits a pool alone), it ends, and in the end everybody does.
 * A waiting interactive prompt takes the blocks of running batch sequences too, last ones first, if that makes room for
 * it; who has been interrupted ROOM_MAX_INTERRUPTS times is left alone, so that batch work ends.   Thread: engine. */
#ifndef KVICK_SCHED_ROOM_H
#define KVICK_SCHED_ROOM_H

#include "sched/plan.h"

#define ROOM_MAX_INTERRUPTS 4

/* Before a step is planned: prompts take over what others have published meanwhile, and every running sequence gets the
 * slot of its next row, or is preempted, or has to pass. */
void room_make(struct plan_state *state);

/* Starts a waiting sequence with the longest known prefix. False if there is no room now; nothing has changed then. */
bool room_start(struct sequence *sequence, struct plan_state *state);

/* Slots for positions < n_tokens as far as they are to be had without preempting. Returns how many positions have one,
 * at most n_tokens. */
int room_grow(struct sequence *sequence, int n_tokens);

/* What the sequences hold of a group. A shared block counts in n_refs once for each of them; slots that are held and
 * not filled are in blocks of one sequence only, so n_unused_slots / (held blocks * block_tokens) is the pool's waste.
 */
struct room_usage {
    int64_t n_refs, n_unused_slots;
};

struct room_usage room_usage_of(const struct plan_state *state, int group);

/* Who gives way to a running sequence, or NULL: of those behind it in rank the last. Cancelled ones come first. */
struct sequence *room_victim(const struct plan_state *state, const struct sequence *needy);

#endif
