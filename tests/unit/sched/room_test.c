/* Who gives way when blocks run out, that everybody ends all the same, and that nobody computes what another computes.
 */
#include "sched/room.h"

#include "sched/single_flight.h"
#include "unit/sched/world.h"

/* ---- preemption ---- */

static void run_until_decoding(struct world *w, struct slot *slot) {
    for (int i = 0; i < 10 && !sequence_is_decoding(&slot->sequence); i++) step(w);
    assert_true(sequence_is_decoding(&slot->sequence));
}

static void the_last_in_rank_gives_way(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(3, 64, 3), 9, false);
    struct slot *slots[3];
    for (int i = 0; i < 3; i++) slots[i] = arrive(&w, counting + i, 7, 30, 7, false);
    for (int i = 0; i < 3; i++) run_until_decoding(&w, slots[i]);
    assert_ptr_equal(room_victim(&w.state, &slots[0]->sequence), &slots[2]->sequence);
    assert_ptr_equal(room_victim(&w.state, &slots[1]->sequence), &slots[2]->sequence);
    assert_null(room_victim(&w.state, &slots[2]->sequence));
    slots[0]->sequence.terms.service_class = TERMS_BATCH;
    assert_ptr_equal(room_victim(&w.state, &slots[2]->sequence), &slots[0]->sequence);
    slots[0]->sequence.terms.service_class = TERMS_INTERACTIVE;
    while (w.state.n_preempted == 0) step(&w);
    assert_int_equal(slots[2]->sequence.n_preempted, 1);
    assert_int_equal(slots[2]->sequence.state, SEQ_WAITING);
    assert_int_equal(slots[2]->sequence.kv.n_blocks, 0);
    close_world(&w);
}

/* Who comes back finds what it had computed itself: that was never somebody else's work. */
static void own_blocks_are_no_cached_tokens(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(3, 64, 3), 9, true);
    struct slot *slots[3];
    for (int i = 0; i < 3; i++) slots[i] = arrive(&w, counting + 6 * i, 7, 8, 7, true);
    const struct sequence *victim = &slots[2]->sequence;
    for (int i = 0; i < 20 && !victim->n_preempted; i++) step(&w);
    assert_int_equal(victim->n_preempted, 1);
    for (int i = 0; i < 20 && victim->state == SEQ_WAITING; i++) step(&w);
    int n_again = 0;
    for (int pos = 0; pos < victim->n_done; pos++) n_again += slots[2]->n_times[pos] > 1;
    assert_true(victim->state == SEQ_RUNNING && n_again < victim->n_done - 1);
    assert_int_equal(victim->n_cached_tokens, 0);
    close_world(&w);
}

/* A batch answer that holds most of the pool, and a prompt that needs more than is left. */
static struct slot *open_full(struct world *w, enum policy_kind policy, struct slot **out_batch) {
    open_world(w, 1, limits_of(2, 64, 2), 9, false);
    w->state.policy.kind = policy;
    *out_batch = arrive(w, counting, 7, 30, 7, false);
    (*out_batch)->sequence.terms.service_class = TERMS_BATCH;
    while ((*out_batch)->sequence.kv.n_blocks < 5) step(w);
    return arrive(w, counting, 20, 4, 20, false);
}

static void a_waiting_prompt_gets_the_blocks_of_batch_work(void **state) {
    (void)state;
    static struct world w;
    struct slot *batch, *prompt = open_full(&w, POLICY_PROMISES, &batch);
    step(&w);
    assert_int_equal(batch->sequence.n_preempted, 1);
    assert_int_equal(prompt->sequence.state, SEQ_RUNNING);
    while (w.state.n_sequences) step(&w);
    close_world(&w);
}

/* Not those of other interactive work, nor of batch work that was interrupted often, and with FCFS none. */
static void others_keep_their_blocks(void **state) {
    (void)state;
    static struct world w;
    for (int i = 0; i < 3; i++) {
        struct slot *other, *prompt = open_full(&w, i == 0 ? POLICY_FCFS : POLICY_PROMISES, &other);
        if (i == 1) other->sequence.n_preempted = ROOM_MAX_INTERRUPTS;
        if (i == 2) other->sequence.terms.service_class = TERMS_INTERACTIVE;
        step(&w);
        assert_int_equal(w.state.n_preempted, 0);
        assert_int_equal(prompt->sequence.state, SEQ_WAITING);
        while (w.state.n_sequences) step(&w);
        close_world(&w);
    }
}

