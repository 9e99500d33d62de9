/* harvest: what a step gave goes to its requests: logits, log-probabilities, hidden states, tokens.
 *
 * Tokens are picked by all workers at once, each from its own row.   Thread: engine. */
#ifndef KVICK_ENGINE_HARVEST_H
#define KVICK_ENGINE_HARVEST_H

#include "engine/engine_state.h"

/* engine->plan has been computed as batch, its logits are in engine->logits; the last layer was done at now_ns.
 * Commits all rows, appends and tells the tokens, finishes what is done. */
void harvest_step(struct engine *engine, const struct model_batch *batch, int64_t now_ns);

#endif
