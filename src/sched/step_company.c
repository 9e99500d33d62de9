#include "sched/step_company.h"

struct step_company step_company_begin(const struct policy *policy, bool is_unbounded,
                                       const struct policy_prompt *prompts, int n_prompts) {
    struct step_company company = {.takes_all = policy->kind == POLICY_FCFS || is_unbounded};
    for (int i = 0; i < n_prompts; i++) company.waiting += policy_weight(&prompts[i]);
    return company;
}

/* The chunk in a step of its own. */
static struct step_shape alone(const struct step_shape *decode, const struct step_shape *step,
                               const struct step_shape *joined) {
    struct step_shape shape = *decode;
    shape.n_rows += joined->n_rows - step->n_rows;
    shape.n_logit_rows += joined->n_logit_rows - step->n_logit_rows;
    shape.n_prefill_keys += joined->n_prefill_keys - step->n_prefill_keys;
    return shape;
}

bool step_company_joins(const struct step_company *company, const struct step_cost *cost,
                        const struct step_shape *decode, const struct step_shape *step,
                        const struct step_shape *joined) {
    if (company->takes_all || company->ending < 1) return true; /* nobody whose wait counts in full */
    struct step_shape own = alone(decode, step, joined);
    double step_ns = (double)step_cost_ns(cost, step), joined_ns = (double)step_cost_ns(cost, joined);
    double saved_ns = step_ns + (double)step_cost_ns(cost, &own) - joined_ns;
    return saved_ns * company->waiting >= (joined_ns - step_ns) * company->ending;
}

void step_company_end(struct step_company *company, double weight) {
    company->waiting -= weight;
    company->ending += weight;
}
