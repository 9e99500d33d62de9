#include "sched/step_bound.h"

static int64_t longer(int64_t a, int64_t b) {
    return a > b ? a : b;
}

int64_t step_bound_ns(const struct step_cost *cost, const struct step_limits *limits, const struct step_shape *decode,
                      enum step_urgency urgency) {
    struct step_shape one = {.n_rows = 1};
    int64_t one_ns = step_cost_ns(cost, &one);
    if (limits->is_unbounded) return STEP_COST_MAX_NS;
    int64_t wanted_ns = decode->n_rows > 0 ? limits->target_itl_ns : limits->max_step_ns;
    int64_t least_ns = decode->n_rows > 0 ? step_cost_ns(cost, decode) / 2 * 3 : 2 * one_ns;
    if (urgency == STEP_READY) wanted_ns /= 2;
    int64_t bound_ns = longer(wanted_ns, least_ns);
    if (urgency == STEP_RELAXED) bound_ns = longer(bound_ns, longer(limits->batch_step_ns, 20 * one_ns));
    return bound_ns;
}

struct step_pace step_bound_pace(const struct step_cost *cost, const struct step_limits *limits,
                                 const struct step_shape *decode, enum step_urgency urgency, int max_rows) {
    struct step_pace pace = {.limit_ns = step_bound_ns(cost, limits, decode, urgency),
                             .decode_ns = step_cost_ns(cost, decode),
                             .key_ns = cost->prefill_key_ns,
                             .stretch = 1};
    /* Keys are counted apart, so the largest chunk is looked for without them. */
    struct step_cost flat = *cost;
    flat.prefill_key_ns = 0;
    int n = step_cost_max_prefill(&flat, decode, 0, max_rows, max_rows, pace.limit_ns);
    if (n < 1) n = 1; /* a prompt always advances */
    struct step_shape shape = *decode;
    step_cost_add_prefill(&flat, &shape, 0, n, 0);
    int64_t step_ns = step_cost_ns(&flat, &shape);
    pace.row_ns = (double)(step_ns - pace.decode_ns) / n;
    if (limits->is_unbounded) pace.limit_ns = step_ns;
    if (pace.limit_ns > pace.decode_ns) pace.stretch = (double)pace.limit_ns / (double)(pace.limit_ns - pace.decode_ns);
    return pace;
}

int64_t step_bound_work_ns(const struct step_cost *cost, const struct step_pace *pace, int from, int to) {
    double ns = (to - from) * pace->row_ns + step_cost_keys(cost, from, to) * pace->key_ns;
    return ns < (double)STEP_COST_MAX_NS ? (int64_t)ns : STEP_COST_MAX_NS;
}
