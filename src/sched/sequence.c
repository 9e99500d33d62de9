#include "sched/sequence.h"

int sequence_max_computed(const struct sequence *sequence) {
    int n = sequence->max_tokens - 1;
    return n > sequence->n_prompt ? n : sequence->n_prompt;
}

int sequence_n_pending(const struct sequence *sequence) {
    return sequence->n_tokens - sequence->n_computed;
}

bool sequence_is_decoding(const struct sequence *sequence) {
    return sequence->state == SEQ_RUNNING && sequence->n_tokens > sequence->n_prompt &&
           sequence_n_pending(sequence) == 1;
}
