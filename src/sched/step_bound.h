/* step_bound: how long a step may take (L), and what that leaves for prompts.
 *
 * With somebody decoding: L = max(target_itl_ns, 1.5 x a step of the decode rows alone), so prompts get a third of the
 * time or more. With nobody decoding: L = max(max_step_ns, 2 x a step of one row). While no interactive prompt waits,
 * target_itl_ns and max_step_ns count half: the next one will wait for the end of a step of batch work. With nothing
 * but batch work for a while: L = max(batch_step_ns, 20 x a step of one row), as long steps waste less. Thread: any.
 * Memory: plain values. */
#ifndef KVICK_SCHED_STEP_BOUND_H
#define KVICK_SCHED_STEP_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/step_cost.h"

#define STEP_BOUND_BATCH_STEPS 5 /* batch_step_ns, in max_step_ns */

struct step_limits {
    bool is_unbounded; /* no L at all: a prompt is run in as few steps as rows allow */
    int64_t target_itl_ns, max_step_ns, batch_step_ns;
};

/* Whom the step is for: an interactive prompt; none just now; nobody but batch work, for a while. */
enum step_urgency { STEP_PROMPT, STEP_READY, STEP_RELAXED };

/* decode: the decode rows of the step. */
int64_t step_bound_ns(const struct step_cost *cost, const struct step_limits *limits, const struct step_shape *decode,
                      enum step_urgency urgency);

/* How fast prompts advance beside given decode rows; good for comparing prompts, not exact to a step. */
struct step_pace {
    int64_t limit_ns;  /* L; of an unbounded step the time that max_rows rows take */
    int64_t decode_ns; /* the part of it that the decode rows take */
    double row_ns;     /* work of one prompt row, without its keys */
    double key_ns;     /* work per key that it sees */
    double stretch;    /* wall time per work */
};

/* max_rows: prompt rows of a step at most, >= 1. */
struct step_pace step_bound_pace(const struct step_cost *cost, const struct step_limits *limits,
                                 const struct step_shape *decode, enum step_urgency urgency, int max_rows);

/* Work left of a prompt with rows [from, to) to run. */
int64_t step_bound_work_ns(const struct step_cost *cost, const struct step_pace *pace, int from, int to);

#endif
