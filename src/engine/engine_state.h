/* engine_state: everything an engine owns, for the files that are its parts: inbox, harvest, outbox and engine itself.
 *
 * Thread: the engine's, except where said. */
#ifndef KVICK_ENGINE_ENGINE_STATE_H
#define KVICK_ENGINE_ENGINE_STATE_H

#include <stdatomic.h>

#include "base/seqlock.h"
#include "base/thread.h"
#include "engine/backing.h"
#include "engine/engine.h"
#include "engine/step_batch.h"
#include "kvcache/group_store.h"
#include "kvcache/kv_pins.h"
#include "planner/cost_model.h"
#include "sched/plan.h"

/* A place for one sequence: an answer that is being made. A request holds one for each choice from the start; choices
 * beside the first become sequences when the prompt has been computed. */
struct engine_slot {
    struct request *request; /* NULL: free */
    uint32_t choice;
    int64_t blocked_since; /* its client reads no more; 0: it does */
};

/* Something to find out from one row of logits, on any worker. */
struct pick {
    struct sampler_ask ask; /* sampling NULL: token is known, only its log-probability is wanted */
    uint32_t token;
    int n_top;
    struct token_logprob *out_logprobs; /* [1 + n_top]; NULL: none */
};

struct engine {
    struct engine_options options;
    struct thread thread;
    struct ring inbox, outbox;
    atomic_bool must_end; /* relaxed: the message that follows wakes the engine */

    /* Owned by the engine thread from here on. */
    struct thread_pool *pool;
    struct kernel_table kernels;
    struct group_store store;
    struct backing backing;
    struct kv_groups groups;
    struct kv_pins pins;
    struct forward *forward;
    struct sampler sampler;
    struct plan plan;
    struct plan_state state;
    struct admission admission;
    struct cost_model costs; /* those in state come from here */
    struct step_batch batch;
    struct sequence *sequences; /* [max_sequences] */
    struct engine_slot *slots;  /* [max_sequences] of the sequence with the same number */
    const float *logits;        /* [rows asked of the step][n_vocab], forward's */
    float *hidden;              /* [rows of a step][d_model] */
    double *pooled;             /* [max_sequences][d_model] sums of hidden states */
    uint32_t *mask_words;       /* [max_sequences][SAMPLER_MASK_WORDS(n_vocab)] */
    struct pick *picks;         /* [max_logit_rows + max_sequences] */
    int n_picks;
    struct engine_stats stats;
    int64_t step_start_ns;
    struct phase_work step_prefill, step_decode; /* of the step's rows */
    bool has_unannounced;                        /* events in the outbox that the client was not woken for */
    bool is_in_step;                             /* the plan's sequences are being computed: they may not leave */
    bool is_probing;                             /* an idle moment is used for measuring: whoever comes ends it */
    bool must_probe;                             /* costs are not measured yet */
    int n_peaks;                                 /* times that the machine's peak was measured */
    int n_cancelled;                             /* sequences that leave after the step */

    /* Read by others. */
    struct model_config model;
    size_t weight_bytes;
    struct cost_model start_costs; /* a copy of costs, const once created */
    bool has_costs;
    _Atomic uint64_t shared_stats[SEQLOCK_WORDS(struct engine_stats)]; /* a copy of stats, by stats_lock */
    struct seqlock stats_lock;
    struct step_history steps;
    struct step_limits start_limits; /* a copy of those in state, const once created */
    atomic_llong n_sent;             /* requests put into the inbox; relaxed: only a count */

    /* The start: written by the engine thread before is_ready is posted. */
    enum status start_status;
    int64_t ready_ns;
    struct status_note start_note;
    struct ring is_ready;
};

static inline int engine_slot_idx(const struct engine *engine, const struct sequence *sequence) {
    return (int)(sequence - engine->sequences);
}

static inline struct engine_slot *engine_slot_of(const struct engine *engine, const struct sequence *sequence) {
    return &engine->slots[engine_slot_idx(engine, sequence)];
}

/* Makes the table's pending copy. */
static inline void engine_copy_blocks(struct engine *engine, struct kv_table *table) {
    for (int g = 0; table->has_copy && g < engine->groups.n_groups; g++)
        block_store_copy(&engine->store.stores[g], table->copy_from[g], table->blocks[g][table->copy_to]);
    kv_table_end_copy(table);
}

#endif
