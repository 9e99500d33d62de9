/* Plans of the scheduler: random lives of sequences, and single properties where they can be read. */
#include <stdlib.h>
#include <time.h>

#include "unit/sched/world.h"

#define N_STEPS 10000

/* ---- random lives ---- */

static void random_step(struct world *w, int max_tokens) {
    while (w->state.n_sequences < w->state.limits.max_sequences && below(w, 3) == 0) arrive_random(w, max_tokens);
    if (w->state.n_sequences && below(w, 12) == 0) {
        struct slot *slot = slot_of(w->state.sequences[below(w, w->state.n_sequences)]);
        w->n_cancels++;
        if (below(w, 2)) {
            retire(w, slot);
        } else {
            slot->sequence.is_cancelled = true; /* retired some steps later */
        }
    }
    for (int i = w->state.n_sequences - 1; i >= 0; i--)
        if (w->state.sequences[i]->is_cancelled && below(w, 3) == 0) retire(w, slot_of(w->state.sequences[i]));
    step(w);
}

static uint64_t seed_of_run(void) {
    const char *asked = getenv("KVICK_SEED");
    uint64_t seed = asked ? strtoull(asked, NULL, 10) : 1; /* the same lives each time: another seed by hand */
    print_message("KVICK_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static void run_random(struct plan_limits limits, int n_blocks, int n_windowed, bool has_index) {
    static struct world w;
    int max_tokens = n_blocks * BLOCK_TOKENS < MAX_TOKENS ? n_blocks * BLOCK_TOKENS : MAX_TOKENS;
    open_groups(&w, seed_of_run(), limits, n_blocks, n_windowed, has_index);
    for (int i = 0; i < N_STEPS; i++) random_step(&w, max_tokens);
    print_message("%ld rows, %ld finished, %ld cancelled, %ld hits, %ld copies, %ld waits, %ld mixed, %ld full steps, "
                  "%ld preempted\n",
                  w.n_rows, w.n_finished, w.n_cancels, w.n_hits, w.n_copies, w.n_no_blocks, w.n_mixed, w.n_cut,
                  (long)w.state.n_preempted);
    /* A run in which something never happened would prove nothing about it. */
    assert_true(w.n_finished > 100 && w.n_cancels > 100 && w.n_no_blocks > 100 && w.n_cut > 100);
    assert_true(limits.max_sequences == 1 || limits.max_rows == 1 || w.n_mixed > 100);
    bool is_roomy = n_blocks == MAX_BLOCKS || limits.max_rows == 1 || n_windowed == 9;
    assert_true(w.state.n_preempted > 20 || is_roomy);
    assert_true(!has_index || (w.n_hits > 100 && w.n_copies > 50));
    close_world(&w);
}

static void random_lives_with_a_prefix_cache(void **state) {
    (void)state;
    run_random(limits_of(MAX_SEQUENCES, 16, MAX_SEQUENCES + 2), 20, 0, true);
}

static void random_lives_without_one(void **state) {
    (void)state;
    run_random(limits_of(MAX_SEQUENCES, 16, MAX_SEQUENCES + 2), 20, 0, false);
}

static void random_lives_with_room_for_all(void **state) {
    (void)state;
    run_random(limits_of(MAX_SEQUENCES, 20, 40), MAX_BLOCKS, 0, true);
}

/* The pool holds one sequence's blocks and nothing else: what the cache holds must give way. */
static void random_lives_in_the_smallest_pool(void **state) {
    (void)state;
    run_random(limits_of(3, 5, 3), 8, 0, true);
}

static void random_lives_with_a_windowed_group(void **state) {
    (void)state;
    run_random(limits_of(MAX_SEQUENCES, 16, MAX_SEQUENCES + 2), 24, 24, true);
    run_random(limits_of(4, 8, 4), 24, 9, true);
}

static void random_lives_a_row_at_a_time(void **state) {
    (void)state;
    run_random(limits_of(4, 1, 4), 20, 0, true);
}

static void constant_hash(const void *a, size_t n_a, const void *b, size_t n_b, uint8_t out[HASH_SHA256_BYTES]) {
    (void)a, (void)n_a, (void)b, (void)n_b;
    memset(out, 7, HASH_SHA256_BYTES);
}

/* All prefixes collide: tokens alone tell them apart. */
static void random_lives_with_a_constant_hash(void **state) {
    (void)state;
    world_hash = constant_hash;
    run_random(limits_of(MAX_SEQUENCES, 16, MAX_SEQUENCES + 2), 20, 0, true);
    run_random(limits_of(MAX_SEQUENCES, 16, MAX_SEQUENCES + 2), 24, 24, true);
    world_hash = hash_sha256;
}

/* ---- single properties, where they can be read ---- */

static void decode_goes_before_prompts(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(4, 8, 4), MAX_BLOCKS, false);
    struct slot *first = arrive(&w, counting, 4, 10, 4, false);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(w.plan.n_items, 1);
    assert_int_equal(w.plan.n_rows, 4);
    assert_int_equal(w.plan.n_logit_rows, 1);
    commit_rows(&w.plan.items[0]);
    commit_token(&w.plan.items[0], 7);
    struct slot *second = arrive(&w, counting, 20, 1, 20, false), *third = arrive(&w, counting, 3, 1, 3, false);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(w.plan.n_items, 2);
    assert_ptr_equal(w.plan.items[0].sequence, &first->sequence);
    assert_true(w.plan.items[0].is_sampled && w.plan.items[0].from == 4 && w.plan.items[0].to == 5);
    assert_ptr_equal(w.plan.items[1].sequence, &second->sequence);
    assert_true(!w.plan.items[1].is_sampled && w.plan.items[1].from == 0 && w.plan.items[1].to == 7);
    assert_int_equal(w.plan.n_rows, 8);
    assert_int_equal(w.plan.n_logit_rows, 1);
    assert_int_equal(third->sequence.state, SEQ_WAITING);
    close_world(&w);
}

