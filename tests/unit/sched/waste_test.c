/* KV waste: what paging leaves unused, beside a reservation of the whole context for everybody. */
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sched/commit.h"
#include "sched/plan.h"
#include "sched/room.h"
#include "support/bounds.h"
#include "support/test.h"

enum { N_SEQUENCES = 64, MEAN_TOKENS = 400, MAX_CONTEXT = 4096, BLOCK = 16, CHUNK = 512 };

static struct sequence sequences[N_SEQUENCES], *order[N_SEQUENCES];

static int geometric(uint64_t seed, int i) {
    int n = 1 + (int)(log(1 - rng_uniform(seed, 0, (uint32_t)i)) / log(1 - 1.0 / MEAN_TOKENS));
    return n < 2 ? 2 : n > MAX_CONTEXT ? MAX_CONTEXT : n;
}

static void arrive(struct plan_state *state, struct kv_groups *groups, uint64_t seed) {
    for (int i = 0; i < N_SEQUENCES; i++) {
        int n_tokens = geometric(seed, i), n_prompt = (n_tokens + 1) / 2;
        sequences[i] = (struct sequence){.state = SEQ_WAITING,
                                         .tokens = mem_alloc_array(MAX_CONTEXT, sizeof(uint32_t)),
                                         .n_prompt = n_prompt,
                                         .n_tokens = n_prompt,
                                         .max_tokens = n_tokens,
                                         .logits_from = n_prompt};
        assert_non_null(sequences[i].tokens);
        for (int t = 0; t < n_prompt; t++) sequences[i].tokens[t] = (uint32_t)(i * MAX_CONTEXT + t);
        assert_int_equal(kv_table_init(&sequences[i].kv, groups, MAX_CONTEXT), STATUS_OK);
        kv_table_start(&sequences[i].kv, NULL, true);
        order[i] = &sequences[i];
    }
    state->n_sequences = N_SEQUENCES;
}

/* The shares of a step: unused slots of those held, and of those that reservations would hold. */
static void measure(const struct plan_state *state, double *waste, double *reserved_waste) {
    double n_held = state->groups->groups[0].pool.n_held * (double)BLOCK, n_running = 0;
    double n_unused = (double)room_usage_of(state, 0).n_unused_slots;
    for (int i = 0; i < state->n_sequences; i++) n_running += state->sequences[i]->state == SEQ_RUNNING;
    *waste += n_unused / n_held;
    *reserved_waste += 1 - (n_held - n_unused) / (n_running * MAX_CONTEXT);
}

static void commit(struct plan *plan, struct plan_state *state) {
    for (int i = 0; i < plan->n_items; i++) {
        const struct plan_item item = plan->items[i];
        commit_rows(&item);
        if (item.is_sampled) commit_token(&item, (uint32_t)item.to);
    }
    for (int i = state->n_sequences - 1; i >= 0; i--)
        if (order[i]->n_tokens == order[i]->max_tokens) commit_retire(order[i], state);
}

static void paging_wastes_little(void **state_) {
    (void)state_;
    struct kv_groups groups;
    struct kv_groups_options options = {.n_groups = 1,
                                        .block_tokens = BLOCK,
                                        .tile_tokens = BLOCK,
                                        .n_blocks = {N_SEQUENCES * MAX_CONTEXT / BLOCK},
                                        .has_index = true,
                                        .hash = hash_sha256};
    struct plan_limits limits = {.max_sequences = N_SEQUENCES,
                                 .max_rows = CHUNK + N_SEQUENCES,
                                 .max_logit_rows = N_SEQUENCES,
                                 .max_prefill_rows = CHUNK,
                                 .step = {.is_unbounded = true}};
    struct plan_state state = {.limits = limits, .sequences = order, .groups = &groups};
    struct plan plan;
    const int one = 1;
    const double one_ns = 1000;
    double waste = 0, reserved_waste = 0;
    int n_steps = 0;
    assert_int_equal(kv_groups_init(&groups, &options), STATUS_OK);
    assert_int_equal(plan_init(&plan, &limits), STATUS_OK);
    policy_init(&state.policy, POLICY_FCFS);
    assert_int_equal(step_cost_init(&state.cost, 1, &one, &one_ns, NULL), STATUS_OK);
    arrive(&state, &groups, 400);
    for (; state.n_sequences; n_steps++) {
        plan_make(&plan, &state, n_steps);
        for (int i = 0; i < state.n_sequences; i++) kv_table_end_copy(&order[i]->kv);
        commit(&plan, &state);
        if (state.n_sequences) measure(&state, &waste, &reserved_waste);
    }
    print_message("%.2f %% of the held slots are unused (contiguous reservation of %d: %.1f %%), %d steps\n",
                  100 * waste / n_steps, MAX_CONTEXT, 100 * reserved_waste / n_steps, n_steps);
    assert_true(waste / n_steps < bounds_value("kv_waste"));
    assert_true(waste > 0);
    for (int i = 0; i < N_SEQUENCES; i++) {
        kv_table_deinit(&sequences[i].kv);
        mem_free(sequences[i].tokens);
    }
    plan_deinit(&plan);
    kv_groups_deinit(&groups);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(paging_wastes_little)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
