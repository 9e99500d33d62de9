/* pacing: how long steps take on this machine, as the scheduler is told: the cost model beside the loop.
 *
 * Thread: engine. */
#ifndef KVICK_ENGINE_PACING_H
#define KVICK_ENGINE_PACING_H

#include "engine/engine_state.h"

/* Fills the scheduler's costs: kept ones, else measured within calibrate_ns and kept, else guessed. Without bounds in
 * time (see struct engine_options) all rows cost the same. The model is loaded, nobody runs. */
void pacing_init(struct engine *engine);

/* Nobody runs and nobody waits: what must_probe asks for is measured, unless cached prefixes hold the blocks for it.
 * Whoever comes ends it; then the next idle moment tries again. */
void pacing_measure_idle(struct engine *engine);

/* Nobody runs and nobody waits: what int8 products reach at most, for those who watch (engine_stats); in the first few
 * idle moments only, of which the best counts.   Cost: 5 ms; who comes waits for that. */
void pacing_measure_peak(struct engine *engine);

/* A step that was planned with the costs took so long. */
void pacing_observe(struct engine *engine, int64_t measured_ns);

#endif