/* Everybody alone fits the pool, all together by far not: all end, whatever their classes, in few enough steps. */
static void everybody_ends(void **state) {
    (void)state;
    static struct world w;
    long n_preempted = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        int n_blocks = 12, n_windowed = seed % 3 ? 0 : 12, n_rows = 0;
        open_groups(&w, seed, limits_of(MAX_SEQUENCES, 1 + (int)(seed % 9), MAX_SEQUENCES), n_blocks, n_windowed,
                    seed % 5 != 0);
        for (int i = 0; i < MAX_SEQUENCES; i++) {
            arrive_random(&w, n_blocks * BLOCK_TOKENS);
            n_rows += sequence_max_computed(w.state.sequences[w.state.n_sequences - 1]);
        }
        /* At worst one after the other, a row a step, and each preempted by each before it for every block. */
        for (int i = 0; i < n_rows * MAX_SEQUENCES && w.state.n_sequences; i++) step(&w);
        assert_int_equal(w.state.n_sequences, 0);
        n_preempted += (long)w.state.n_preempted;
        close_world(&w);
    }
    print_message("%ld preempted\n", n_preempted);
    assert_true(n_preempted > 200);
}

/* ---- single flight ---- */

static void equal_prompts_are_computed_once(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(3, 20, 6), MAX_BLOCKS, true);
    struct slot *slots[3];
    for (int i = 0; i < 3; i++) slots[i] = arrive(&w, counting, 30, 0, 30, true);
    slots[2]->tokens[25] = 99;
    step(&w);
    plan_make(&w.plan, &w.state, w.n_steps); /* 10 rows of the first, and room for 10 more */
    assert_int_equal(slots[1]->sequence.n_computed, 20);
    assert_int_equal(w.plan.n_items, 1);
    assert_ptr_equal(single_flight_owner(&w.state, &slots[1]->sequence), &slots[0]->sequence);
    assert_null(single_flight_owner(&w.state, &slots[0]->sequence));
    while (w.state.n_sequences) step(&w);
    /* the first whole, of the second its last token, the third from the token on that differs */
    assert_int_equal(w.n_rows, 30 + 1 + 5);
    close_world(&w);
}

static void other_salts_share_nothing(void **state) {
    (void)state;
    static struct world w;
    struct prefix_salt salt = {{1}};
    open_world(&w, 1, limits_of(2, 64, 4), MAX_BLOCKS, true);
    arrive(&w, counting, 30, 0, 30, true);
    struct slot *other = arrive(&w, counting, 30, 0, 30, true);
    kv_table_start(&other->sequence.kv, &salt, true);
    step(&w);
    assert_int_equal(w.n_rows, 60);
    close_world(&w);
}

/* Whoever computes a block may go: the next in order continues from what was published. */
static void a_waiter_outlives_its_owner(void **state) {
    (void)state;
    static struct world w;
    open_world(&w, 1, limits_of(2, 10, 4), MAX_BLOCKS, true);
    struct slot *owner = arrive(&w, counting, 30, 0, 30, true), *waiter = arrive(&w, counting, 30, 0, 30, true);
    step(&w);
    step(&w);
    assert_int_equal(owner->sequence.n_computed, 20);
    retire(&w, owner);
    while (w.state.n_sequences) step(&w);
    assert_int_equal(waiter->sequence.n_cached_tokens, 20);
    assert_int_equal(w.n_rows, 30);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_in_rank_gives_way),
        cmocka_unit_test(own_blocks_are_no_cached_tokens),
        cmocka_unit_test(a_waiting_prompt_gets_the_blocks_of_batch_work),
        cmocka_unit_test(others_keep_their_blocks),
        cmocka_unit_test(everybody_ends),
        cmocka_unit_test(equal_prompts_are_computed_once),
        cmocka_unit_test(other_salts_share_nothing),
        cmocka_unit_test(a_waiter_outlives_its_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
