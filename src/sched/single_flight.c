#include "sched/single_flight.h"

#include <string.h>

/* Runs, and its next block is one that the sequence could take over instead of computing it. */
static bool is_at_same_block(const struct sequence *other, const struct sequence *sequence) {
    const struct kv_table *a = &other->kv, *b = &sequence->kv;
    if (other == sequence || other->state != SEQ_RUNNING || other->is_cancelled) return false;
    if (!a->has_cache || !b->has_cache || !b->groups->has_index || a->n_published != b->n_published) return false;
    int block_tokens = b->groups->block_tokens, begin = b->n_published * block_tokens, end = begin + block_tokens;
    if (end > sequence_n_reusable(sequence) || end > other->n_tokens) return false;
    /* The same node has the same prefix and salt. */
    if (a->chain.tip.id != b->chain.tip.id) return false;
    if (begin == 0 && memcmp(&a->chain.salt, &b->chain.salt, sizeof a->chain.salt) != 0) return false;
    return memcmp(other->tokens + begin, sequence->tokens + begin, (size_t)block_tokens * sizeof *sequence->tokens) ==
           0;
}

bool single_flight_is_planned(const struct plan *plan, const struct sequence *sequence) {
    for (int i = 0; i < plan->n_items; i++)
        if (is_at_same_block(plan->items[i].sequence, sequence)) return true;
    return false;
}

struct sequence *single_flight_owner(const struct plan_state *state, const struct sequence *sequence) {
    struct sequence *owner = NULL;
    int n_farthest = 0;
    bool is_before = true; /* of the sequence in order of arrival */
    for (int i = 0; i < state->n_sequences; i++) {
        struct sequence *other = state->sequences[i];
        if (other == sequence) is_before = false;
        if (!is_at_same_block(other, sequence)) continue;
        bool is_ahead =
            other->n_computed > sequence->n_computed || (other->n_computed == sequence->n_computed && is_before);
        if (!is_ahead || (owner && other->n_computed <= n_farthest)) continue;
        owner = other;
        n_farthest = other->n_computed;
    }
    return owner;
}
