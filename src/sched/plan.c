#include "sched/plan.h"

#include "base/mem.h"
#include "sched/decode.h"
#include "sched/prefill.h"
#include "sched/room.h"

#define REMEMBERED_NS 20e9
#define RELAXED_AFTER_NS INT64_C(5000000000)

enum status plan_init(struct plan *plan, const struct plan_limits *limits) {
    size_t n = (size_t)limits->max_sequences;
    REQUIRE(limits->max_rows >= 1 && limits->max_logit_rows >= limits->max_sequences);
    REQUIRE(limits->max_prefill_rows >= 1 && limits->max_prefill_rows <= limits->max_rows);
    *plan = (struct plan){.items = mem_alloc_array(n, sizeof *plan->items),
                          .candidates = mem_alloc_array(n, sizeof(struct sequence *)),
                          .prompts = mem_alloc_array(n, sizeof *plan->prompts),
                          .order = mem_alloc_array(n, sizeof *plan->order)};
    if (plan->items && plan->candidates && plan->prompts && plan->order) return STATUS_OK;
    plan_deinit(plan);
    return STATUS_NOMEM;
}

void plan_deinit(struct plan *plan) {
    mem_free(plan->items);
    mem_free(plan->candidates);
    mem_free(plan->prompts);
    mem_free(plan->order);
    *plan = (struct plan){0};
}

void plan_add(struct plan *plan, struct sequence *sequence, int from, int to) {
    bool is_sampled = to == sequence->n_tokens && sequence->max_tokens > sequence->n_tokens;
    int logits_from = sequence->logits_from, n_again = sequence->n_done - from;
    if (logits_from < sequence->n_done) logits_from = sequence->n_done;
    if (logits_from < from) logits_from = from;
    /* Rows after the prompt are wanted for sampling only. */
    if (logits_from > to || logits_from >= sequence->n_prompt) logits_from = to;
    if (n_again < 0) n_again = 0;
    if (n_again > to - from) n_again = to - from;
    if (is_sampled && logits_from == to) logits_from = to - 1;
    plan->items[plan->n_items++] = (struct plan_item){sequence, from, to, logits_from, n_again, is_sampled};
    plan->n_rows += to - from;
    plan->n_logit_rows += to - logits_from;
}

/* Between plans as many decode as the one before planned. */
static void note_decode_rows(const struct plan *plan, struct plan_state *state, int64_t now_ns) {
    double passed = (double)(now_ns - state->last_plan_ns) / REMEMBERED_NS;
    if (state->last_plan_ns && passed > 0)
        state->decode_rows += (plan->n_decode_rows - state->decode_rows) * (passed / (1 + passed));
    state->last_plan_ns = now_ns;
}

bool plan_has_interactive(const struct plan_state *state) {
    for (int i = 0; i < state->n_sequences; i++)
        if (state->sequences[i]->terms.service_class == TERMS_INTERACTIVE) return true;
    return false;
}

bool plan_has_interactive_prompt(const struct plan_state *state) {
    for (int i = 0; i < state->n_sequences; i++) {
        const struct sequence *sequence = state->sequences[i];
        if (sequence->is_cancelled || sequence->is_paused || sequence_is_decoding(sequence)) continue;
        if (sequence->terms.service_class == TERMS_INTERACTIVE) return true;
    }
    return false;
}

/* Long steps are for batch work alone: who comes meanwhile ends them, and their work is lost, so a short pause between
 * interactive requests is not enough. */
static void note_urgency(struct plan_state *state, int64_t now_ns) {
    if (plan_has_interactive(state)) state->last_interactive_ns = now_ns;
    bool is_alone = !state->last_interactive_ns || now_ns - state->last_interactive_ns > RELAXED_AFTER_NS;
    state->urgency = is_alone ? STEP_RELAXED : plan_has_interactive_prompt(state) ? STEP_PROMPT : STEP_READY;
}

void plan_make(struct plan *plan, struct plan_state *state, int64_t now_ns) {
    note_decode_rows(plan, state, now_ns);
    note_urgency(state, now_ns);
    plan->n_items = plan->n_rows = plan->n_logit_rows = plan->n_decode_rows = 0;
    plan->shape = (struct step_shape){0};
    state->n_steps++;
    room_make(state);
    decode_plan(plan, state, true);
    plan->limit_ns = step_bound_ns(&state->cost, &state->limits.step, &plan->shape, state->urgency);
    prefill_plan(plan, state, now_ns);
    if (plan->n_items == 0) {
        /* The prompts that batch answers gave way to wait for blocks. */
        decode_plan(plan, state, false);
        plan->limit_ns = step_bound_ns(&state->cost, &state->limits.step, &plan->shape, state->urgency);
    }
    plan->predicted_ns = step_cost_ns(&state->cost, &plan->shape);
}
