#include "sched/decode.h"

#define BATCH_DECODE_STEPS 8
#define PROMPT_ROWS_DIVISOR 4 /* while prompts wait, one row of so many is kept for them */

/* Rows that decode may take: over PROMPT_ROWS_DIVISOR steps max_rows in all are kept for prompts, but the only row of
 * a step is not. */
static int max_decode_rows(const struct plan_state *state, bool has_prompts) {
    uint64_t max_rows = (uint64_t)state->limits.max_rows, step = state->n_steps;
    if (!has_prompts) return (int)max_rows;
    uint64_t n_kept = (step + 1) * max_rows / PROMPT_ROWS_DIVISOR - step * max_rows / PROMPT_ROWS_DIVISOR;
    return (int)(n_kept < max_rows ? max_rows - n_kept : 1);
}

/* While interactive prompts wait, batch answers advance only every BATCH_DECODE_STEPS steps: their rows cost time that
 * is waited for. */
static bool batch_yields(const struct plan_state *state) {
    bool may_yield = state->policy.kind != POLICY_FCFS && state->n_steps % BATCH_DECODE_STEPS != 0;
    return may_yield && plan_has_interactive_prompt(state);
}

/* Those that decoded longest ago come to the front. */
static void sort_by_last_step(struct sequence **candidates, int n_candidates) {
    for (int i = 1; i < n_candidates; i++) {
        struct sequence *moving = candidates[i];
        int at = i;
        for (; at > 0 && moving->last_decode_step < candidates[at - 1]->last_decode_step; at--)
            candidates[at] = candidates[at - 1];
        candidates[at] = moving;
    }
}

void decode_plan(struct plan *plan, const struct plan_state *state, bool may_yield) {
    int n_candidates = 0;
    bool has_prompts = false, yields = may_yield && batch_yields(state);
    for (int i = 0; i < state->n_sequences; i++) {
        struct sequence *sequence = state->sequences[i];
        if (sequence->is_cancelled || sequence->is_paused) continue;
        if (yields && sequence_is_decoding(sequence) && sequence->terms.service_class == TERMS_BATCH) continue;
        bool has_slot = kv_table_n_missing(&sequence->kv, sequence->n_computed + 1) == 0;
        if (sequence_is_decoding(sequence) && !has_slot) continue; /* waits for those before it in rank */
        if (sequence_is_decoding(sequence))
            plan->candidates[n_candidates++] = sequence;
        else
            has_prompts = true;
    }
    int n_rows = max_decode_rows(state, has_prompts);
    if (n_candidates > n_rows)
        sort_by_last_step(plan->candidates, n_candidates);
    else
        n_rows = n_candidates;
    for (int i = 0; i < n_rows; i++) {
        struct sequence *sequence = plan->candidates[i];
        plan_add(plan, sequence, sequence->n_computed, sequence->n_tokens);
        step_cost_add_decode(&state->cost, &plan->shape, sequence->n_computed);
        sequence->last_decode_step = state->n_steps;
        plan->n_decode_rows++;
    }
}
