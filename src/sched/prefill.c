#include "sched/prefill.h"

/* The longest known prefix, at least one token of the prompt and all rows with wanted logits left to be run. Found
 * blocks are acquired; a block that agrees in part is copied into the first own block by the step. */
static void find_prefix(struct sequence *sequence, struct plan_state *state, struct prefix_match *out_match) {
    *out_match = (struct prefix_match){.partial_block = BLOCK_NONE};
    prefix_index_start(state->index, sequence->salt, &sequence->chain);
    int n_usable = sequence->n_prompt - 1;
    if (sequence->logits_from < n_usable) n_usable = sequence->logits_from;
    if (sequence->n_prompt - sequence->n_hidden < n_usable) n_usable = sequence->n_prompt - sequence->n_hidden;
    struct prefix_tokens tokens = {sequence->tokens, NULL, n_usable};
    prefix_index_lookup(state->index, &sequence->chain, tokens, n_usable / state->block_tokens, sequence->blocks,
                        out_match);
    for (int i = 0; i < out_match->n_found_blocks; i++) block_pool_acquire(state->pool, sequence->blocks[i]);
    sequence->n_blocks = sequence->n_published = out_match->n_found_blocks;
    if (out_match->partial_block != BLOCK_NONE) block_pool_acquire(state->pool, out_match->partial_block);
}

/* False if the pool cannot give the blocks now; nothing has changed then. */
static bool try_start(struct sequence *sequence, struct plan *plan, struct plan_state *state) {
    struct prefix_match match = {.partial_block = BLOCK_NONE};
    bool uses_cache = state->index && sequence->has_cache;
    sequence->n_blocks = sequence->n_published = 0;
    if (uses_cache) find_prefix(sequence, state, &match);
    int n_needed =
        (sequence_max_computed(sequence) + state->block_tokens - 1) / state->block_tokens - sequence->n_blocks;
    block_id *own = sequence->blocks + sequence->n_blocks;
    bool has_blocks = block_pool_take(state->pool, n_needed, own) == STATUS_OK;
    if (!has_blocks && match.partial_block != BLOCK_NONE) {
        /* Holding the source may be what keeps the pool short: without it every sequence can start some day. */
        block_pool_release(state->pool, match.partial_block);
        match.partial_block = BLOCK_NONE;
        has_blocks = block_pool_take(state->pool, n_needed, own) == STATUS_OK;
    }
    if (!has_blocks) {
        sequence_release_blocks(sequence, state->pool);
        return false;
    }
    sequence->n_cached_tokens = sequence->n_blocks * state->block_tokens;
    if (match.partial_block != BLOCK_NONE) {
        /* The reference to the source is given back when the copy has been made. */
        plan->copies[plan->n_copies++] = (struct plan_copy){match.partial_block, own[0]};
        sequence->n_cached_tokens += match.n_partial_tokens;
    }
    sequence->n_blocks += n_needed;
    sequence->n_computed = sequence->n_cached_tokens;
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
        if (sequence->state == SEQ_WAITING && !try_start(sequence, plan, state)) return;
        int from = sequence->n_computed, to = sequence->n_prompt;
        if (to - from > n_rows_left) to = from + n_rows_left;
        int logits_from = sequence->logits_from > from ? sequence->logits_from : from;
        if (to - logits_from > n_logits_left) to = logits_from + n_logits_left;
        plan_add(plan, sequence, from, to);
    }
}
