/* slo: how many requests of each class were as fast as the operator promises.
 *
 * Thread: io.   Memory: a plain value. */
#ifndef KVICK_OBSERVE_SLO_H
#define KVICK_OBSERVE_SLO_H

#include "engine/message.h"
#include "observe/prom_text.h"

enum slo_kind { SLO_TTFT, SLO_ITL, SLO_N_KINDS };

struct slo {
    int64_t target_ns[REQUEST_N_CLASSES][SLO_N_KINDS]; /* 0: nothing is promised, nothing counted */
    uint64_t n_met[REQUEST_N_CLASSES][SLO_N_KINDS], n_missed[REQUEST_N_CLASSES][SLO_N_KINDS];
    uint64_t n_good[REQUEST_N_CLASSES], n_bad[REQUEST_N_CLASSES]; /* good: as fast in all that is promised */
};

/* A request that was run to its end: its first token, and the mean time between later ones. */
void slo_count(struct slo *slo, const struct request *request, int n_completion);

/* Samples of kvick_slo_requests_total only where something is promised. Errors: in text. */
void slo_write(const struct slo *slo, struct prom_text *text);

#endif