static void nobody_overtakes_who_waits_for_blocks(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(4, 64, 4), 6, false);
    struct slot *first = arrive(&w, counting, 12, 4, 12, false); /* 4 of 6 blocks */
    struct slot *large = arrive(&w, counting, 12, 1, 12, false), *small = arrive(&w, counting, 4, 1, 4, false);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(w.plan.n_items, 1);
    assert_true(large->sequence.state == SEQ_WAITING && small->sequence.state == SEQ_WAITING);
    commit_retire(&first->sequence, &w.state);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(w.plan.n_items, 2);
    assert_ptr_equal(w.plan.items[0].sequence, &large->sequence);
    close_world(&w);
}

static void blocks_are_taken_as_rows_come(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(1, 6, 1), 4, false);
    struct slot *slot = arrive(&w, counting, 8, 2, 8, false);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(slot->sequence.kv.n_blocks, 2);
    commit_rows(&w.plan.items[0]);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(slot->sequence.kv.n_blocks, 2);
    commit_rows(&w.plan.items[0]);
    commit_token(&w.plan.items[0], 1);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(slot->sequence.kv.n_blocks, 3);
    close_world(&w);
}

/* The last token sampled is never run: 4 + 1 tokens fit into the only block. */
static void the_last_token_is_never_run_and_needs_no_block(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(1, 64, 1), 1, false);
    struct slot *slot = arrive(&w, counting, 4, 1, 4, false);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(slot->sequence.state, SEQ_RUNNING);
    close_world(&w);
}

static void cancelled_ones_get_no_rows(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(3, 64, 3), 12, true);
    struct slot *waiting = arrive(&w, counting, 4, 2, 4, true);
    waiting->sequence.is_cancelled = true;
    struct slot *running = arrive(&w, counting, 4, 2, 4, true);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(w.plan.n_items, 1);
    assert_ptr_equal(w.plan.items[0].sequence, &running->sequence);
    commit_rows(&w.plan.items[0]);
    commit_token(&w.plan.items[0], 1);
    running->sequence.is_cancelled = true;
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(w.plan.n_items, 0);
    assert_int_equal(waiting->sequence.state, SEQ_WAITING);
    close_world(&w);
}

static void a_second_turn_finds_the_first_ones_blocks(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(1, 64, 1), 12, true);
    struct slot *slot = arrive(&w, counting, 14, 0, 14, true);
    plan_make(&w.plan, &w.state, w.n_steps);
    commit_rows(&w.plan.items[0]);
    commit_retire(&slot->sequence, &w.state);
    assert_int_equal(pool_of(&w)->n_reusable, 4); /* the last one holds 2 tokens */
    slot = arrive(&w, counting, 20, 1, 20, true);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(slot->sequence.n_cached_tokens, 14);
    assert_int_equal(w.plan.items[0].from, 14);
    commit_retire(&slot->sequence, &w.state);
    /* the same prompt: its last token is run again, its block copied, not written */
    slot = arrive(&w, counting, 12, 1, 12, true);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(slot->sequence.n_cached_tokens, 11);
    assert_true(slot->sequence.kv.has_copy);
    assert_int_equal(slot->sequence.kv.copy_to, 2);
    commit_retire(&slot->sequence, &w.state);
    /* wanted logits are computed, whatever is cached */
    slot = arrive(&w, counting, 12, 1, 5, true);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(slot->sequence.n_cached_tokens, 5);
    assert_int_equal(w.plan.items[0].logits_from, 5);
    close_world(&w);
}

