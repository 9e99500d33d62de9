/* diagnosis_record: what diagnosis is told of a request that came home: plain numbers, live or read from a log.
 *
 * Thread: any. */
#ifndef KVICK_OBSERVE_DIAGNOSIS_RECORD_H
#define KVICK_OBSERVE_DIAGNOSIS_RECORD_H

#include "observe/request_metrics.h"

struct diagnosis_record {
    bool was_run;                  /* it had a first token; else of all below only refusal and key count */
    enum admission_reason refusal; /* ADMISSION_ADMITTED: it was not refused */
    enum request_class class_;
    const char *key; /* its name; NULL: none */
    int n_prompt, n_cached, n_output, n_choices;
    int64_t part_ns[N_PHASES];
    int64_t ttft_ns;     /* from its first byte */
    int64_t promised_ns; /* likewise, as told at admission; 0: nothing was told */
};

/* key: borrowed. */
struct diagnosis_record diagnosis_record_of(const struct request_record *record, enum admission_reason refusal,
                                            const char *key);

/* The phase lies before the first token, and so is a part of TTFT. PREEMPTED may lie on both sides. */
bool diagnosis_record_is_before(enum phase phase);

#endif
