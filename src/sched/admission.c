#include "sched/admission.h"

#define MAX_OVERTAKING 0.8 /* share of time that newcomers are reckoned to take at most */
#define RESERVE 0.5
#define MIN_RETRY_NS INT64_C(1000000) /* 0 says never */

enum status admission_init(struct admission *admission, const struct admission_limits *limits, int max_sequences) {
    *admission = (struct admission){.limits = *limits};
    return forecast_init(&admission->forecast, max_sequences);
}

void admission_deinit(struct admission *admission) {
    forecast_deinit(&admission->forecast);
}

const char *admission_reason_name(enum admission_reason reason) {
    static const char *const names[] = {
#define XX(name, word, text) word,
        ADMISSION_REASON_MAP(XX)
#undef XX
    };
    return names[reason];
}

const char *admission_reason_text(enum admission_reason reason) {
    static const char *const texts[] = {
#define XX(name, word, text) text,
        ADMISSION_REASON_MAP(XX)
#undef XX
    };
    return texts[reason];
}

int admission_tenant(struct plan_state *state, uint64_t id, double weight) {
    bool in_use[TERMS_MAX_TENANTS] = {false};
    for (int i = 0; i < state->n_sequences; i++) in_use[state->sequences[i]->terms.tenant] = true;
    return policy_tenant(&state->policy, id, weight, in_use);
}

/* ---- what can never be ---- */

static enum admission_reason check_size(const struct admission *admission, const struct plan_state *state,
                                        const struct admission_candidate *candidate) {
    const struct admission_limits *limits = &admission->limits;
    int max_prompt = limits->max_prompt[candidate->terms.service_class];
    if (candidate->n_prompt > limits->max_context || candidate->max_new > limits->max_context - candidate->n_prompt)
        return ADMISSION_CONTEXT;
    int n_computed = candidate->n_prompt + (candidate->max_new > 1 ? candidate->max_new - 1 : 0);
    if ((n_computed + state->block_tokens - 1) / state->block_tokens > state->pool->n_blocks) return ADMISSION_POOL;
    if (max_prompt && candidate->n_prompt > max_prompt) return ADMISSION_INPUT_CAP;
    return ADMISSION_ADMITTED;
}

static enum admission_reason check_queue(const struct admission *admission, const struct plan_state *state,
                                         const struct terms *terms) {
    int max_waiting = admission->limits.max_waiting[terms->service_class], n_waiting = 0, n_own = 0;
    if (state->n_sequences >= state->limits.max_sequences) return ADMISSION_QUEUE;
    if (!max_waiting) max_waiting = state->limits.max_sequences;
    for (int i = 0; i < state->n_sequences; i++) {
        const struct sequence *sequence = state->sequences[i];
        bool is_waiting = sequence->n_tokens == sequence->n_prompt && !sequence->is_cancelled;
        if (!is_waiting || sequence->terms.service_class != terms->service_class) continue;
        n_waiting++;
        n_own += sequence->terms.tenant == terms->tenant;
    }
    if (n_waiting >= max_waiting) return ADMISSION_QUEUE;
    double room = (max_waiting - n_waiting) * state->policy.weights[terms->tenant];
    return admission->limits.has_tenants && n_own >= room ? ADMISSION_TENANT_QUEUE : ADMISSION_ADMITTED;
}

/* ---- when it will be ---- */

/* When a first token is late enough to refuse others for it. Newcomers may use up a part of what is between promise and
 * due; the rest is for what forecasts do not know. */
static int64_t late_ns(const struct terms *terms) {
    int64_t due_ns = policy_due_ns(terms);
    return due_ns - (int64_t)((double)(due_ns - terms->promise_ns) * RESERVE);
}

/* Promises that the forecast breaks. *out_end_ns: when the last of them has its first token. */
static int count_broken(const struct forecast *forecast, int n_sequences, int64_t *out_end_ns) {
    int n = 0;
    *out_end_ns = forecast->now_ns;
    for (int i = 0; i < n_sequences; i++) {
        const struct forecast_sequence *sequence = &forecast->sequences[i];
        bool is_promise = sequence->terms->promise_ns && sequence->terms->service_class == TERMS_INTERACTIVE;
        if (!is_promise || sequence->first_token_ns <= late_ns(sequence->terms)) continue;
        n++;
        if (sequence->first_token_ns > *out_end_ns) *out_end_ns = sequence->first_token_ns;
    }
    return n;
}

