#include "sched/commit.h"

#include <string.h>

#define ANSWERS_REMEMBERED 16

void commit_rows(const struct plan_item *item) {
    struct sequence *sequence = item->sequence;
    REQUIRE(item->from == sequence->n_computed);
    sequence->n_computed = item->to;
    if (sequence->n_done < item->to) sequence->n_done = item->to;
    kv_table_publish(&sequence->kv, (struct prefix_tokens){sequence->tokens, NULL, sequence->n_computed});
}

void commit_token(const struct plan_item *item, uint32_t token) {
    struct sequence *sequence = item->sequence;
    REQUIRE(sequence->n_tokens < sequence->max_tokens);
    sequence->tokens[sequence->n_tokens++] = token;
}

/* What forecasts assume of answers that go on. */
static void note_answer(const struct sequence *sequence, struct plan_state *state) {
    int n = sequence->n_tokens - sequence->n_prompt;
    if (n < 1 || sequence->is_cancelled) return;
    state->answer_tokens += state->answer_tokens > 0 ? (n - state->answer_tokens) / ANSWERS_REMEMBERED : n;
}

void commit_retire(struct sequence *sequence, struct plan_state *state) {
    note_answer(sequence, state);
    kv_table_publish_tail(&sequence->kv, (struct prefix_tokens){sequence->tokens, NULL, sequence->n_computed});
    kv_table_release(&sequence->kv);
    sequence->state = SEQ_FREE;
    for (int i = 0; i < state->n_sequences; i++) {
        if (state->sequences[i] != sequence) continue;
        memmove(&state->sequences[i], &state->sequences[i + 1],
                (size_t)(state->n_sequences - i - 1) * sizeof *state->sequences);
        state->n_sequences--;
        return;
    }
    BUG("sequence %llu is not among those known", (unsigned long long)sequence->request_id);
}
