/* engine_metrics: what an engine's stats are in /metrics: steps and work, tokens, prefix cache, KV memory, queue.
 *
 * Thread: io.   Memory: none. */
#ifndef KVICK_OBSERVE_ENGINE_METRICS_H
#define KVICK_OBSERVE_ENGINE_METRICS_H

#include "engine/engine_stats.h"
#include "observe/prom_text.h"

/* n_preparing: prompts that the engine has not answered yet. Errors: in text. */
void engine_metrics_write(struct prom_text *text, const struct engine_stats *stats, int n_preparing);

#endif
