/* replay: the requests of a trace, sent to an engine at their times. Answers do not end early: lengths are exact.
 *
 * Thread: the engine's one client.   Memory: a request's until it is home; those that others continue, until the end.
 */
#ifndef KVICK_BENCH_REPLAY_H
#define KVICK_BENCH_REPLAY_H

#include "bench/outcomes.h"
#include "engine/engine.h"

/* scale: arrivals and pauses are multiplied with it (1: as written). solo_ns: [n_requests] predicted time of each first
 * token alone, for deadlines that ask for it; NULL: none asks.
 * Errors: STATUS_NOMEM; a request that is refused is an outcome. */
WARN_UNUSED enum status replay_run(struct engine *engine, double scale, const int64_t *solo_ns,
                                   struct outcomes *outcomes, struct status_note *note);

#endif
