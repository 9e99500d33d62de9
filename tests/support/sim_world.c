#include "support/sim_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sched/commit.h"
#include "support/test.h"

struct sim_slot {
    struct sequence sequence;
    struct sim_request *request;
    int64_t last_token_ns, last_row_ns;
};

void sim_cost(struct step_cost *cost) {
    static const int rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
    static const double ms[] = {12, 13, 15, 19, 25, 38, 62, 112, 212, 415, 825};
    double ns[11];
    for (int i = 0; i < 11; i++) ns[i] = ms[i] * 1e6;
    assert_int_equal(step_cost_init(cost, 11, rows, ns, NULL), STATUS_OK);
    cost->prefill_key_ns = 60;
    cost->decode_key_ns = 300;
    cost->logit_row_ns = 200000;
}

struct plan_limits sim_limits(int max_sequences, int max_chunk) {
    return (struct plan_limits){
        .max_sequences = max_sequences,
        .max_rows = max_chunk + max_sequences,
        .max_logit_rows = max_sequences,
        .max_prefill_rows = max_chunk,
        .step = {.target_itl_ns = 50 * SIM_MS, .max_step_ns = 60 * SIM_MS, .batch_step_ns = 250 * SIM_MS}};
}

double sim_uniform(struct sim_world *world) {
    return rng_uniform(world->options.seed, 7, world->n_draws++);
}

void sim_open(struct sim_world *world, const struct sim_options *options) {
    int n = options->limits.max_sequences;
    *world = (struct sim_world){.options = *options};
    struct kv_groups_options groups = {.n_groups = 1,
                                       .block_tokens = options->block_tokens,
                                       .tile_tokens = 64,
                                       .n_blocks = {options->n_blocks},
                                       .has_index = options->has_index,
                                       .identity = "m",
                                       .n_identity = 1,
                                       .hash = hash_sha256};
    assert_int_equal(kv_groups_init(&world->groups, &groups), STATUS_OK);
    assert_int_equal(plan_init(&world->plan, &options->limits), STATUS_OK);
    assert_int_equal(admission_init(&world->admission, &options->admission, n), STATUS_OK);
    world->slots = calloc((size_t)n, sizeof *world->slots);
    world->state = (struct plan_state){
        .limits = options->limits, .sequences = calloc((size_t)n, sizeof(struct sequence *)), .groups = &world->groups};
    assert_true(world->slots && world->state.sequences);
    policy_init(&world->state.policy, options->policy);
    sim_cost(&world->state.cost);
    int max_tokens = options->n_blocks * options->block_tokens;
    if (max_tokens > options->admission.max_context) max_tokens = options->admission.max_context;
    for (int i = 0; i < n; i++)
        assert_int_equal(kv_table_init(&world->slots[i].sequence.kv, &world->groups, max_tokens), STATUS_OK);
}

static void leave(struct sim_world *world, struct sim_slot *slot) {
    commit_retire(&slot->sequence, &world->state);
    free(slot->sequence.tokens);
    slot->sequence.tokens = NULL;
    slot->request->end_ns = world->now_ns;
    slot->request = NULL;
}

void sim_close(struct sim_world *world) {
    for (int i = 0; i < world->options.limits.max_sequences; i++) {
        struct sim_slot *slot = &world->slots[i];
        if (slot->sequence.state != SEQ_FREE) leave(world, slot);
        kv_table_deinit(&slot->sequence.kv);
    }
    assert_int_equal(world->groups.groups[0].pool.n_held, 0);
    kv_groups_deinit(&world->groups);
    free(world->slots);
    free(world->state.sequences);
    admission_deinit(&world->admission);
    plan_deinit(&world->plan);
}

/* ---- arrivals ---- */