/* When the first of those that wait is through: then there is room for one more. */
static int64_t first_end_ns(struct admission *admission, const struct plan_state *state, int64_t now_ns) {
    struct forecast *forecast = &admission->forecast;
    int64_t first = INT64_MAX;
    forecast_load(forecast, state, now_ns);
    forecast_run(forecast, state);
    for (int i = 0; i < forecast->n_sequences; i++) {
        int64_t end = forecast->sequences[i].first_token_ns;
        if (end && end < first) first = end;
    }
    if (first == INT64_MAX) first = forecast->now_ns + state->limits.step.max_step_ns;
    return first;
}

static int64_t work_of(const struct plan_state *state, int from, int to, struct step_pace *out_pace) {
    struct step_shape decode = {0};
    for (int i = 0; i < state->n_sequences; i++)
        if (sequence_is_decoding(state->sequences[i]))
            step_cost_add_decode(&state->cost, &decode, state->sequences[i]->n_computed);
    *out_pace = step_bound_pace(&state->cost, &state->limits.step, &decode, state->limits.max_prefill_rows);
    return step_bound_work_ns(&state->cost, out_pace, from, to);
}

/* Newcomers of the same tenant go first if they are shorter, those of others if they are shorter than all that the
 * tenant has waiting up to this prompt. */
static int64_t stretched(const struct admission *admission, const struct plan_state *state,
                         const struct admission_candidate *candidate, int64_t estimate_ns, int64_t now_ns) {
    if (candidate->terms.service_class == TERMS_BATCH) return estimate_ns;
    struct step_pace pace;
    int64_t own_ns = work_of(state, candidate->n_cached, candidate->n_prompt, &pace), others_ns = own_ns;
    int tenant = candidate->terms.tenant;
    for (int i = 0; i < state->n_sequences; i++) {
        const struct sequence *sequence = state->sequences[i];
        if (sequence->is_cancelled || sequence->terms.tenant != tenant || sequence_is_decoding(sequence)) continue;
        int64_t ns = step_bound_work_ns(&state->cost, &pace, sequence->n_computed, sequence->n_tokens);
        if (ns <= own_ns) others_ns += ns;
    }
    others_ns = (int64_t)((double)others_ns / state->policy.weights[tenant]);
    double share = load_share(&admission->load, tenant, own_ns, others_ns, now_ns) * pace.stretch;
    return (int64_t)((double)estimate_ns / (1 - (share < MAX_OVERTAKING ? share : MAX_OVERTAKING)));
}

static struct admission_answer refuse(enum admission_reason reason, int64_t estimate_ns, int64_t retry_after_ns) {
    return (struct admission_answer){.reason = reason,
                                     .estimate_ns = estimate_ns,
                                     .retry_after_ns = retry_after_ns < MIN_RETRY_NS ? MIN_RETRY_NS : retry_after_ns};
}

/* Forecast with the candidate in the queue. Returns how many promises are broken, when the last of those is through,
 * and the candidate's own time. */
static int try_place(struct admission *admission, const struct plan_state *state,
                     const struct admission_candidate *candidate, int64_t now_ns, int64_t *out_broken_end_ns,
                     int64_t *out_estimate_ns) {
    struct forecast *forecast = &admission->forecast;
    forecast_load(forecast, state, now_ns);
    int n_others = forecast->n_sequences;
    forecast_add(forecast, state, &candidate->terms, candidate->n_prompt, candidate->n_cached, candidate->logits_from,
                 candidate->max_new);
    forecast_run(forecast, state);
    *out_estimate_ns = forecast->sequences[n_others].first_token_ns - now_ns;
    return count_broken(forecast, n_others, out_broken_end_ns);
}

