#include "engine/gate.h"

#include "base/clock.h"

/* ---- the question ---- */

static int min(int a, int b) {
    return a < b ? a : b;
}

/* Prompt positions whose KV may come from others: see sequence_n_reusable. */
static int n_reusable(const struct request *request, int logits_from) {
    int n = min(request->n_prompt - 1, logits_from);
    return request->pooling == POOLING_MEAN ? 0 : n;
}

static struct admission_candidate candidate_of(struct engine *engine, const struct request *request, int64_t now_ns,
                                               enum prefix_miss *out_miss) {
    struct kv_found found = {0};
    int logits_from = message_logits_from(request);
    struct prefix_tokens tokens = {request->tokens, NULL, n_reusable(request, logits_from)};
    bool is_long = request->n_prompt > engine->options.max_context; /* it is refused anyway */
    double weight = request->tenant_weight ? request->tenant_weight : 1;
    if (request->has_cache && !is_long) kv_table_look(&engine->groups, &request->salt, tokens, &found);
    *out_miss = found.miss;
    return (struct admission_candidate){
        .n_prompt = request->n_prompt,
        .max_new = request->max_new,
        .n_cached = found.n_tokens,
        .logits_from = logits_from,
        .terms = {.service_class = request->class_ == REQUEST_BATCH ? TERMS_BATCH : TERMS_INTERACTIVE,
                  .tenant = admission_tenant(&engine->state, request->tenant_id, weight),
                  .priority = request->priority,
                  .n_cached = found.n_tokens,
                  .arrival_ns = now_ns,
                  .deadline_ns = request->deadline_ns}};
}

/* Within a step its prompts are seen as they will be at its end, but for the last token of each. */
static void move_prompts(const struct engine *engine, bool is_to_end) {
    for (int i = 0; engine->is_in_step && i < engine->plan.n_items; i++) {
        const struct plan_item *item = &engine->plan.items[i];
        int end = min(item->to, item->sequence->n_tokens - 1);
        if (item->from >= item->sequence->n_prompt || end < item->from) continue;
        item->sequence->n_computed = is_to_end ? end : item->from;
    }
}

/* ---- a place ---- */

static int n_free_slots(const struct engine *engine) {
    int n = 0;
    for (int i = 0; i < engine->options.max_sequences; i++) n += !engine->slots[i].request;
    return n;
}

/* When the first of those who decode will have said what answers say of late. */
static int64_t first_leave_ns(const struct engine *engine) {
    const struct plan_state *state = &engine->state;
    struct step_shape decode = {0};
    int n_least = 0;
    for (int i = 0; i < state->n_sequences; i++) {
        const struct sequence *sequence = state->sequences[i];
        int n_new = sequence->n_tokens - sequence->n_prompt, n_left = sequence->max_tokens - sequence->n_tokens;
        if (state->answer_tokens > n_new) n_left = min(n_left, (int)state->answer_tokens - n_new);
        if (!n_least || n_left < n_least) n_least = n_left;
        if (sequence_is_decoding(sequence)) step_cost_add_decode(&state->cost, &decode, sequence->n_computed);
    }
    if (decode.n_rows == 0) step_cost_add_decode(&state->cost, &decode, 0);
    return (n_least > 0 ? n_least : 1) * step_cost_ns(&state->cost, &decode);
}

/* Every choice needs a slot from the start. */
static void check_slots(const struct engine *engine, const struct request *request, struct admission_answer *answer) {
    enum admission_reason reason = answer->reason;
    if (n_free_slots(engine) >= request->n_choices || (reason != ADMISSION_ADMITTED && reason != ADMISSION_QUEUE))
        return;
    answer->reason = ADMISSION_QUEUE;
    answer->retry_after_ns = first_leave_ns(engine);
}

/* ---- the answer ---- */

