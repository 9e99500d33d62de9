/* phase_metrics: where the time of requests went, in buckets fine enough for tokens of a millisecond.
 *
 * Thread: io.   Memory: a plain value. */
#ifndef KVICK_OBSERVE_PHASE_METRICS_H
#define KVICK_OBSERVE_PHASE_METRICS_H

#include "engine/message.h"
#include "observe/prom_text.h"

enum phase_metrics_direction { PHASE_METRICS_EARLY, PHASE_METRICS_LATE, PHASE_METRICS_N_DIRECTIONS };

struct phase_metrics {
    struct histogram phases[N_PHASES], unaccounted;
    struct histogram ttft[REQUEST_N_CLASSES], inter_token[REQUEST_N_CLASSES];
    struct histogram errors[REQUEST_N_CLASSES][PHASE_METRICS_N_DIRECTIONS]; /* of what was told at admission */
};

void phase_metrics_init(struct phase_metrics *metrics);

/* A request that the engine ran is home, however it ended. */
void phase_metrics_finish(struct phase_metrics *metrics, const struct request *request);

void phase_metrics_gap(struct phase_metrics *metrics, enum request_class class_, int64_t gap_ns);

/* decode_lost_ns: of answers, to prompt rows in their steps, as the engine counts it. Errors: in text. */
void phase_metrics_write(const struct phase_metrics *metrics, int64_t decode_lost_ns, struct prom_text *text);

#endif
