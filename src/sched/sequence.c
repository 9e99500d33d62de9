#include "sched/sequence.h"

int sequence_max_computed(const struct sequence *sequence) {
    int n = sequence->max_tokens - 1;
    return n > sequence->n_prompt ? n : sequence->n_prompt;
}

int sequence_n_pending(const struct sequence *sequence) {
    return sequence->n_tokens - sequence->n_computed;
}

/* The first prompt position whose outputs are wanted and have not been made; n_prompt if none. */
static int wanted_from_of(const struct sequence *sequence) {
    int from = sequence->n_prompt - sequence->n_hidden;
    if (from > sequence->logits_from) from = sequence->logits_from;
    if (from < sequence->n_done) from = sequence->n_done;
    return from < sequence->n_prompt ? from : sequence->n_prompt;
}

int sequence_n_reusable(const struct sequence *sequence) {
    int n = sequence->n_tokens - 1, wanted_from = wanted_from_of(sequence);
    return wanted_from < sequence->n_prompt && wanted_from < n ? wanted_from : n;
}

bool sequence_is_decoding(const struct sequence *sequence) {
    return sequence->state == SEQ_RUNNING && sequence->n_tokens > sequence->n_prompt &&
           sequence_n_pending(sequence) == 1;
}
