#include "sched/commit.h"

#include <string.h>

#define ANSWERS_REMEMBERED 16

static void publish_full_blocks(struct sequence *sequence, struct plan_state *state) {
    struct prefix_tokens tokens = {sequence->tokens, NULL, sequence->n_computed};
    while ((sequence->n_published + 1) * state->block_tokens <= sequence->n_computed) {
        block_id *block = &sequence->blocks[sequence->n_published], twin;
        enum prefix_publish result = prefix_index_publish(state->index, &sequence->chain, tokens, *block, &twin);
        if (result == PREFIX_PUBLISH_STALE) {
            sequence->has_cache = false; /* its prefix was dropped while it ran: it ends unshared */
            return;
        }
        if (result == PREFIX_PUBLISH_TWIN) {
            /* Equal prefixes have equal bits: one copy is enough. */
            block_pool_acquire(state->pool, twin);
            block_pool_release(state->pool, *block);
            *block = twin;
        }
        sequence->n_published++;
    }
}

void commit_rows(const struct plan_item *item, struct plan_state *state) {
    struct sequence *sequence = item->sequence;
    REQUIRE(item->from == sequence->n_computed);
    sequence->n_computed = item->to;
    if (state->index && sequence->has_cache) publish_full_blocks(sequence, state);
}

void commit_token(const struct plan_item *item, uint32_t token) {
    struct sequence *sequence = item->sequence;
    REQUIRE(sequence->n_tokens < sequence->max_tokens);
    sequence->tokens[sequence->n_tokens++] = token;
}

void commit_copies(const struct plan *plan, struct plan_state *state) {
    for (int i = 0; i < plan->n_copies; i++) block_pool_release(state->pool, plan->copies[i].from);
}

/* What forecasts assume of answers that go on. */
static void note_answer(const struct sequence *sequence, struct plan_state *state) {
    int n = sequence->n_tokens - sequence->n_prompt;
    if (n < 1 || sequence->is_cancelled) return;
    state->answer_tokens += state->answer_tokens > 0 ? (n - state->answer_tokens) / ANSWERS_REMEMBERED : n;
}

void commit_retire(struct sequence *sequence, struct plan_state *state) {
    note_answer(sequence, state);
    sequence_release_blocks(sequence, state->pool);
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
