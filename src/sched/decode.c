#include "sched/decode.h"

void decode_plan(struct plan *plan, const struct plan_state *state) {
    for (int i = 0; i < state->n_sequences && plan->n_rows < state->limits.max_rows; i++) {
        struct sequence *sequence = state->sequences[i];
        if (sequence->is_cancelled || sequence->is_paused || !sequence_is_decoding(sequence)) continue;
        plan_add(plan, sequence, sequence->n_computed, sequence->n_tokens);
        plan->n_decode_rows++;
    }
}