/* As many answers as a step has rows: over four steps they leave one step's rows to the prompt behind them. */
static void answers_leave_rows_to_a_prompt(void **state) {
    (void)state;
    enum { N_ANSWERS = 4, N_WATCHED = 4 };
    static struct world w;
    open_world(&w, 1, limits_of(N_ANSWERS + 1, N_ANSWERS, N_ANSWERS + 1), MAX_BLOCKS, false);
    struct slot *answers[N_ANSWERS];
    for (int i = 0; i < N_ANSWERS; i++) {
        answers[i] = arrive(&w, counting, 1, 12, 1, false);
        while (!sequence_is_decoding(&answers[i]->sequence)) step(&w);
    }
    struct slot *prompt = arrive(&w, counting, 12, 1, 12, false);
    for (int i = 0; i < N_WATCHED; i++) step(&w);
    assert_int_equal(prompt->sequence.n_computed, N_ANSWERS);
    while (w.state.n_sequences) step(&w);
    close_world(&w);
}

/* One row a step: batch answers get one of eight while an interactive prompt waits, and all of them afterwards. */
static void batch_answers_let_prompts_pass(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(2, 1, 2), MAX_BLOCKS, false);
    w.state.policy.kind = POLICY_PROMISES;
    struct slot *batch = arrive(&w, counting, 4, 40, 4, false);
    batch->sequence.terms.service_class = TERMS_BATCH;
    while (!sequence_is_decoding(&batch->sequence)) step(&w);
    struct slot *prompt = arrive(&w, counting, 16, 1, 16, false);
    int n_before = batch->sequence.n_tokens;
    while (prompt->sequence.state != SEQ_FREE) step(&w);
    int n_meanwhile = batch->sequence.n_tokens - n_before;
    assert_true(n_meanwhile >= 1 && n_meanwhile <= 3);
    step(&w);
    assert_int_equal(batch->sequence.n_tokens, n_before + n_meanwhile + 1);
    while (w.state.n_sequences) step(&w);
    close_world(&w);
}

/* A row takes row_ns more than the one before; the first one first_ns. Steps are bounded, but amply. */
static void open_timed(struct world *w, double first_ns, double row_ns) {
    const int rows[] = {1, 1001};
    const double ns[] = {first_ns, first_ns + 1000 * row_ns};
    struct plan_limits limits = limits_of(4, 40, 4);
    limits.step = (struct step_limits){.target_itl_ns = 1000000000, .max_step_ns = 1000000000};
    open_world(w, 1, limits, MAX_BLOCKS, false);
    policy_init(&w->state.policy, POLICY_PROMISES);
    assert_int_equal(step_cost_init(&w->state.cost, 2, rows, ns, NULL), STATUS_OK);
}

static void a_first_token_does_not_wait_for_a_long_prompts_rows(void **state) {
    (void)state;
    static struct world w;
    open_timed(&w, 1000, 1000);
    struct slot *longer = arrive(&w, counting, 20, 1, 20, false), *shorter = arrive(&w, counting, 3, 1, 3, false);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(w.plan.n_items, 1);
    assert_ptr_equal(w.plan.items[0].sequence, &shorter->sequence);
    assert_true(w.plan.items[0].to == 3 && w.plan.items[0].is_sampled);
    assert_int_equal(longer->sequence.state, SEQ_WAITING); /* holds no blocks for nothing */
    w.state.policy.kind = POLICY_FCFS;
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(w.plan.n_items, 2);
    close_world(&w);
    open_timed(&w, 1000000, 1); /* a step of its own would cost more than it delays */
    arrive(&w, counting, 20, 1, 20, false), arrive(&w, counting, 3, 1, 3, false);
    plan_make(&w.plan, &w.state, w.n_steps);
    assert_int_equal(w.plan.n_items, 2);
    assert_int_equal(w.plan.n_rows, 23);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lives_with_a_constant_hash),
        cmocka_unit_test(batch_answers_let_prompts_pass),
        cmocka_unit_test(answers_leave_rows_to_a_prompt),
        cmocka_unit_test(a_first_token_does_not_wait_for_a_long_prompts_rows),
        cmocka_unit_test(decode_goes_before_prompts),
        cmocka_unit_test(nobody_overtakes_who_waits_for_blocks),
        cmocka_unit_test(blocks_are_taken_as_rows_come),
        cmocka_unit_test(the_last_token_is_never_run_and_needs_no_block),
        cmocka_unit_test(cancelled_ones_get_no_rows),
        cmocka_unit_test(a_second_turn_finds_the_first_ones_blocks),
        cmocka_unit_test(random_lives_with_a_prefix_cache),
        cmocka_unit_test(random_lives_without_one),
        cmocka_unit_test(random_lives_with_room_for_all),
        cmocka_unit_test(random_lives_in_the_smallest_pool),
        cmocka_unit_test(random_lives_with_a_windowed_group),
        cmocka_unit_test(random_lives_a_row_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
