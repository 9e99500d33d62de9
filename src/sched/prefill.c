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
    if (sequence->n_prompt - sequence->n_hidden < n_usable) n_usable = sequence->n_prompt - sequence->n_hidden;
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
    kv_table_trim(&sequence->kv, from);
    if (kv_table_grow(&sequence->kv, to)) BUG("a block that was reserved is not there");
    plan_add(plan, sequence, from, to);
    step_cost_add_prefill(&state->cost, &plan->shape, from, to, plan->n_logit_rows - n_logit_rows);
    policy_charge(&state->policy, &sequence->terms, step_bound_work_ns(&state->cost, pace, from, to));
}

void prefill_plan(struct plan *plan, struct plan_state *state, int64_t now_ns) {
    struct step_pace pace =
        step_bound_pace(&state->cost, &state->limits.step, &plan->shape, state->limits.max_prefill_rows);
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
        if (must_start && !try_start(sequence, state)) {
            if (!head) head = sequence;
            continue;
        }
        if (must_start && head) head->n_bypassed++;
        /* A start finds a prefix, so the rows are other ones now. */
        int n_rows = fit_rows(plan, state, sequence);
        if (n_rows > 0) add_chunk(plan, state, sequence, n_rows, &pace);
    }
}
