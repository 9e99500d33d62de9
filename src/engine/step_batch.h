/* step_batch: lays a plan out as the arrays of a model_batch.   Thread: engine.   Memory: sized at init. */
#ifndef KVICK_ENGINE_STEP_BATCH_H
#define KVICK_ENGINE_STEP_BATCH_H

#include "model/model_batch.h"
#include "sched/plan.h"

struct step_batch {
    uint32_t *tokens; /* [max_rows] */
    uint32_t *slots[KV_LAYERS_MAX_GROUPS];
    int32_t *positions;                /* [max_rows] */
    int32_t *logit_rows, *hidden_rows; /* [max_rows] */
    struct batch_sequence *sequences;  /* [max_sequences] */
};

WARN_UNUSED enum status step_batch_init(struct step_batch *step, const struct plan_limits *limits, int n_groups);
void step_batch_deinit(struct step_batch *step);

/* The result points into step and is valid until the next call. */
struct model_batch step_batch_build(struct step_batch *step, const struct plan *plan, const struct kv_groups *groups);

#endif
