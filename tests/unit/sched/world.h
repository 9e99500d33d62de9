/* world: the scheduler without a model, for its tests. Every block slot carries, in place of K and V, a hash of the
 * whole prefix that it was computed for, so that a row that would read another prefix's KV is seen wherever the fault
 * lies: in a lookup, a copy, a twin, or a block given away too early. */
#ifndef KVICK_TESTS_UNIT_SCHED_WORLD_H
#define KVICK_TESTS_UNIT_SCHED_WORLD_H

#include <stddef.h>
#include <string.h>

#include "base/rng.h"
#include "sched/commit.h"
#include "sched/plan.h"
#include "sched/room.h"
#include "support/test.h"

#define BLOCK_TOKENS 4
#define MAX_BLOCKS 40 /* of the pool */
#define MAX_SEQUENCES 6
#define MAX_TOKENS 48
#define MAX_TABLE (MAX_TOKENS / BLOCK_TOKENS)
#define TILE_TOKENS 4
#define WINDOW 6  /* of the second group */
#define N_WORDS 3 /* small vocabulary: prefixes meet often */

struct slot {
    struct sequence sequence;
    uint32_t tokens[MAX_TOKENS];
    int n_times[MAX_TOKENS];  /* position was computed */
    int n_logits[MAX_TOKENS]; /* its logits were wanted */
    int number;               /* of arrival */
};

struct world {
    uint64_t seed;
    uint32_t n_draws;
    struct kv_groups groups;
    struct plan plan;
    struct plan_state state;
    struct sequence *order[MAX_SEQUENCES];
    struct slot slots[MAX_SEQUENCES];
    uint64_t kv[KV_LAYERS_MAX_GROUPS][MAX_BLOCKS][BLOCK_TOKENS];
    int n_arrived, last_started;
    long n_preempted_ends, n_waits_for_others;
    long n_steps, n_rows, n_hits, n_copies, n_cancels, n_finished, n_no_blocks, n_mixed, n_cut;
};

/* No bound in time: rows alone are what a step has room for. */
static inline struct plan_limits limits_of(int max_sequences, int max_rows, int max_logit_rows) {
    return (struct plan_limits){.max_sequences = max_sequences,
                                .max_rows = max_rows,
                                .max_logit_rows = max_logit_rows,
                                .max_prefill_rows = max_rows,
                                .step = {.is_unbounded = true}};
}

static inline int below(struct world *w, int n) {
    return (int)(rng_uniform(w->seed, 0, w->n_draws++) * n);
}

static inline uint64_t kv_of(const uint32_t *tokens, int pos) {
    uint64_t hash = 77;
    for (int i = 0; i <= pos; i++) hash = (hash ^ tokens[i]) * 0x9e3779b97f4a7c15u + 1;
    return hash;
}

static inline struct slot *slot_of(struct sequence *sequence) {
    return (struct slot *)((char *)sequence - offsetof(struct slot, sequence));
}

/* What worlds that are opened next hash prefixes with: a test may make all of them meet. */
static prefix_hash_fn *world_hash = hash_sha256;

/* n_windowed: blocks of a second group, or 0 for none. */
static inline void open_groups(struct world *w, uint64_t seed, struct plan_limits limits, int n_blocks, int n_windowed,
                               bool has_index) {
    struct kv_groups_options options = {.n_groups = n_windowed ? 2 : 1,
                                        .block_tokens = BLOCK_TOKENS,
                                        .tile_tokens = TILE_TOKENS,
                                        .windows = {0, WINDOW},
                                        .n_blocks = {n_blocks, n_windowed},
                                        .has_index = has_index,
                                        .identity = "m",
                                        .n_identity = 1,
                                        .hash = world_hash};
    *w = (struct world){.seed = seed, .last_started = -1};
    assert_true(n_blocks <= MAX_BLOCKS && n_windowed <= MAX_BLOCKS && limits.max_sequences <= MAX_SEQUENCES);
    assert_int_equal(kv_groups_init(&w->groups, &options), STATUS_OK);
    assert_int_equal(plan_init(&w->plan, &limits), STATUS_OK);
    for (int i = 0; i < limits.max_sequences; i++)
        assert_int_equal(kv_table_init(&w->slots[i].sequence.kv, &w->groups, MAX_TOKENS), STATUS_OK);
    w->state = (struct plan_state){.limits = limits, .sequences = w->order, .groups = &w->groups};
    policy_init(&w->state.policy, POLICY_FCFS);
    const int one = 1;
    const double one_ns = 1000;
    assert_int_equal(step_cost_init(&w->state.cost, 1, &one, &one_ns, NULL), STATUS_OK);
}

