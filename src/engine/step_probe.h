/* step_probe: steps that are run only to be measured, on the engine's own scratch before it serves.
 *
 * Thread: engine, while it has no request.   Memory: a text of zeros while it measures; all blocks go back. */
#ifndef KVICK_ENGINE_STEP_PROBE_H
#define KVICK_ENGINE_STEP_PROBE_H

#include "engine/step_batch.h"
#include "model/forward.h"
#include "planner/cost_model.h"

/* All borrowed from the engine. */
struct step_probe {
    struct forward *forward;
    struct plan *plan;
    struct plan_state *state; /* no sequences */
    struct step_batch *batch;
    struct sequence *sequences; /* [max_sequences] all free */
    int max_context;
    uint32_t *tokens; /* [max_context] zeros, while it measures */
    int n_filled;     /* positions of the first sequence whose K and V are there */
};

/* Measures into model, within the engine's limits. Errors: STATUS_NOMEM. */
WARN_UNUSED enum status step_probe_measure(struct step_probe *probe, struct cost_model *model, int64_t budget_ns);

#endif
