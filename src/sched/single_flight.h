/* single_flight: nobody computes a block that another sequence is computing.
 *
 * Two sequences with the same salt that have come to the same block of the tree and have equal tokens in the next one
 * need not both run it. Whoever of them comes first in policy's order does; the others pass until it is published, and
 * take it over before their next chunk. Nobody is bound to an owner: if it goes, the next in order continues from the
 * last published block, and one that is not planned holds nobody up.   Thread: engine. */
#ifndef KVICK_SCHED_SINGLE_FLIGHT_H
#define KVICK_SCHED_SINGLE_FLIGHT_H

#include "sched/plan.h"

/* The sequence's next block is in the plan already. */
bool single_flight_is_planned(const struct plan *plan, const struct sequence *sequence);

/* Of those that run, the one that is farther with the sequence's next block, or as far and came before; NULL if none.
 * For policy: it lends that one its place. */
struct sequence *single_flight_owner(const struct plan_state *state, const struct sequence *sequence);

#endif
