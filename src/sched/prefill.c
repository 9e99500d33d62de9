#include "sched/prefill.h"

#include "sched/room.h"
#include "sched/single_flight.h"
#include "sched/step_company.h"

void prefill_fork(struct sequence *sequence, struct sequence *lead, struct plan_state *state) {
    *sequence = (struct sequence){.state = SEQ_WAITING,
                                  .request_id = lead->request_id,
                                  .tokens = sequence->tokens,
                                  .n_prompt = lead->n_prompt,
                                  .n_tokens = lead->n_prompt,
                                  .max_tokens = lead->max_tokens,
                                  .logits_from = lead->n_prompt,
                                  .n_done = lead->n_prompt,
                                  .terms = lead->terms,
                                  .kv = sequence->kv};
    REQUIRE(lead->n_computed == lead->n_prompt && state->n_sequences < state->limits.max_sequences);
    state->sequences[state->n_sequences++] = sequence;
    kv_table_start(&sequence->kv, &lead->kv.chain.salt, lead->kv.has_cache);
    if (kv_table_fork(&sequence->kv, &lead->kv, lead->n_prompt)) return;
    sequence->n_computed = lead->n_prompt;
    sequence->state = SEQ_RUNNING;
}

int prefill_logits_from(const struct sequence *sequence) {
    int last = sequence->max_tokens > sequence->n_tokens ? sequence->n_tokens - 1 : sequence->n_tokens;
    int wanted_from = sequence->logits_from > sequence->n_done ? sequence->logits_from : sequence->n_done;
    return wanted_from < sequence->n_prompt && wanted_from < last ? wanted_from : last;
}

/* A promise is reserved against newcomers. What the machine got slower by is not their doing: the due moves with it. */
static void follow_machine(struct terms *terms, double slowness) {
    if (!terms->promise_ns) return;
    double slower = slowness / terms->told_slowness - 1;
    terms->slack_ns = terms->told_slack_ns;
    if (slower > 0)
        terms->slack_ns += (int64_t)(slower * (double)(terms->promise_ns + terms->told_slack_ns - terms->arrival_ns));
}

/* Lists the prompts with what policy must know of them; plan->candidates[i] is the sequence of plan->prompts[i]. */
static int list_prompts(struct plan *plan, const struct plan_state *state, const struct step_pace *pace) {
    int n = 0;
    for (int i = 0; i < state->n_sequences; i++) {
        struct sequence *sequence = state->sequences[i];
        if (sequence->is_cancelled || sequence->is_paused || sequence_is_decoding(sequence)) continue;
        int from = sequence->state == SEQ_WAITING ? sequence->terms.n_cached : sequence->n_computed;
        follow_machine(&sequence->terms, state->cost.slowness);
        plan->candidates[n] = sequence;
        plan->prompts[n++] =
            (struct policy_prompt){.terms = &sequence->terms,
                                   .work_ns = step_bound_work_ns(&state->cost, pace, from, sequence->n_tokens),
                                   .is_resumed = sequence->n_tokens > sequence->n_prompt,
                                   .owner = -1};
    }
    for (int i = 0; i < n; i++) {
        const struct sequence *owner = single_flight_owner(state, plan->candidates[i]);
        for (int j = 0; owner && j < n; j++)
            if (plan->candidates[j] == owner) plan->prompts[i].owner = j;
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

/* Whether n_rows of it belong into this step. Of one that has not started none are counted that are cached. */
static bool joins(const struct plan *plan, const struct plan_state *state, const struct step_company *company,
                  const struct step_shape *decode, const struct sequence *sequence, int n_rows) {
    int from = sequence->state == SEQ_WAITING ? sequence->terms.n_cached : sequence->n_computed;
    if (n_rows > sequence->n_tokens - from) n_rows = sequence->n_tokens - from;
    int logits_from = prefill_logits_from(sequence), first_logit = logits_from > from ? logits_from : from;
    struct step_shape joined = plan->shape;
    step_cost_add_prefill(&state->cost, &joined, from, from + n_rows,
                          from + n_rows > first_logit ? from + n_rows - first_logit : 0);
    return step_company_joins(company, &state->cost, decode, &plan->shape, &joined);
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
    struct step_shape decode = plan->shape;
    struct step_company company =
        step_company_begin(&state->policy, state->limits.step.is_unbounded, plan->prompts, n_prompts);
    for (int i = 0; i < n_prompts; i++) {
        struct sequence *sequence = plan->candidates[plan->order[i]];
        bool must_start = sequence->state == SEQ_WAITING;
        if (must_start && head && (state->policy.kind == POLICY_FCFS || head->n_bypassed >= PREFILL_MAX_BYPASS))
            continue;
        int n_rows = fit_rows(plan, state, sequence);
        if (n_rows == 0 || !joins(plan, state, &company, &decode, sequence, n_rows)) return;
        if (must_start && !room_start(sequence, state)) {
            if (!head) head = sequence;
            continue;
        }
        if (must_start && head) head->n_bypassed++;
        /* A start finds a prefix, so the rows are other ones now. */
        if (single_flight_is_planned(plan, sequence)) continue;
        n_rows = fit_rows(plan, state, sequence);
        if (n_rows > 0) n_rows = room_grow(sequence, sequence->n_computed + n_rows) - sequence->n_computed;
        if (n_rows <= 0) continue;
        bool ends = n_rows == sequence_n_pending(sequence);
        add_chunk(plan, state, sequence, n_rows, &pace);
        if (ends) step_company_end(&company, policy_weight(&plan->prompts[plan->order[i]]));
    }
}
