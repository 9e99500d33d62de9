/* commit: makes a step's results part of its sequences: KV is there, full blocks can be found, tokens are appended. */
#ifndef KVICK_SCHED_COMMIT_H
#define KVICK_SCHED_COMMIT_H

#include "sched/plan.h"

/* The rows of the item have been computed. Publishes blocks that became full, except those of a cancelled sequence's
 * unfinished rows (there are none: rows of a step are all computed or the step is abandoned). */
void commit_rows(const struct plan_item *item);

/* The next token of the item's sequence. */
void commit_token(const struct plan_item *item, uint32_t token);

/* The sequence leaves: blocks go back to the pool, where findable ones stay as cache, and the slot becomes free. */
void commit_retire(struct sequence *sequence, struct plan_state *state);

#endif