static inline void open_world(struct world *w, uint64_t seed, struct plan_limits limits, int n_blocks, bool has_index) {
    open_groups(w, seed, limits, n_blocks, 0, has_index);
}

static inline struct block_pool *pool_of(struct world *w) {
    return &w->groups.groups[0].pool;
}

static inline void close_world(struct world *w) {
    while (w->state.n_sequences) commit_retire(w->state.sequences[0], &w->state);
    for (int i = 0; i < w->state.limits.max_sequences; i++) kv_table_deinit(&w->slots[i].sequence.kv);
    for (int g = 0; g < w->groups.n_groups; g++) {
        const struct block_pool *pool = &w->groups.groups[g].pool;
        assert_int_equal(pool->n_held, 0);
        assert_int_equal(pool->n_free + pool->n_reusable, pool->n_blocks);
    }
    kv_groups_deinit(&w->groups);
    plan_deinit(&w->plan);
}

static inline struct slot *arrive(struct world *w, const uint32_t *tokens, int n_prompt, int max_new, int logits_from,
                                  bool has_cache) {
    struct slot *slot = w->slots;
    while (slot->sequence.state != SEQ_FREE) slot++;
    assert_true(slot < w->slots + w->state.limits.max_sequences);
    struct kv_table kv = slot->sequence.kv;
    *slot = (struct slot){.number = w->n_arrived++};
    memcpy(slot->tokens, tokens, (size_t)n_prompt * sizeof *tokens);
    slot->sequence = (struct sequence){.state = SEQ_WAITING,
                                       .request_id = (uint64_t)slot->number,
                                       .tokens = slot->tokens,
                                       .n_prompt = n_prompt,
                                       .n_tokens = n_prompt,
                                       .max_tokens = n_prompt + max_new,
                                       .logits_from = logits_from,
                                       .kv = kv};
    kv_table_start(&slot->sequence.kv, NULL, has_cache);
    w->order[w->state.n_sequences++] = &slot->sequence;
    return slot;
}

/* ---- what must hold of any plan ---- */

