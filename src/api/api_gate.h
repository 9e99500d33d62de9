/* api_gate: what a call passes between its text and the engine: the guardrail (pre_hook), then the application cache
 * (app_cache). Without either the worker hands it straight to the engine.
 *
 * The call is nobody else's meanwhile. Thread: io. */
#ifndef KVICK_API_API_GATE_H
#define KVICK_API_API_GATE_H

#include "api/api_call.h"

/* Whether a call has to stop here. Thread: any. */
bool api_gate_wants(const struct api_call *call);

/* Its prompts have ids. */
void api_gate_enter(struct api_call *call);

/* The guardrail lets it pass; the cache has nothing for it. */
void api_gate_after_hook(struct api_call *call);
void api_gate_after_cache(struct api_call *call);

/* It ends here: refused with its fault, or answered by the cache. */
void api_gate_end(struct api_call *call);

#endif