static enum status refuse_size(const struct engine *engine, struct request *request, enum admission_reason reason) {
    if (reason == ADMISSION_CONTEXT)
        return status_fail(&request->note, STATUS_LIMIT,
                           "the prompt has %d tokens and may be answered with %d, the context holds %d",
                           request->n_prompt, request->max_new, engine->options.max_context);
    if (reason == ADMISSION_POOL)
        return status_fail(&request->note, STATUS_LIMIT,
                           "the prompt has %d tokens and may be answered with %d, the KV cache is too small for that",
                           request->n_prompt, request->max_new);
    return status_fail(&request->note, STATUS_LIMIT, "the prompt has %d tokens, its class may send %d",
                       request->n_prompt, engine->options.admission.max_prompt[request->class_]);
}

static enum status refuse(const struct engine *engine, struct request *request, const struct gate_answer *answer) {
    enum admission_reason reason = answer->admission.reason;
    double estimate_ms = (double)gate_estimate_ns(answer) / 1e6;
    if (reason == ADMISSION_CONTEXT || reason == ADMISSION_POOL || reason == ADMISSION_INPUT_CAP)
        return refuse_size(engine, request, reason);
    if (reason == ADMISSION_QUEUE || reason == ADMISSION_TENANT_QUEUE) {
        int n_made = engine->options.max_sequences - n_free_slots(engine);
        return status_fail(&request->note, STATUS_BUSY, "%s: %d answers are waiting or being made, at most %d can be",
                           admission_reason_text(reason), n_made, engine->options.max_sequences);
    }
    if (reason == ADMISSION_DEADLINE)
        return status_fail(&request->note, answer->admission.retry_after_ns ? STATUS_BUSY : STATUS_TIMEOUT,
                           "%s: expected in %.0f ms, due in %.0f ms", admission_reason_text(reason), estimate_ms,
                           (double)(request->deadline_ns - answer->now_ns) / 1e6);
    return status_fail(&request->note, STATUS_BUSY, "%s: its first token is expected in %.0f ms",
                       admission_reason_text(reason), estimate_ms);
}

struct gate_answer gate_ask(struct engine *engine, struct request *request) {
    int64_t now_ns = clock_now_ns();
    struct gate_answer answer = {.now_ns = now_ns, .at_ns = now_ns};
    answer.candidate = candidate_of(engine, request, now_ns, &answer.miss);
    /* A long step of batch work ends at once for an interactive request. */
    bool ends_step = engine->state.urgency == STEP_RELAXED && answer.candidate.terms.service_class == TERMS_INTERACTIVE;
    bool is_in_step = engine->is_in_step && !ends_step;
    if (is_in_step && engine->step_start_ns + engine->plan.predicted_ns > now_ns && engine->has_costs)
        answer.at_ns = engine->step_start_ns + engine->plan.predicted_ns;
    /* Where nobody knows what steps take, nothing is promised and nothing refused for its time. */
    if (!engine->has_costs) answer.candidate.terms.deadline_ns = 0;
    if (is_in_step) move_prompts(engine, true);
    answer.admission = admission_answer(&engine->admission, &engine->state, &answer.candidate, answer.at_ns);
    if (is_in_step) move_prompts(engine, false);
    answer.candidate.terms.deadline_ns = request->deadline_ns;
    if (!engine->has_costs) answer.admission.estimate_ns = answer.admission.hold_ns = 0;
    check_slots(engine, request, &answer.admission);
    if (answer.admission.reason != ADMISSION_ADMITTED) answer.status = refuse(engine, request, &answer);
    return answer;
}

int64_t gate_estimate_ns(const struct gate_answer *answer) {
    return answer->admission.estimate_ns ? answer->at_ns - answer->now_ns + answer->admission.estimate_ns : 0;
}

struct terms gate_accept(struct engine *engine, const struct gate_answer *answer) {
    if (!engine->has_costs) return answer->candidate.terms;
    return admission_accept(&engine->admission, &engine->state, &answer->candidate, &answer->admission, answer->at_ns);
}

void gate_refuse(struct engine *engine, const struct gate_answer *answer) {
    if (engine->has_costs)
        admission_refuse(&engine->admission, &engine->state, &answer->candidate, &answer->admission, answer->at_ns);
}
