#include "sched/admission.h"

#include "base/mem.h"

#define RESERVE 0.25                  /* of the slack, what newcomers may not use up while nothing is done yet */
#define MIN_RETRY_NS INT64_C(1000000) /* 0 says never */
#define MAX_LOAD_SHARE 2              /* of what can be done, that refused requests count up to */

enum status admission_init(struct admission *admission, const struct admission_limits *limits, int max_sequences) {
    *admission =
        (struct admission){.limits = *limits, .anyway_ns = mem_alloc_array((size_t)max_sequences + 1, sizeof(int64_t))};
    enum status status = forecast_init(&admission->forecast, max_sequences);
    if (!admission->anyway_ns) status = STATUS_NOMEM;
    if (status) admission_deinit(admission);
    return status;
}

void admission_deinit(struct admission *admission) {
    forecast_deinit(&admission->forecast);
    mem_free(admission->anyway_ns);
    admission->anyway_ns = NULL;
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
    for (int g = 0; g < state->groups->n_groups; g++)
        if (kv_groups_n_peak(state->groups, g, n_computed, state->limits.max_rows) >
            state->groups->groups[g].pool.n_blocks)
            return ADMISSION_POOL;
    if (max_prompt && candidate->n_prompt > max_prompt) return ADMISSION_INPUT_CAP;
    return ADMISSION_ADMITTED;
}

static bool has_several_tenants(const struct policy *policy) {
    int n = 0;
    for (int t = 0; t < TERMS_MAX_TENANTS; t++) n += policy->is_known[t];
    return n > 1;
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
    return admission->limits.has_tenants && has_several_tenants(&state->policy) && n_own >= room
               ? ADMISSION_TENANT_QUEUE
               : ADMISSION_ADMITTED;
}

/* ---- when it will be ---- */

/* When a first token is late enough for others to be held back: a part of the slack is for what forecasts do not know
 * of the time left_ns that it will yet take, but a step of it is what one that goes last in the same step may cost. */
static int64_t hold_limit_ns(const struct terms *terms, int64_t step_ns, int64_t left_ns) {
    if (terms->deadline_ns) return terms->deadline_ns; /* until then it is worth as much */
    double left = (double)left_ns / (double)(terms->promise_ns - terms->arrival_ns + 1);
    int64_t spare_ns = terms->slack_ns - (int64_t)((double)terms->slack_ns * RESERVE * (left < 1 ? left : 1));
    if (spare_ns < step_ns) spare_ns = step_ns < terms->slack_ns ? step_ns : terms->slack_ns;
    return terms->promise_ns + spare_ns;
}

/* Promises that the forecast with the candidate breaks and the one without it keeps. In its own place, is_held false,
 * those count as well that it nearly breaks; held back, those do not that it delays by no more than a step: they were
 * about to be late anyway. *out_end_ns: when the last of them has its first token. */
