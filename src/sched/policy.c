#include "sched/policy.h"

#define STORM_PROMPTS 4 /* a heavy tenant with fewer waiting is no storm, but has sent long ones */

enum { LEVEL_RESUMED, LEVEL_OVERDUE, LEVEL_URGENT, LEVEL_FAIR, LEVEL_HELD, LEVEL_YIELDING, LEVELS_OF_A_CLASS };

void policy_init(struct policy *policy, enum policy_kind kind) {
    *policy = (struct policy){.kind = kind};
    for (int i = 0; i < TERMS_MAX_TENANTS; i++) policy->weights[i] = 1;
}

int policy_tenant(struct policy *policy, uint64_t id, double weight, const bool in_use[TERMS_MAX_TENANTS]) {
    int chosen = -1;
    for (int t = 0; t < TERMS_MAX_TENANTS; t++) {
        if (policy->is_known[t] && policy->ids[t] == id) {
            policy->weights[t] = weight;
            return t;
        }
        if (in_use[t]) continue;
        /* Who has received least has least to lose by being forgotten. */
        if (chosen < 0 || policy->received[t] < policy->received[chosen]) chosen = t;
    }
    if (chosen < 0) return (int)(id % TERMS_MAX_TENANTS);
    policy->ids[chosen] = id;
    policy->is_known[chosen] = true;
    policy->is_waiting[chosen] = policy->is_heavy[chosen] = false;
    policy->weights[chosen] = weight;
    policy->received[chosen] = policy->start;
    return chosen;
}

int64_t policy_due_ns(const struct terms *terms) {
    if (terms->deadline_ns) return terms->deadline_ns;
    return terms->promise_ns ? terms->promise_ns + terms->slack_ns : INT64_MAX;
}

void policy_refresh(struct policy *policy, const struct policy_prompt *prompts, int n_prompts) {
    bool waits[TERMS_MAX_TENANTS] = {false};
    policy->has_class[TERMS_INTERACTIVE] = policy->has_class[TERMS_BATCH] = false;
    for (int i = 0; i < n_prompts; i++) {
        waits[prompts[i].terms->tenant] = true;
        policy->has_class[prompts[i].terms->service_class] = true;
    }
    if (!policy->has_class[TERMS_BATCH]) policy->batch_credit_ns = 0;
    if (n_prompts == 0) return; /* keeps is_waiting: a pause of all is nobody's gain */
    double least = -1;
    for (int t = 0; t < TERMS_MAX_TENANTS; t++) {
        if (!waits[t]) continue;
        double earliest = policy->start - POLICY_CREDIT_NS / policy->weights[t];
        if (!policy->is_waiting[t] && policy->received[t] < earliest) policy->received[t] = earliest;
        if (least < 0 || policy->received[t] < least) least = policy->received[t];
    }
    for (int t = 0; t < TERMS_MAX_TENANTS; t++) policy->is_waiting[t] = waits[t];
    if (least > policy->start) policy->start = least;
}

double policy_weight(const struct policy_prompt *prompt) {
    bool gives_way = prompt->terms->service_class == TERMS_BATCH || prompt->level % LEVELS_OF_A_CLASS > LEVEL_FAIR;
    return gives_way ? POLICY_BATCH_SHARE : 1;
}

void policy_charge(struct policy *policy, const struct terms *terms, int64_t work_ns) {
    policy->received[terms->tenant] += (double)work_ns / policy->weights[terms->tenant];
    if (!policy->has_class[TERMS_BATCH]) return;
    if (terms->service_class == TERMS_BATCH)
        policy->batch_credit_ns -= (double)work_ns;
    else
        policy->batch_credit_ns += (double)work_ns * POLICY_BATCH_SHARE / (1 - POLICY_BATCH_SHARE);
    if (policy->batch_credit_ns < 0) policy->batch_credit_ns = 0;
}

/* ---- sorting; n is small and often nearly sorted ---- */

typedef bool is_before_fn(const struct policy_prompt *a, const struct policy_prompt *b);

static void sort(const struct policy_prompt *prompts, int n, int *order, is_before_fn *is_before) {
    for (int i = 1; i < n; i++) {
        int moving = order[i], at = i;
        for (; at > 0 && is_before(&prompts[moving], &prompts[order[at - 1]]); at--) order[at] = order[at - 1];
        order[at] = moving;
    }
}

