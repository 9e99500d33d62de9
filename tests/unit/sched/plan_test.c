/* plan, decode, prefill and commit on sequences without a model: a random life of 1e4 steps. */
#include "sched/plan.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sched/commit.h"
#include "support/test.h"

#define MAX_SEQUENCES 6
#define MAX_ROWS 24
#define MAX_LOGIT_ROWS 9
#define BLOCK_TOKENS 16
#define N_BLOCKS 24
#define MAX_TOKENS 320 /* of one sequence: nearly the pool */

struct life {
    struct plan plan;
    struct plan_state state;
    struct block_pool pool;
    struct prefix_index index;
    struct sequence sequences[MAX_SEQUENCES];
    struct sequence *order[MAX_SEQUENCES];
    uint32_t tokens[MAX_SEQUENCES][MAX_TOKENS];
    block_id blocks[MAX_SEQUENCES][MAX_TOKENS / BLOCK_TOKENS + 2];
    int n_rows_of[MAX_SEQUENCES][MAX_TOKENS]; /* how often each position was computed */
    /* What each slot of the pool holds: the hash of all tokens up to it, 0 if nothing. */
    uint64_t held[N_BLOCKS][BLOCK_TOKENS];
    uint32_t at;
    int n_finished, n_cancelled, n_cached, n_partial;
};

static uint32_t random_below(struct life *life, uint32_t n) {
    uint32_t counter[4] = {life->at++, 0, 0, 0}, out[4];
    rng_philox(99, counter, out);
    return out[0] % n;
}

static void start_life(struct life *life, bool has_cache) {
    struct plan_limits limits = {MAX_SEQUENCES, MAX_ROWS, MAX_LOGIT_ROWS};
    memset(life, 0, sizeof *life);
    assert_int_equal(plan_init(&life->plan, &limits), STATUS_OK);
    assert_int_equal(block_pool_init(&life->pool, N_BLOCKS), STATUS_OK);
    if (has_cache)
        assert_int_equal(prefix_index_init(&life->index, &life->pool, BLOCK_TOKENS, "m", 1, hash_sha256), STATUS_OK);
    life->state = (struct plan_state){.limits = limits,
                                      .sequences = life->order,
                                      .pool = &life->pool,
                                      .index = has_cache ? &life->index : NULL,
                                      .block_tokens = BLOCK_TOKENS};
}

static void end_life(struct life *life) {
    plan_deinit(&life->plan);
    if (life->state.index) prefix_index_deinit(&life->index);
    assert_int_equal(life->pool.n_free, N_BLOCKS);
    block_pool_deinit(&life->pool);
}

/* Prompts come from few prefixes, so that they meet in the cache, in whole blocks and in parts of them. */
static void arrive(struct life *life) {
    int slot = 0;
    while (slot < MAX_SEQUENCES && life->sequences[slot].state != SEQ_FREE) slot++;
    if (slot == MAX_SEQUENCES) return;
    int n_prompt = 1 + (int)random_below(life, random_below(life, 4) ? 60 : 250);
    int max_new = (int)random_below(life, 40), n_shared = (int)random_below(life, (uint32_t)n_prompt + 1);
    uint32_t family = random_below(life, 3);
    for (int i = 0; i < n_prompt; i++)
        life->tokens[slot][i] = i < n_shared ? family * 1000 + (uint32_t)i : random_below(life, 5);
    memset(life->n_rows_of[slot], 0, sizeof life->n_rows_of[slot]);
    life->sequences[slot] =
        (struct sequence){.state = SEQ_WAITING,
                          .request_id = life->at,
                          .tokens = life->tokens[slot],
                          .n_prompt = n_prompt,
                          .n_tokens = n_prompt,
                          .max_tokens = n_prompt + max_new,
                          .logits_from = random_below(life, 4) ? n_prompt : (int)random_below(life, (uint32_t)n_prompt),
                          .has_cache = random_below(life, 5) != 0,
                          .blocks = life->blocks[slot]};
    life->order[life->state.n_sequences++] = &life->sequences[slot];
}

static uint64_t prefix_hash(const uint32_t *tokens, int n) {
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < n; i++) hash = (hash ^ tokens[i]) * 1099511628211u + 1;
    return hash;
}

/* What the model would do: copies, then writes each row's slot, and may read all slots before it. */
static void compute(struct life *life) {
    for (int i = 0; i < life->plan.n_copies; i++)
        memcpy(life->held[life->plan.copies[i].to], life->held[life->plan.copies[i].from], sizeof life->held[0]);
    commit_copies(&life->plan, &life->state);
    for (int i = 0; i < life->plan.n_items; i++) {
        const struct plan_item *item = &life->plan.items[i];
        const struct sequence *sequence = item->sequence;
        for (int pos = item->from; pos < item->to; pos++) {
            block_id block = sequence->blocks[pos / BLOCK_TOKENS];
            assert_int_equal(block_pool_n_refs(&life->pool, block), 1); /* nobody else's rows are overwritten */
            life->held[block][pos % BLOCK_TOKENS] = prefix_hash(sequence->tokens, pos + 1);
            life->n_rows_of[sequence - life->sequences][pos]++;
        }
        for (int pos = 0; pos < item->to; pos++) {
            uint64_t held = life->held[sequence->blocks[pos / BLOCK_TOKENS]][pos % BLOCK_TOKENS];
            if (held != prefix_hash(sequence->tokens, pos + 1))
                fail_msg("position %d of %d: its slot holds another prefix (%d cached)", pos, item->to,
                         sequence->n_cached_tokens);
        }
    }
}