static void arrive(struct sim_world *world, struct sim_request *request, uint64_t number) {
    struct plan_state *state = &world->state;
    struct admission_candidate candidate = {
        .n_prompt = request->n_prompt,
        .max_new = request->max_new,
        .logits_from = request->n_prompt,
        .terms = {.service_class = request->service_class,
                  .tenant = admission_tenant(state, request->tenant, request->weight ? request->weight : 1),
                  .arrival_ns = world->now_ns}};
    if (request->patience_ns) candidate.terms.deadline_ns = request->at_ns + request->patience_ns;
    request->answer = admission_answer(&world->admission, state, &candidate, world->now_ns);
    struct admission_answer again = admission_answer(&world->admission, state, &candidate, world->now_ns);
    assert_memory_equal(&again, &request->answer, sizeof again); /* asking changes nothing */
    request->terms = candidate.terms;
    if (request->is_forced && request->answer.estimate_ns) request->answer.reason = ADMISSION_ADMITTED;
    if (request->answer.reason != ADMISSION_ADMITTED) {
        admission_refuse(&world->admission, state, &candidate, &request->answer, world->now_ns);
        return;
    }
    struct sim_slot *slot = world->slots;
    while (slot->sequence.state != SEQ_FREE) slot++;
    int max_tokens = request->n_prompt + request->max_new;
    uint32_t *tokens = malloc((size_t)max_tokens * sizeof *tokens);
    assert_non_null(tokens);
    for (int i = 0; i < request->n_prompt; i++)
        tokens[i] = i < request->n_prefix ? (uint32_t)(request->prefix + 1) : (uint32_t)(number * 7919 + (uint64_t)i);
    request->terms = admission_accept(&world->admission, state, &candidate, &request->answer, world->now_ns);
    struct kv_table kv = slot->sequence.kv;
    *slot = (struct sim_slot){.request = request, .last_row_ns = world->now_ns};
    slot->sequence = (struct sequence){.state = SEQ_WAITING,
                                       .request_id = number,
                                       .tokens = tokens,
                                       .n_prompt = request->n_prompt,
                                       .n_tokens = request->n_prompt,
                                       .max_tokens = max_tokens,
                                       .logits_from = request->n_prompt,
                                       .terms = request->terms,
                                       .kv = kv};
    kv_table_start(&slot->sequence.kv, NULL, true);
    state->sequences[state->n_sequences++] = &slot->sequence;
}

static void cancel_due(struct sim_world *world) {
    for (int i = 0; i < world->options.limits.max_sequences; i++) {
        struct sim_slot *slot = &world->slots[i];
        if (slot->sequence.state == SEQ_FREE || !slot->request->cancel_ns) continue;
        if (world->now_ns < slot->request->at_ns + slot->request->cancel_ns) continue;
        slot->request->is_cancelled = true;
        leave(world, slot);
    }
}

/* ---- a step ---- */

static void check_plan(struct sim_world *world) {
    const struct plan *plan = &world->plan;
    const struct plan_limits *limits = &world->options.limits;
    int n_rows = 0, n_logits = 0, n_prefill = 0;
    struct step_shape shape = {0};
    for (int i = 0; i < plan->n_items; i++) {
        const struct plan_item *item = &plan->items[i];
        int n = item->to - item->from;
        assert_true(item->from == item->sequence->n_computed && n > 0 && item->to <= item->sequence->n_tokens);
        n_rows += n;
        n_logits += item->to - item->logits_from;
        if (i >= plan->n_decode_rows) n_prefill += n;
        if (i < plan->n_decode_rows)
            step_cost_add_decode(&world->state.cost, &shape, item->from);
        else
            step_cost_add_prefill(&world->state.cost, &shape, item->from, item->to, item->to - item->logits_from);
    }
    assert_true(n_rows <= limits->max_rows && n_logits <= limits->max_logit_rows);
    assert_true(n_prefill <= limits->max_prefill_rows);
    assert_true(plan->predicted_ns == step_cost_ns(&world->state.cost, &shape));
    if (plan->predicted_ns > plan->limit_ns) {
        /* Only decode itself, or the one row with which a prompt always advances. */
        assert_true(n_prefill <= 1);
        world->n_over_bound++;
    }
    world->n_rows += n_rows;
    world->n_prompt_tokens += n_prefill;
    world->n_mixed += n_prefill > 0 && plan->n_decode_rows > 0;
    world->n_several += plan->n_items > plan->n_decode_rows + 1;
}

