/* cost_setup: the cost model that belongs to an engine's options, from disk if it was measured before.
 *
 * Thread: any.   Memory: none. */
#ifndef KVICK_ENGINE_COST_SETUP_H
#define KVICK_ENGINE_COST_SETUP_H

#include "engine/engine.h"
#include "planner/cost_model.h"

/* A guess, replaced by a measurement that is kept in options->cost_dir. */
void cost_setup_init(struct cost_model *model, const struct engine_options *options, const struct model_config *config,
                     const struct kernel_table *kernels, size_t weight_bytes);

#endif
