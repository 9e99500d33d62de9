#include "sched/room.h"

/* Blocks of a group that a sequence will take for the tokens that it knows and the block after them. */
static int n_to_come(const struct sequence *sequence, const struct plan_state *state, int group) {
    int n_tokens = sequence->n_tokens + state->groups->block_tokens, max_tokens = sequence_max_computed(sequence);
    if (n_tokens > max_tokens) n_tokens = max_tokens;
    int n_peak = kv_groups_n_peak(state->groups, group, n_tokens, state->limits.max_rows);
    int n = n_peak - kv_table_n_held(&sequence->kv, group);
    return n > 0 ? n : 0;
}

static bool has_room(const struct sequence *sequence, const struct plan_state *state) {
    for (int g = 0; g < state->groups->n_groups; g++) {
        int n_needed = n_to_come(sequence, state, g);
        for (int i = 0; i < state->n_sequences; i++)
            if (state->sequences[i]->state == SEQ_RUNNING) n_needed += n_to_come(state->sequences[i], state, g);
        if (n_needed > block_pool_n_available(&state->groups->groups[g].pool)) return false;
    }
    return true;
}

/* Takes over what is known after n_computed. */
static void find(struct sequence *sequence) {
    struct kv_found found;
    int n_before = sequence->n_computed;
    struct prefix_tokens tokens = {sequence->tokens, NULL, sequence_n_reusable(sequence)};
    kv_table_find(&sequence->kv, tokens, n_before, &found);
    sequence->n_computed = found.n_tokens;
}

/* Tokens that others computed count as cached; those that the sequence itself had before it was preempted do not. */
static void count_found(struct sequence *sequence, int n_before) {
    int from = n_before > sequence->n_done ? n_before : sequence->n_done;
    if (sequence->n_computed <= from) return;
    sequence->n_cached_tokens += sequence->n_computed - from;
    sequence->n_done = sequence->n_computed;
}

bool room_start(struct sequence *sequence, struct plan_state *state) {
    sequence->n_computed = 0;
    find(sequence);
    bool is_startable = has_room(sequence, state);
    if (!is_startable && sequence->kv.has_copy) {
        /* Holding the source may be what keeps the pool short: without it every sequence can start some day. */
        kv_table_end_copy(&sequence->kv);
        sequence->n_computed = sequence->kv.n_published * state->groups->block_tokens;
        is_startable = has_room(sequence, state);
    }
    if (!is_startable) {
        kv_table_release(&sequence->kv);
        sequence->n_computed = 0;
        return false;
    }
    count_found(sequence, 0);
    sequence->state = SEQ_RUNNING;
    return true;
}

/* a gives way before b. a_idx, b_idx: order of arrival. */
static bool is_behind(const struct sequence *a, int a_idx, const struct sequence *b, int b_idx) {
    if (a->is_cancelled != b->is_cancelled) return a->is_cancelled;
    if (a->terms.service_class != b->terms.service_class) return a->terms.service_class > b->terms.service_class;
    return a_idx > b_idx;
}

struct sequence *room_victim(const struct plan_state *state, const struct sequence *needy) {
    int last = 0;
    while (state->sequences[last] != needy) last++;
    for (int i = 0; i < state->n_sequences; i++) {
        const struct sequence *sequence = state->sequences[i];
        if (sequence->state != SEQ_RUNNING || sequence->kv.n_blocks == 0) continue;
        if (is_behind(sequence, i, state->sequences[last], last)) last = i;
    }
    return state->sequences[last] == needy ? NULL : state->sequences[last];
}

static void preempt(struct sequence *sequence, struct plan_state *state) {
    kv_table_release(&sequence->kv);
    sequence->n_computed = 0;
    sequence->state = SEQ_WAITING;
    sequence->n_preempted++;
    state->n_preempted++;
}

/* The last of the batch sequences that run and may still be interrupted. */
static struct sequence *last_batch(const struct plan_state *state) {
    for (int i = state->n_sequences - 1; i >= 0; i--) {
        struct sequence *sequence = state->sequences[i];
        bool is_batch = sequence->terms.service_class == TERMS_BATCH && !sequence->is_cancelled;
        if (is_batch && sequence->state == SEQ_RUNNING && sequence->n_preempted < ROOM_MAX_INTERRUPTS) return sequence;
    }
    return NULL;
}

/* Whether there would be room without them. What they share counts for each, so the answer may be too good: then some
 * have given way for one that starts a little later. */
static bool would_have_room(const struct sequence *waiting, const struct plan_state *state) {
    for (int g = 0; g < state->groups->n_groups; g++) {
        int n_free = block_pool_n_available(&state->groups->groups[g].pool), n_needed = n_to_come(waiting, state, g);
        for (int i = 0; i < state->n_sequences; i++) {
            const struct sequence *sequence = state->sequences[i];
            bool is_batch = sequence->terms.service_class == TERMS_BATCH;
            if (sequence->state != SEQ_RUNNING) continue;
            if (is_batch && sequence->n_preempted < ROOM_MAX_INTERRUPTS)
                n_free += kv_table_n_held(&sequence->kv, g);
            else
                n_needed += n_to_come(sequence, state, g);
        }
        if (n_needed > n_free) return false;
    }
    return true;
}

/* The first interactive prompt that waits for blocks gets those of batch sequences. */
static void make_for_waiting(struct plan_state *state) {
    struct sequence *waiting = NULL, *victim;
    if (state->policy.kind == POLICY_FCFS) return;
    for (int i = 0; !waiting && i < state->n_sequences; i++) {
        struct sequence *sequence = state->sequences[i];
        bool is_ready = sequence->state == SEQ_WAITING && !sequence->is_cancelled && !sequence->is_paused;
        if (is_ready && sequence->terms.service_class == TERMS_INTERACTIVE) waiting = sequence;
    }
    if (!waiting || has_room(waiting, state) || !would_have_room(waiting, state)) return;
    while (!has_room(waiting, state) && (victim = last_batch(state)) != NULL) preempt(victim, state);
}

void room_make(struct plan_state *state) {
    for (int i = 0; i < state->n_sequences; i++) {
        struct sequence *sequence = state->sequences[i];
        if (sequence->state != SEQ_RUNNING || sequence->is_cancelled) continue;
        if (!sequence_is_decoding(sequence)) {
            int n_before = sequence->n_computed;
            find(sequence);
            count_found(sequence, n_before);
        }
        kv_table_trim(&sequence->kv, sequence->n_computed);
        while (kv_table_grow(&sequence->kv, sequence->n_computed + 1) != STATUS_OK) {
            struct sequence *victim = room_victim(state, sequence);
            if (!victim) break;
            preempt(victim, state);
        }
    }
    make_for_waiting(state);
}

int room_grow(struct sequence *sequence, int n_tokens) {
    kv_table_trim(&sequence->kv, sequence->n_computed);
    return kv_table_grow_some(&sequence->kv, n_tokens);
}

struct room_usage room_usage_of(const struct plan_state *state, int group) {
    struct room_usage usage = {0};
    for (int i = 0; i < state->n_sequences; i++) {
        const struct sequence *sequence = state->sequences[i];
        usage.n_refs += kv_table_n_held(&sequence->kv, group);
        if (sequence->state == SEQ_RUNNING)
            usage.n_unused_slots += sequence->kv.n_blocks * state->groups->block_tokens - sequence->n_computed;
    }
    return usage;
}
