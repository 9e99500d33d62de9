/* step_work: what the rows of a step cost, counted from shapes.   Thread: engine. */
#ifndef KVICK_ENGINE_STEP_WORK_H
#define KVICK_ENGINE_STEP_WORK_H

#include "engine/engine_state.h"

/* Adds the item's part of engine->plan: 2 FLOPs a multiply-add of products and attention; bytes read: its rows' share
 * of the weights, and its keys and values once; KV bytes written: those of its rows. */
void step_work_add(struct phase_work *work, const struct engine *engine, const struct plan_item *item);

#endif