static int count_broken_anyway(struct admission *admission, const struct plan_state *state, int64_t now_ns) {
    int64_t end_ns;
    forecast_load(&admission->forecast, state, now_ns);
    forecast_run(&admission->forecast, state);
    return count_broken(&admission->forecast, admission->forecast.n_sequences, &end_ns);
}

/* With nobody else there, when would its first token come? */
static int64_t solo_ns(struct admission *admission, const struct plan_state *state,
                       const struct admission_candidate *candidate, int64_t now_ns) {
    struct forecast *forecast = &admission->forecast;
    forecast_load(forecast, state, now_ns);
    forecast->n_sequences = 0;
    forecast->n_free_blocks = state->pool->n_blocks;
    forecast_add(forecast, state, &candidate->terms, candidate->n_prompt, candidate->n_cached, candidate->logits_from,
                 candidate->max_new);
    forecast_run(forecast, state);
    return forecast->sequences[0].first_token_ns - now_ns;
}

static struct admission_answer answer_in_time(struct admission *admission, const struct plan_state *state,
                                              const struct admission_candidate *candidate, int64_t now_ns) {
    struct admission_candidate placed = *candidate;
    const struct terms *terms = &candidate->terms;
    int64_t max_estimate_ns = admission->limits.max_estimate_ns[terms->service_class], broken_end_ns, estimate_ns;
    int n_broken = try_place(admission, state, &placed, now_ns, &broken_end_ns, &estimate_ns), n_anyway = 0;
    if (state->policy.kind == POLICY_FCFS)
        return (struct admission_answer){.reason = ADMISSION_ADMITTED, .estimate_ns = estimate_ns};
    if (n_broken > 0) n_anyway = count_broken_anyway(admission, state, now_ns);
    if (n_broken > n_anyway) {
        /* In its place it would make others late: it gets a later one. */
        placed.terms.hold_ns = broken_end_ns;
        n_broken = try_place(admission, state, &placed, now_ns, &broken_end_ns, &estimate_ns);
    }
    estimate_ns = stretched(admission, state, candidate, estimate_ns, now_ns);
    if (terms->deadline_ns && now_ns + estimate_ns > terms->deadline_ns) {
        int64_t too_late_ns = now_ns + estimate_ns - terms->deadline_ns;
        if (now_ns + solo_ns(admission, state, candidate, now_ns) > terms->deadline_ns)
            return (struct admission_answer){.reason = ADMISSION_DEADLINE, .estimate_ns = estimate_ns};
        return refuse(ADMISSION_DEADLINE, estimate_ns, too_late_ns);
    }
    if (max_estimate_ns && estimate_ns > max_estimate_ns)
        return refuse(ADMISSION_WAIT, estimate_ns, estimate_ns - max_estimate_ns);
    if (n_broken > n_anyway) return refuse(ADMISSION_PROMISE, estimate_ns, broken_end_ns - now_ns);
    return (struct admission_answer){
        .reason = ADMISSION_ADMITTED, .hold_ns = placed.terms.hold_ns, .estimate_ns = estimate_ns};
}

struct admission_answer admission_answer(struct admission *admission, const struct plan_state *state,
                                         const struct admission_candidate *candidate, int64_t now_ns) {
    enum admission_reason reason = check_size(admission, state, candidate);
    if (reason) return (struct admission_answer){.reason = reason};
    reason = check_queue(admission, state, &candidate->terms);
    if (reason) return refuse(reason, 0, first_end_ns(admission, state, now_ns) - now_ns);
    return answer_in_time(admission, state, candidate, now_ns);
}

struct terms admission_accept(struct admission *admission, const struct plan_state *state,
                              const struct admission_candidate *candidate, const struct admission_answer *answer,
                              int64_t now_ns) {
    struct terms terms = candidate->terms;
    struct step_pace pace;
    REQUIRE(answer->reason == ADMISSION_ADMITTED);
    terms.promise_ns = now_ns + answer->estimate_ns;
    terms.hold_ns = answer->hold_ns;
    load_add(&admission->load, terms.tenant, work_of(state, candidate->n_cached, candidate->n_prompt, &pace), now_ns);
    return terms;
}
