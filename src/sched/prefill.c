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

int prefill_logits_from(const struct sequence *sequence) {
    int last = sequence->max_tokens > sequence->n_prompt ? sequence->n_prompt - 1 : sequence->n_prompt;
    return sequence->logits_from < last ? sequence->logits_from : last;
}

/* Lists the prompts with what policy must know of them; plan->candidates[i] is the sequence of plan->prompts[i]. */
static int list_prompts(struct plan *plan, const struct plan_state *state, const struct step_pace *pace) {
    int n = 0;
    for (int i = 0; i < state->n_sequences; i++) {
        struct sequence *sequence = state->sequences[i];
        if (sequence->is_cancelled || sequence_is_decoding(sequence)) continue;
        int from = sequence->state == SEQ_WAITING ? sequence->n_cached_tokens : sequence->n_computed;
        plan->candidates[n] = sequence;
        plan->prompts[n++] =
            (struct policy_prompt){.terms = &sequence->terms,
                                   .work_ns = step_bound_work_ns(&state->cost, pace, from, sequence->n_tokens),
                                   .is_resumed = sequence->n_tokens > sequence->n_prompt,
                                   .owner = -1};
    }
    return n;
}

/* Rows of the sequence that this step has room for. */
static int fit_rows(const struct plan *plan, const struct plan_state *state, const struct sequence *sequence) {
    int n_prefill_rows = plan->n_rows - plan->n_decode_rows;
    int from = sequence->n_computed, n = sequence_n_pending(sequence);
    int n_rows_left = state->limits.max_rows - plan->n_rows;
    int n_chunk_left = state->limits.max_prefill_rows - n_prefill_rows;
    int n_logits_left = state->limits.max_logit_rows - plan->n_logit_rows;
    if (n > n_rows_left) n = n_rows_left;
    if (n > n_chunk_left) n = n_chunk_left;
    int logits_from = prefill_logits_from(sequence);
    int n_before_logits = logits_from > from ? logits_from - from : 0;
    if (n > n_before_logits + n_logits_left) n = n_before_logits + n_logits_left;
    if (n <= 0) return 0;
    int n_in_time = step_cost_max_prefill(&state->cost, &plan->shape, from, n, logits_from, plan->limit_ns);
    return n_in_time == 0 && n_prefill_rows == 0 ? 1 : n_in_time;
}

static void add_chunk(struct plan *plan, struct plan_state *state, struct sequence *sequence, int n_rows,
                      const struct step_pace *pace) {
    int from = sequence->n_computed, to = from + n_rows, n_logit_rows = plan->n_logit_rows;
    plan_add(plan, sequence, from, to);
    step_cost_add_prefill(&state->cost, &plan->shape, from, to, plan->n_logit_rows - n_logit_rows);
    policy_charge(&state->policy, &sequence->terms, step_bound_work_ns(&state->cost, pace, from, to));
}

void prefill_plan(struct plan *plan, struct plan_state *state, int64_t now_ns) {
    struct step_pace pace = step_bound_pace(&state->cost, &state->limits.step, &plan->shape, state->urgency,
                                            state->limits.max_prefill_rows);
    int n_prompts = list_prompts(plan, state, &pace);
    policy_refresh(&state->policy, plan->prompts, n_prompts);
    policy_order(&state->policy, plan->prompts, n_prompts, now_ns, &pace, plan->order);
    struct sequence *head = NULL; /* the first that waits for blocks */
    for (int i = 0; i < n_prompts; i++) {
        struct sequence *sequence = plan->candidates[plan->order[i]];
        bool must_start = sequence->state == SEQ_WAITING;
        if (must_start && head && (state->policy.kind == POLICY_FCFS || head->n_bypassed >= PREFILL_MAX_BYPASS))
            continue;
        if (fit_rows(plan, state, sequence) == 0) return;
        if (must_start && !try_start(sequence, plan, state)) {
            if (!head) head = sequence;
            continue;
        }
        if (must_start && head) head->n_bypassed++;
        /* A start finds a prefix, so the rows are other ones now. */
        int n_rows = fit_rows(plan, state, sequence);
        if (n_rows > 0) add_chunk(plan, state, sequence, n_rows, &pace);
    }
}