static void check_plan(const struct life *life) {
    const struct plan *plan = &life->plan;
    int n_rows = 0, n_logit_rows = 0, n_decode = 0;
    for (int i = 0; i < plan->n_items; i++) {
        const struct plan_item *item = &plan->items[i];
        assert_true(item->from < item->to && item->to <= item->sequence->n_tokens);
        assert_int_equal(item->from, item->sequence->n_computed);
        assert_true(item->logits_from >= item->from && item->logits_from <= item->to);
        if (item->is_sampled) assert_true(item->to == item->sequence->n_tokens && item->logits_from < item->to);
        for (int j = 0; j < i; j++) assert_ptr_not_equal(plan->items[j].sequence, item->sequence);
        n_rows += item->to - item->from;
        n_logit_rows += item->to - item->logits_from;
        n_decode += item->from >= item->sequence->n_prompt;
    }
    assert_int_equal(n_rows, plan->n_rows);
    assert_int_equal(n_logit_rows, plan->n_logit_rows);
    assert_int_equal(n_decode, plan->n_decode_rows);
    assert_in_range(n_rows, 0, MAX_ROWS);
    assert_in_range(n_logit_rows, 0, MAX_LOGIT_ROWS);
    /* Something can always be computed. */
    assert_true(plan->n_items > 0 || life->state.n_sequences == 0);
}

static void retire(struct life *life, struct sequence *sequence, bool is_finished) {
    int slot = (int)(sequence - life->sequences);
    for (int pos = 0; is_finished && pos < sequence->n_computed; pos++)
        assert_int_equal(life->n_rows_of[slot][pos], pos >= sequence->n_cached_tokens);
    life->n_cached += sequence->n_cached_tokens > 0;
    life->n_partial += sequence->n_cached_tokens % BLOCK_TOKENS != 0;
    commit_retire(sequence, &life->state);
    if (is_finished)
        life->n_finished++;
    else
        life->n_cancelled++;
}

static void commit(struct life *life) {
    for (int i = 0; i < life->plan.n_items; i++) {
        const struct plan_item item = life->plan.items[i];
        struct sequence *sequence = item.sequence;
        commit_rows(&item, &life->state);
        if (item.is_sampled) commit_token(&item, random_below(life, 3));
        if (sequence->n_tokens == sequence->max_tokens && sequence->n_computed == sequence_max_computed(sequence))
            retire(life, sequence, true);
    }
}

/* Held references of the pool are those of the sequences, no more and no less. */
static void check_blocks(struct life *life) {
    int n_refs = 0, n_expected = 0;
    for (block_id id = 0; id < N_BLOCKS; id++) n_refs += block_pool_n_refs(&life->pool, id);
    for (int i = 0; i < life->state.n_sequences; i++) n_expected += life->order[i]->n_blocks;
    assert_int_equal(n_refs, n_expected);
    assert_null(block_pool_check(&life->pool));
    if (life->state.index) assert_null(prefix_index_check(&life->index));
}

static void live(bool has_cache, int n_steps) {
    static struct life life;
    start_life(&life, has_cache);
    for (int step = 0; step < n_steps; step++) {
        while (random_below(&life, 3) == 0) arrive(&life);
        if (life.state.n_sequences && random_below(&life, 40) == 0)
            retire(&life, life.order[random_below(&life, (uint32_t)life.state.n_sequences)], false);
        plan_make(&life.plan, &life.state);
        check_plan(&life);
        compute(&life);
        commit(&life);
        if (step % 7 == 0) check_blocks(&life);
    }
    while (life.state.n_sequences) retire(&life, life.order[0], false);
    check_blocks(&life);
    assert_true(life.n_finished > n_steps / 50 && life.n_cancelled > 10);
    assert_true(has_cache ? life.n_cached > 50 && life.n_partial > 20 : life.n_cached == 0);
    end_life(&life);
}

static void a_random_life_with_a_cache(void **state) {
    (void)state;
    live(true, 10000);
}

static void a_random_life_without_a_cache(void **state) {
    (void)state;
    live(false, 10000);
}

static void decoding_comes_first(void **state) {
    static struct life life;
    (void)state;
    start_life(&life, false);
    for (int i = 0; i < 3; i++) {
        life.sequences[i] = (struct sequence){.state = SEQ_WAITING,
                                              .request_id = (uint64_t)i,
                                              .tokens = life.tokens[i],
                                              .n_prompt = i < 2 ? 4 : 100,
                                              .n_tokens = i < 2 ? 4 : 100,
                                              .max_tokens = 110,
                                              .has_cache = false,
                                              .logits_from = i < 2 ? 4 : 100,
                                              .blocks = life.blocks[i]};
        life.order[life.state.n_sequences++] = &life.sequences[i];
    }
    plan_make(&life.plan, &life.state);
    assert_int_equal(life.plan.n_items, 3); /* both short prompts, and what is left for the long one */
    assert_int_equal(life.plan.items[2].to, MAX_ROWS - 8);
    commit(&life);
    plan_make(&life.plan, &life.state);
    assert_int_equal(life.plan.n_decode_rows, 2);
    assert_int_equal(life.plan.n_items, 3);
    assert_int_equal(life.plan.items[2].from, MAX_ROWS - 8);
    assert_int_equal(life.plan.items[2].to, 2 * MAX_ROWS - 8 - 2);
    while (life.state.n_sequences) commit_retire(life.order[0], &life.state);
    end_life(&life);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_random_life_with_a_cache),
        cmocka_unit_test(a_random_life_without_a_cache),
        cmocka_unit_test(decoding_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
