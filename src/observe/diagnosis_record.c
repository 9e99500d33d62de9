#include "observe/diagnosis_record.h"

#include <string.h>

struct diagnosis_record diagnosis_record_of(const struct request_record *record, enum admission_reason refusal,
                                            const char *key) {
    const struct request *request = record->request;
    const struct phase_stats *stats = &request->stats;
    int64_t received_ns = stats->received_ns ? stats->received_ns : stats->submitted_ns;
    struct diagnosis_record out = {.was_run = stats->first_token_ns > 0,
                                   .refusal = refusal,
                                   .class_ = request->class_,
                                   .key = key,
                                   .n_prompt = request->n_prompt,
                                   .n_cached = stats->n_cached_tokens,
                                   .n_output = record->n_completion,
                                   .n_choices = request->n_choices};
    memcpy(out.part_ns, stats->part_ns, sizeof out.part_ns);
    if (stats->first_token_ns) out.ttft_ns = stats->first_token_ns - received_ns;
    if (stats->predicted_ns) out.promised_ns = stats->predicted_ns - received_ns;
    return out;
}

bool diagnosis_record_is_before(enum phase phase) {
    return phase != PHASE_DECODE && phase != PHASE_BLOCKED;
}