static int count_broken(const struct admission *admission, int n_sequences, int64_t step_ns, bool is_held,
                        int64_t *out_end_ns) {
    int n = 0;
    *out_end_ns = admission->forecast.begin_ns;
    for (int i = 0; i < n_sequences; i++) {
        const struct forecast_sequence *sequence = &admission->forecast.sequences[i];
        bool is_promise = sequence->terms->promise_ns && sequence->terms->service_class == TERMS_INTERACTIVE;
        if (!is_promise || sequence->is_yielding) continue;
        int64_t left_ns = sequence->first_token_ns - admission->forecast.begin_ns;
        int64_t limit_ns = is_held ? policy_due_ns(sequence->terms) : hold_limit_ns(sequence->terms, step_ns, left_ns);
        if (sequence->first_token_ns <= limit_ns || admission->anyway_ns[i] > limit_ns) continue;
        if (is_held && sequence->first_token_ns - admission->anyway_ns[i] <= step_ns) continue;
        bool misses_deadline = sequence->terms->deadline_ns && sequence->first_token_ns > sequence->terms->deadline_ns;
        if (is_held && admission->limits.takes_late && !misses_deadline) continue;
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

/* Work of the candidate's rows [from, to), and the pace that steps have once it is there. */
static int64_t work_of(const struct plan_state *state, const struct admission_candidate *candidate, int from, int to,
                       struct step_pace *out_pace) {
    bool is_interactive = candidate->terms.service_class == TERMS_INTERACTIVE;
    enum step_urgency urgency = is_interactive ? STEP_PROMPT : state->urgency;
    struct step_shape decode = {0};
    for (int i = 0; i < state->n_sequences; i++)
        if (sequence_is_decoding(state->sequences[i]))
            step_cost_add_decode(&state->cost, &decode, state->sequences[i]->n_computed);
    *out_pace = step_bound_pace(&state->cost, &state->limits.step, &decode, urgency, state->limits.max_prefill_rows);
    return step_bound_work_ns(&state->cost, out_pace, from, to);
}

/* What newcomers will do to its time. Those of other tenants go first if they are shorter than all that the tenant has
 * waiting up to this prompt. */
static struct load_delay delay_of(const struct admission *admission, const struct plan_state *state,
                                  const struct admission_candidate *candidate, int64_t estimate_ns, int64_t now_ns) {
    struct step_pace pace;
    int64_t own_ns = work_of(state, candidate, candidate->n_cached, candidate->n_prompt, &pace), tenant_ns = own_ns;
    int tenant = candidate->terms.tenant;
    for (int i = 0; i < state->n_sequences; i++) {
        const struct sequence *sequence = state->sequences[i];
        if (sequence->is_cancelled || sequence->terms.tenant != tenant || sequence_is_decoding(sequence)) continue;
        if (sequence->terms.service_class != candidate->terms.service_class) continue;
        int64_t ns = step_bound_work_ns(&state->cost, &pace, sequence->n_computed, sequence->n_tokens);
        if (ns <= own_ns) tenant_ns += ns;
    }
    struct load_prompt prompt = {.terms = &candidate->terms,
                                 .work_ns = own_ns,
                                 .tenant_ns = (int64_t)((double)tenant_ns / state->policy.weights[tenant]),
                                 .estimate_ns = estimate_ns,
                                 .stretch = pace.stretch,
                                 .is_heavy = state->policy.is_heavy};
    return load_delay_of(&admission->load, &prompt, now_ns);
}

/* What is told. A promise is reserved with some slack, so what most likely happens is enough. A deadline is reserved to
 * its end, and newcomers may take all that is expected of them: what cannot stand that had better not be begun. */
static int64_t told_ns(const struct admission_candidate *candidate, int64_t estimate_ns,
                       const struct load_delay *delay) {
    double more_ns = candidate->terms.deadline_ns ? delay->mean_ns : delay->likely_ns;
    return estimate_ns + (int64_t)more_ns;
}

static struct admission_answer refuse(enum admission_reason reason, int64_t estimate_ns, int64_t retry_after_ns) {
    return (struct admission_answer){.reason = reason,
                                     .estimate_ns = estimate_ns,
                                     .retry_after_ns = retry_after_ns < MIN_RETRY_NS ? MIN_RETRY_NS : retry_after_ns};
}

/* Forecast with the candidate in the queue. Returns how many promises it breaks, when the last of those is through, and
 * the candidate's own time. */
static int try_place(struct admission *admission, const struct plan_state *state,
                     const struct admission_candidate *candidate, int64_t now_ns, int64_t step_ns, bool is_held,
                     int64_t *out_broken_end_ns, int64_t *out_estimate_ns) {
    struct forecast *forecast = &admission->forecast;
    forecast_load(forecast, state, now_ns);
    int n_others = forecast->n_sequences;
    forecast_add(forecast, state, &candidate->terms, candidate->n_prompt, candidate->n_cached, candidate->logits_from,
                 candidate->max_new);
    forecast_run(forecast, state);
    *out_estimate_ns = forecast->sequences[n_others].first_token_ns - now_ns;
    return count_broken(admission, n_others, step_ns, is_held, out_broken_end_ns);
}

static void forecast_anyway(struct admission *admission, const struct plan_state *state, int64_t now_ns) {
    struct forecast *forecast = &admission->forecast;
    forecast_load(forecast, state, now_ns);
    forecast_run(forecast, state);
    for (int i = 0; i < forecast->n_sequences; i++) admission->anyway_ns[i] = forecast->sequences[i].first_token_ns;
}

/* With nobody else there, when would its first token come? */
static int64_t solo_ns(struct admission *admission, const struct plan_state *state,
                       const struct admission_candidate *candidate, int64_t now_ns) {
    struct forecast *forecast = &admission->forecast;
    forecast_load(forecast, state, now_ns);
    forecast->n_sequences = 0;
    for (int g = 0; g < state->groups->n_groups; g++)
        forecast->n_free_blocks[g] = state->groups->groups[g].pool.n_blocks;
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
    struct step_pace pace;
    work_of(state, candidate, 0, 1, &pace);
    forecast_anyway(admission, state, now_ns);
    int n_broken = try_place(admission, state, &placed, now_ns, pace.limit_ns, false, &broken_end_ns, &estimate_ns);
    if (state->policy.kind == POLICY_FCFS)
        return (struct admission_answer){.reason = ADMISSION_ADMITTED, .estimate_ns = estimate_ns};
    if (n_broken > 0) {
        /* In its place it would make others late: it gets a later one. */
        placed.terms.hold_ns = broken_end_ns;
        n_broken = try_place(admission, state, &placed, now_ns, pace.limit_ns, true, &broken_end_ns, &estimate_ns);
    }
    struct load_delay delay = delay_of(admission, state, candidate, estimate_ns, now_ns);
    estimate_ns = told_ns(candidate, estimate_ns, &delay);
    if (terms->deadline_ns && now_ns + estimate_ns > terms->deadline_ns) {
        int64_t too_late_ns = now_ns + estimate_ns - terms->deadline_ns;
        if (now_ns + solo_ns(admission, state, candidate, now_ns) > terms->deadline_ns)
            return (struct admission_answer){.reason = ADMISSION_DEADLINE, .estimate_ns = estimate_ns};
        return refuse(ADMISSION_DEADLINE, estimate_ns, too_late_ns);
    }
    if (max_estimate_ns && estimate_ns > max_estimate_ns)
        return refuse(ADMISSION_WAIT, estimate_ns, estimate_ns - max_estimate_ns);
    if (n_broken > 0) return refuse(ADMISSION_PROMISE, estimate_ns, broken_end_ns - now_ns);
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

static void note_offered(struct admission *admission, struct plan_state *state, const struct terms *terms,
                         int64_t work_ns, int64_t now_ns) {
    load_add(&admission->load, terms, work_ns, now_ns);
    load_find_heavy(&admission->load, state->policy.weights, state->policy.is_heavy);
}

struct terms admission_accept(struct admission *admission, struct plan_state *state,
                              const struct admission_candidate *candidate, const struct admission_answer *answer,
                              int64_t now_ns) {
    struct terms terms = candidate->terms;
    struct step_pace pace;
    REQUIRE(answer->reason == ADMISSION_ADMITTED);
    int64_t work_ns = work_of(state, candidate, candidate->n_cached, candidate->n_prompt, &pace);
    terms.promise_ns = now_ns + answer->estimate_ns;
    terms.slack_ns = (int64_t)((double)answer->estimate_ns * ADMISSION_LATE_SHARE);
    /* Nothing is decided within a step. */
    if (terms.slack_ns < pace.limit_ns) terms.slack_ns = pace.limit_ns;
    terms.told_slack_ns = terms.slack_ns;
    terms.told_slowness = state->cost.slowness;
    terms.hold_ns = answer->hold_ns;
    terms.n_cached = candidate->n_cached;
    note_offered(admission, state, &terms, work_ns, now_ns);
    return terms;
}

void admission_refuse(struct admission *admission, struct plan_state *state,
                      const struct admission_candidate *candidate, const struct admission_answer *answer,
                      int64_t now_ns) {
    enum admission_reason reason = answer->reason;
    struct step_pace pace;
    if (reason != ADMISSION_DEADLINE && reason != ADMISSION_WAIT && reason != ADMISSION_PROMISE) return;
    /* Who asks again and again at once must not keep out everybody who has a deadline. */
    if (load_share(&admission->load, now_ns) >= MAX_LOAD_SHARE) return;
    int64_t work_ns = work_of(state, candidate, candidate->n_cached, candidate->n_prompt, &pace);
    note_offered(admission, state, &candidate->terms, work_ns, now_ns);
}