/* Where keys are equal the earlier one comes first, else the one that lies in front. */
static bool is_older(const struct policy_prompt *a, const struct policy_prompt *b) {
    return a->terms->arrival_ns < b->terms->arrival_ns || (a->terms->arrival_ns == b->terms->arrival_ns && a < b);
}

static bool is_shorter(const struct policy_prompt *a, const struct policy_prompt *b) {
    if (a->terms->service_class != b->terms->service_class) return a->terms->service_class < b->terms->service_class;
    if (a->terms->priority != b->terms->priority) return a->terms->priority < b->terms->priority;
    return a->work_ns < b->work_ns || (a->work_ns == b->work_ns && is_older(a, b));
}

static bool is_due_before(const struct policy_prompt *a, const struct policy_prompt *b) {
    int64_t due_a = policy_due_ns(a->terms), due_b = policy_due_ns(b->terms);
    return due_a < due_b || (due_a == due_b && is_older(a, b));
}

static bool is_served_before(const struct policy_prompt *a, const struct policy_prompt *b) {
    if (a->level != b->level) return a->level < b->level;
    return a->key < b->key || (a->key == b->key && is_older(a, b));
}

/* ---- the order ---- */

static bool is_overdue(const struct terms *terms, int64_t now_ns) {
    int64_t patience = terms->service_class == TERMS_BATCH ? POLICY_BATCH_PATIENCE_NS : POLICY_INTERACTIVE_PATIENCE_NS;
    int64_t promised = terms->promise_ns ? terms->promise_ns - terms->arrival_ns : 0;
    return now_ns - terms->arrival_ns - patience > 4 * promised;
}

/* By the fair order; needs order sorted by is_shorter. */
static void rank_fairly(const struct policy *policy, struct policy_prompt *prompts, int n, int64_t now_ns,
                        const int *order) {
    double work[TERMS_MAX_TENANTS] = {0}; /* of the tenant up to here */
    for (int i = 0; i < n; i++) {
        struct policy_prompt *prompt = &prompts[order[i]];
        const struct terms *terms = prompt->terms;
        int t = terms->tenant;
        work[t] += (double)prompt->work_ns;
        prompt->key = policy->received[t] - policy->start + work[t] / policy->weights[t];
        prompt->level = LEVEL_FAIR;
        if (terms->hold_ns > now_ns) prompt->level = LEVEL_HELD;
        if (prompt->is_resumed) prompt->level = LEVEL_RESUMED;
        if (!prompt->is_resumed && is_overdue(terms, now_ns)) prompt->level = LEVEL_OVERDUE;
        if (prompt->level == LEVEL_RESUMED || prompt->level == LEVEL_OVERDUE) prompt->key = (double)terms->arrival_ns;
    }
}

/* Heavy tenants give way to the others as long as they have received more than one of those that wait. */
static void find_yielding(const struct policy *policy, struct policy_prompt *prompts, int n) {
    double least = -1;
    bool has_light = false;
    int n_waiting[TERMS_MAX_TENANTS] = {0};
    for (int i = 0; i < n; i++) {
        int t = prompts[i].terms->tenant;
        n_waiting[t]++;
        if (prompts[i].terms->service_class == TERMS_BATCH || policy->is_heavy[t]) continue;
        if (!has_light || policy->received[t] < least) least = policy->received[t];
        has_light = true;
    }
    for (int i = 0; i < n; i++) {
        struct policy_prompt *prompt = &prompts[i];
        int t = prompt->terms->tenant;
        bool is_storm = policy->is_heavy[t] && n_waiting[t] >= STORM_PROMPTS;
        prompt->is_yielding = has_light && policy->is_heavy[t] && policy->received[t] >= least;
        if (prompt->is_yielding && is_storm && prompt->level > LEVEL_OVERDUE) prompt->level = LEVEL_YIELDING;
    }
}