static inline void check_item(const struct world *w, const struct plan_item *item, bool is_decode) {
    const struct sequence *s = item->sequence;
    assert_true(s->state == SEQ_RUNNING && !s->is_cancelled);
    assert_true(item->from == s->n_computed && item->from < item->to && item->to <= s->n_tokens);
    assert_true(item->logits_from >= item->from && item->logits_from <= item->to);
    assert_int_equal(item->is_sampled, item->to == s->n_tokens && s->n_tokens < s->max_tokens);
    if (item->is_sampled) assert_true(item->logits_from < item->to);
    /* what was preempted is prefilled as far as it had come */
    assert_true(is_decode ? item->from >= s->n_prompt : item->from < s->n_prompt || s->n_preempted > 0);
    if (item->n_again) assert_true(s->n_preempted > 0 && item->from + item->n_again <= s->n_done);
    /* no more blocks than the rows so far need */
    assert_int_equal(s->kv.n_blocks, (item->to + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
    for (int i = 0; i < w->plan.n_items; i++) assert_true(&w->plan.items[i] == item || w->plan.items[i].sequence != s);
}

static inline void check_plan(struct world *w, int n_decoding, int n_live) {
    const struct plan *plan = &w->plan;
    int n_rows = 0, n_logit_rows = 0, n_decode = 0;
    for (int i = 0; i < plan->n_items; i++) {
        const struct plan_item *item = &plan->items[i];
        bool is_decode = i < plan->n_decode_rows; /* decode comes first, a row each */
        check_item(w, item, is_decode);
        n_decode += is_decode && item->to - item->from == 1;
        n_rows += item->to - item->from;
        n_logit_rows += item->to - item->logits_from;
    }
    assert_int_equal(plan->n_rows, n_rows);
    assert_int_equal(plan->n_logit_rows, n_logit_rows);
    assert_int_equal(plan->n_decode_rows, n_decode);
    assert_true(n_rows <= w->state.limits.max_rows && n_logit_rows <= w->state.limits.max_logit_rows);
    /* No prompt takes a decoding sequence's row, unless rows are short: then a quarter is kept for prompts. */
    int max_rows = w->state.limits.max_rows, n_kept = n_live > n_decoding ? (max_rows + 3) / 4 : 0;
    if (max_rows == 1) n_kept = 0;
    bool may_pass = w->state.policy.kind == POLICY_PROMISES; /* batch answers, while an interactive prompt waits */
    assert_true(n_decode <= n_decoding);
    assert_true(n_decode == n_decoding || n_decode >= max_rows - n_kept || may_pass);
    /* Whoever is there goes on, unless a cancelled one still sits on blocks: nothing waits for ever. */
    if (n_live == 0) assert_int_equal(plan->n_items, 0);
    if (n_live > 0 && ((n_decoding > 0 && !may_pass) || n_live == w->state.n_sequences)) assert_true(plan->n_items > 0);
}

static inline void check_starts(struct world *w) {
    for (int i = 0; i < w->state.n_sequences; i++) {
        struct slot *slot = slot_of(w->state.sequences[i]);
        if (slot->sequence.state != SEQ_RUNNING || slot->number <= w->last_started) continue;
        w->last_started = slot->number; /* in order of arrival, so none later has started before */
        w->n_hits += slot->sequence.n_cached_tokens > 0;
        if (slot->sequence.n_preempted) continue;
        assert_true(slot->sequence.n_cached_tokens < slot->sequence.n_prompt);
        assert_true(slot->sequence.n_cached_tokens <= slot->sequence.logits_from);
    }
    for (int i = 0; i < w->state.n_sequences; i++) {
        struct slot *slot = slot_of(w->state.sequences[i]);
        if (slot->sequence.state == SEQ_WAITING && !slot->sequence.is_cancelled && !slot->sequence.n_preempted)
            assert_true(slot->number > w->last_started);
    }
}

static inline void check_blocks(const struct world *w) {
    const char *broken = kv_groups_check(&w->groups);
    for (int i = 0; !broken && i < w->state.n_sequences; i++) broken = kv_table_check(&w->state.sequences[i]->kv);
    if (broken) fail_msg("%s", broken);
    for (int g = 0; g < w->groups.n_groups; g++) {
        const struct block_pool *pool = &w->groups.groups[g].pool;
        int n_refs = 0, n_expected = 0;
        for (int i = 0; i < pool->n_blocks; i++) n_refs += block_pool_n_refs(pool, (block_id)i);
        for (int i = 0; i < w->state.n_sequences; i++) n_expected += kv_table_n_held(&w->state.sequences[i]->kv, g);
        assert_int_equal(n_refs, n_expected); /* no reference is lost or invented */
    }
}

/* ---- a step, as the engine makes it ---- */

static inline void compute_row(struct world *w, struct slot *slot, int group, int pos) {
    const block_id *table = slot->sequence.kv.blocks[group];
    int window = w->groups.groups[group].window, first = window && pos >= window ? pos - window + 1 : 0;
    for (int seen = first / TILE_TOKENS * TILE_TOKENS; seen < pos; seen++) {
        block_id block = table[seen / BLOCK_TOKENS];
        assert_true(block < MAX_BLOCKS);
        assert_true(w->kv[group][block][seen % BLOCK_TOKENS] == kv_of(slot->tokens, seen));
    }
    w->kv[group][table[pos / BLOCK_TOKENS]][pos % BLOCK_TOKENS] = kv_of(slot->tokens, pos);
}

static inline void compute(struct world *w, const struct plan_item *item) {
    struct slot *slot = slot_of(item->sequence);
    for (int pos = item->from; pos < item->to; pos++) {
        for (int g = 0; g < w->groups.n_groups; g++) compute_row(w, slot, g, pos);
        slot->n_times[pos]++;
        slot->n_logits[pos] += pos >= item->logits_from;
    }
}

static inline void make_copies(struct world *w) {
    for (int i = 0; i < w->state.n_sequences; i++) {
        struct kv_table *table = &w->state.sequences[i]->kv;
        for (int g = 0; table->has_copy && g < w->groups.n_groups; g++) {
            block_id from = table->copy_from[g], to = table->blocks[g][table->copy_to];
            assert_true(from != to);
            memcpy(w->kv[g][to], w->kv[g][from], sizeof w->kv[g][0]);
        }
        w->n_copies += table->has_copy;
        kv_table_end_copy(table);
    }
}

/* What was computed and wanted over a sequence's life. */
static inline void check_life(struct world *w, const struct slot *slot) {
    const struct sequence *s = &slot->sequence;
    int n_computed = 0;
    for (int pos = 0; pos < s->n_tokens; pos++) {
        n_computed += slot->n_times[pos];
        assert_true(slot->n_times[pos] <= 1 + s->n_preempted && (pos < s->n_done || slot->n_times[pos] == 0));
        bool is_wanted = pos >= s->logits_from || (pos == s->n_prompt - 1 && s->max_tokens > s->n_prompt);
        if (pos >= s->n_prompt) is_wanted = true;                            /* each gave the next token */
        assert_int_equal(slot->n_logits[pos], is_wanted && pos < s->n_done); /* once, however often it is computed */
    }
    if (s->n_preempted == 0) assert_int_equal(n_computed + s->n_cached_tokens, s->n_computed);
    assert_true(s->n_cached_tokens < s->n_prompt);
    w->n_preempted_ends += s->n_preempted > 0;
}

static inline void retire(struct world *w, struct slot *slot) {
    check_life(w, slot);
    commit_retire(&slot->sequence, &w->state);
}

static inline void commit_item(struct world *w, const struct plan_item *item, bool is_stop) {
    struct slot *slot = slot_of(item->sequence);
    commit_rows(item);
    assert_int_equal(item->sequence->n_computed, item->to);
    if (item->is_sampled) commit_token(item, (uint32_t)below(w, N_WORDS));
    bool is_full = item->sequence->n_tokens == item->sequence->max_tokens &&
                   (item->is_sampled || item->sequence->n_computed == item->sequence->n_tokens);
    if (!is_full && !(is_stop && item->is_sampled)) return;
    w->n_finished++;
    retire(w, slot);
}

static inline void step(struct world *w) {
    int n_decoding = 0, n_live = 0;
    /* As plan_make does. A copy that is made gives back its source, which may be what another one lacked. */
    for (int i = 0; i < 2; i++) {
        room_make(&w->state);
        make_copies(w);
    }
    for (int i = 0; i < w->state.n_sequences; i++) {
        const struct sequence *sequence = w->state.sequences[i];
        if (sequence->is_cancelled) continue;
        n_live++;
        /* those without a slot pass */
        n_decoding += sequence_is_decoding(sequence) && kv_table_n_missing(&sequence->kv, sequence->n_tokens) == 0;
    }
    plan_make(&w->plan, &w->state, w->n_steps);
    check_plan(w, n_decoding, n_live);
    check_starts(w);
    make_copies(w);
    check_blocks(w);
    for (int i = 0; i < w->plan.n_items; i++) compute(w, &w->plan.items[i]);
    w->n_steps++;
    w->n_rows += w->plan.n_rows;
    w->n_mixed += w->plan.n_decode_rows > 0 && w->plan.n_items > w->plan.n_decode_rows;
    w->n_cut += w->plan.n_rows == w->state.limits.max_rows;
    for (int i = 0; i < w->state.n_sequences; i++) w->n_no_blocks += w->state.sequences[i]->state == SEQ_WAITING;
    for (int i = 0; i < w->plan.n_items; i++) {
        const struct plan_item item = w->plan.items[i];
        commit_item(w, &item, below(w, 30) == 0);
    }
    check_blocks(w);
}

/* ---- arrivals ---- */

static inline void arrive_random(struct world *w, int max_new_of_pool) {
    uint32_t tokens[MAX_TOKENS];
    /* some prompts are long, and most begin like others */
    int n_prompt = 1 + below(w, below(w, 3) ? 12 : MAX_TOKENS / 2), room = max_new_of_pool - n_prompt;
    for (int i = 0; i < n_prompt; i++) tokens[i] = below(w, 12) ? (uint32_t)(i % N_WORDS) : (uint32_t)below(w, N_WORDS);
    int max_new = below(w, 8) ? below(w, room + 1) : 0;
    int logits_from = below(w, 4) ? n_prompt : below(w, n_prompt);
    struct slot *slot = arrive(w, tokens, n_prompt, max_new, logits_from, below(w, 5) != 0);
    slot->sequence.terms.service_class = below(w, 3) ? TERMS_INTERACTIVE : TERMS_BATCH;
}

static const uint32_t counting[MAX_TOKENS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};

#endif
