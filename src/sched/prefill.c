#include "sched/prefill.h"

/* Blocks of a group that a sequence may still take. */
static int n_to_come(const struct sequence *sequence, const struct plan_state *state, int group) {
    int n_peak = kv_groups_n_peak(state->groups, group, sequence_max_computed(sequence), state->limits.max_rows);
    int n = n_peak - kv_table_n_held(&sequence->kv, group);
    return n > 0 ? n : 0;
}

/* Every group has the blocks that the sequence, and all that run, may still take. */
static bool has_room(const struct sequence *sequence, const struct plan_state *state) {
    for (int g = 0; g < state->groups->n_groups; g++) {
        int n_needed = n_to_come(sequence, state, g);
        for (int i = 0; i < state->n_sequences; i++)
            if (state->sequences[i]->state == SEQ_RUNNING) n_needed += n_to_come(state->sequences[i], state, g);
        if (n_needed > block_pool_n_available(&state->groups->groups[g].pool)) return false;
    }
    return true;
}

/* Takes the longest known prefix; at least one token of the prompt and all rows with wanted logits are left to be run.
 * False if there is no room now; nothing has changed then. */
static bool try_start(struct sequence *sequence, struct plan_state *state) {
    int n_usable = sequence->n_prompt - 1;
    struct kv_found found;
    if (sequence->logits_from < n_usable) n_usable = sequence->logits_from;
    kv_table_find(&sequence->kv, (struct prefix_tokens){sequence->tokens, NULL, n_usable}, 0, &found);
    bool is_startable = has_room(sequence, state);
    if (!is_startable && sequence->kv.has_copy) {
        /* Holding the source may be what keeps the pool short: without it every sequence can start some day. */
        kv_table_end_copy(&sequence->kv);
        found.n_tokens = sequence->kv.n_published * state->groups->block_tokens;
        is_startable = has_room(sequence, state);
    }
    if (!is_startable) {
        kv_table_release(&sequence->kv);
        return false;
    }
    sequence->n_computed = sequence->n_cached_tokens = found.n_tokens;
    sequence->state = SEQ_RUNNING;
    return true;
}

void prefill_plan(struct plan *plan, struct plan_state *state) {
    for (int i = 0; i < state->n_sequences; i++) {
        struct sequence *sequence = state->sequences[i];
        int n_rows_left = state->limits.max_rows - plan->n_rows;
        int n_logits_left = state->limits.max_logit_rows - plan->n_logit_rows;
        if (n_rows_left <= 0 || n_logits_left <= 0) return;
        if (sequence->is_cancelled || sequence_is_decoding(sequence)) continue;
        /* No one overtakes a sequence that waits for blocks: it would starve. */
        if (sequence->state == SEQ_WAITING && !try_start(sequence, state)) return;
        int from = sequence->n_computed, to = sequence->n_prompt;
        if (to - from > n_rows_left) to = from + n_rows_left;
        int logits_from = sequence->logits_from > from ? sequence->logits_from : from;
        if (to - logits_from > n_logits_left) to = logits_from + n_logits_left;
        kv_table_trim(&sequence->kv, from);
        if (kv_table_grow(&sequence->kv, to)) BUG("a block that was reserved is not there");
        plan_add(plan, sequence, from, to);
    }
}