static void check_blocks(const struct sim_world *world) {
    const struct block_pool *pool = &world->groups.groups[0].pool;
    const char *broken = kv_groups_check(&world->groups);
    int n_refs = 0, n_expected = 0;
    for (int i = 0; !broken && i < world->state.n_sequences; i++)
        broken = kv_table_check(&world->state.sequences[i]->kv);
    if (broken) fail_msg("%s", broken);
    for (int i = 0; i < pool->n_blocks; i++) n_refs += block_pool_n_refs(pool, (block_id)i);
    for (int i = 0; i < world->state.n_sequences; i++) n_expected += kv_table_n_held(&world->state.sequences[i]->kv, 0);
    assert_int_equal(n_refs, n_expected);
}

static void commit(struct sim_world *world, const struct plan_item *item) {
    struct sim_slot *slot = (struct sim_slot *)item->sequence; /* its first member */
    struct sequence *sequence = item->sequence;
    if (world->now_ns - slot->last_row_ns > world->longest_wait_ns)
        world->longest_wait_ns = world->now_ns - slot->last_row_ns;
    slot->last_row_ns = world->now_ns;
    commit_rows(item);
    if (item->is_sampled) {
        commit_token(item, (uint32_t)world->n_steps);
        if (!slot->request->first_token_ns) slot->request->first_token_ns = world->now_ns;
        int64_t gap = slot->last_token_ns ? world->now_ns - slot->last_token_ns : 0;
        if (gap > slot->request->longest_gap_ns) slot->request->longest_gap_ns = gap;
        slot->last_token_ns = world->now_ns;
    }
    bool is_over =
        sequence->n_tokens == sequence->max_tokens && (item->is_sampled || sequence->n_computed == sequence->n_tokens);
    if (is_over) leave(world, slot);
}

static void step(struct sim_world *world) {
    plan_make(&world->plan, &world->state, world->now_ns);
    check_plan(world);
    assert_true(world->plan.n_items > 0); /* whoever is there goes on */
    for (int i = 0; i < world->state.n_sequences; i++)
        if (world->state.sequences[i]->kv.has_copy) kv_table_end_copy(&world->state.sequences[i]->kv);
    double noise = 1 + world->options.noise * (2 * sim_uniform(world) - 1);
    int64_t ns = (int64_t)((double)world->plan.predicted_ns * noise);
    world->now_ns += ns;
    world->busy_ns += ns;
    world->n_steps++;
    for (int i = 0; i < world->plan.n_items; i++) {
        const struct plan_item item = world->plan.items[i];
        commit(world, &item);
    }
    if (world->n_steps % 64 == 0) check_blocks(world);
}

void sim_play(struct sim_world *world, struct sim_request *requests, int n_requests, int64_t end_ns) {
    int next = 0;
    while (next < n_requests || world->state.n_sequences > 0) {
        if (end_ns && world->now_ns >= end_ns) break;
        if (world->state.n_sequences == 0 && requests[next].at_ns > world->now_ns) world->now_ns = requests[next].at_ns;
        for (; next < n_requests && requests[next].at_ns <= world->now_ns; next++)
            arrive(world, &requests[next], (uint64_t)next);
        cancel_due(world);
        if (world->state.n_sequences > 0) step(world);
    }
}

double sim_exponential(double uniform) {
    return -log(1 - uniform);
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t sim_percentile(int64_t *values, int n, double share) {
    assert_true(n > 0);
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[(int)(share * (n - 1))];
}

int64_t sim_least_work_ns(const struct step_cost *cost, int n_prompt) {
    double row_ns = cost->rows_ns[0];
    for (int i = 0; i < cost->n_points; i++)
        if (cost->rows_ns[i] / cost->rows[i] < row_ns) row_ns = cost->rows_ns[i] / cost->rows[i];
    double least = n_prompt * row_ns + step_cost_keys(cost, 0, n_prompt) * cost->prefill_key_ns + cost->logit_row_ns;
    return (int64_t)least;
}