/* Needs order sorted by is_due_before. */
static void find_urgent(struct policy_prompt *prompts, int n, int64_t now_ns, const struct step_pace *pace,
                        const int *order) {
    double end_ns = (double)now_ns; /* if all with promises were served in this order */
    int n_urgent = 0;
    for (int i = 0; i < n; i++) {
        struct policy_prompt *prompt = &prompts[order[i]];
        int64_t due = policy_due_ns(prompt->terms);
        double wall_ns = (double)prompt->work_ns * pace->stretch;
        bool has_promise = prompt->level == LEVEL_FAIR && !prompt->is_yielding &&
                           prompt->terms->service_class == TERMS_INTERACTIVE && due != INT64_MAX;
        double slip_ns = (double)(due - prompt->terms->arrival_ns) / 5 + (double)pace->limit_ns;
        prompt->is_keepable = has_promise && (double)now_ns + wall_ns <= (double)due + slip_ns;
        if (!prompt->is_keepable) continue;
        end_ns += wall_ns;
        /* The next decision comes a step later, and the last step of a prompt is a whole one. */
        if (end_ns + 2 * (double)pace->limit_ns >= (double)due) n_urgent = i + 1;
    }
    for (int i = 0; i < n_urgent; i++) {
        struct policy_prompt *prompt = &prompts[order[i]];
        if (!prompt->is_keepable) continue;
        prompt->level = LEVEL_URGENT;
        prompt->key = (double)policy_due_ns(prompt->terms);
    }
}

static void apply_classes(const struct policy *policy, struct policy_prompt *prompts, int n,
                          const struct step_pace *pace) {
    bool is_batch_first = policy->batch_credit_ns >= (double)(pace->limit_ns - pace->decode_ns);
    for (int i = 0; i < n; i++) {
        bool is_batch = prompts[i].terms->service_class == TERMS_BATCH;
        if (prompts[i].level == LEVEL_RESUMED && !is_batch) continue;
        if (is_batch != is_batch_first) prompts[i].level += LEVELS_OF_A_CLASS;
    }
}

static void lend_places(struct policy_prompt *prompts, int n) {
    bool has_changed = true;
    for (int pass = 0; has_changed && pass < n; pass++) {
        has_changed = false;
        for (int i = 0; i < n; i++) {
            struct policy_prompt *waiter = &prompts[i];
            if (waiter->owner < 0 || !is_served_before(waiter, &prompts[waiter->owner])) continue;
            struct policy_prompt *owner = &prompts[waiter->owner];
            has_changed |= owner->level != waiter->level || owner->key != waiter->key;
            owner->level = waiter->level;
            owner->key = waiter->key;
        }
    }
}

static bool is_nearly_late(const struct policy_prompt *prompt, int64_t now_ns, const struct step_pace *pace) {
    int64_t due_ns = policy_due_ns(prompt->terms);
    double end_ns = (double)now_ns + (double)prompt->work_ns * pace->stretch, step_ns = (double)pace->limit_ns;
    double slip_ns = (double)(due_ns - prompt->terms->arrival_ns) / 5 + step_ns;
    return due_ns != INT64_MAX && end_ns + 2 * step_ns >= (double)due_ns && end_ns <= (double)due_ns + slip_ns;
}

/* Batch prompts that are about to be late pass those interactive ones that have more left and are in no hurry: it costs
 * those a part of what they wait anyway. order is final but for that. */
static void pass_longer_ones(const struct policy_prompt *prompts, int n, int64_t now_ns, const struct step_pace *pace,
                             int *order) {
    for (int i = 1; i < n; i++) {
        int moving = order[i], at = i;
        const struct policy_prompt *prompt = &prompts[moving];
        if (prompt->terms->service_class != TERMS_BATCH || !is_nearly_late(prompt, now_ns, pace)) continue;
        for (; at > 0; at--) {
            const struct policy_prompt *before = &prompts[order[at - 1]];
            if (before->level < LEVEL_FAIR || before->level > LEVEL_YIELDING) break;
            if (before->work_ns <= prompt->work_ns) break;
            order[at] = order[at - 1];
        }
        order[at] = moving;
    }
}

void policy_order(const struct policy *policy, struct policy_prompt *prompts, int n_prompts, int64_t now_ns,
                  const struct step_pace *pace, int *order) {
    for (int i = 0; i < n_prompts; i++) order[i] = i;
    if (policy->kind == POLICY_FCFS) {
        sort(prompts, n_prompts, order, is_older);
        return;
    }
    sort(prompts, n_prompts, order, is_shorter);
    rank_fairly(policy, prompts, n_prompts, now_ns, order);
    find_yielding(policy, prompts, n_prompts);
    sort(prompts, n_prompts, order, is_due_before);
    find_urgent(prompts, n_prompts, now_ns, pace, order);
    apply_classes(policy, prompts, n_prompts, pace);
    lend_places(prompts, n_prompts);
    sort(prompts, n_prompts, order, is_served_before);
    pass_longer_ones(prompts, n_prompts, now_ns, pace, order);
}
