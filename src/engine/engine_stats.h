/* engine_stats: what an engine counts, for those who watch it: a plain copy, made once per step.
 *
 * Sums begin with the engine.   Thread: any may read a copy. */
#ifndef KVICK_ENGINE_ENGINE_STATS_H
#define KVICK_ENGINE_ENGINE_STATS_H

#include <stdint.h>

#include "base/histogram.h"
#include "engine/message.h"
#include "kvcache/kv_layers.h"
#include "model/layer_ops.h"

#define ENGINE_STATS_N_MISSES (PREFIX_MISS_STALE + 1)

struct engine;
struct plan_item;

/* Steps by whose rows they have. */
enum engine_step_kind { ENGINE_STEP_DECODE, ENGINE_STEP_PREFILL, ENGINE_STEP_MIXED, ENGINE_STEP_N_KINDS };

/* What rows of prompts, or of answers, took. */
struct engine_phase_stats {
    struct phase_work work;
    int64_t busy_ns; /* of steps; that of mixed ones is shared as the cost model says */
};

/* One KV group: its pool, and what the running sequences hold of it. */
struct engine_group_stats {
    int window; /* 0: all is kept */
    int n_blocks, n_free, n_reusable, n_held;
    size_t block_bytes;                   /* of all its layers */
    int n_pinned, max_pinned;             /* of the held; what may be */
    int64_t n_refs;                       /* held blocks, once for each sequence that holds them */
    int64_t n_held_slots, n_unused_slots; /* their quotient is the waste */
};

/* Requests of a class, now. */
struct engine_class_stats {
    int n_running; /* had rows */
    int n_waiting; /* admitted, without rows yet */
};

/* Told and measured times of first tokens, of those that have both. */
struct engine_promise_stats {
    int64_t n, n_late; /* late: beyond 1.25 times what was told */
    int64_t predicted_ns, measured_ns, error_ns;
};

struct engine_stats {
    struct layer_ops_counts layer_ops;
    bool is_unchunked; /* by engine_client_set_chunked */
    int64_t n_steps, n_abandoned_steps, n_rows, n_prefill_rows;
    int64_t steps_ns, forwards_ns;                      /* all steps, and of them the forwards */
    struct histogram step_seconds[ENGINE_STEP_N_KINDS]; /* of those that were not abandoned, like what follows */
    struct engine_phase_stats prefill, decode;
    int64_t interference_ns; /* answers' time lost to prompt rows in their steps, summed over the answers */
    double int8_peak_ops;    /* a second, of all threads; 0: not measured yet */

    /* Requests. n_taken: read from the inbox; n_in_inbox: sent, not yet read. */
    int64_t n_taken, n_in_inbox;
    int64_t n_admitted, n_refused, n_finished;
    int64_t n_refused_by[ADMISSION_N_REASONS]; /* [ADMISSION_ADMITTED]: the request itself made no sense */
    int64_t n_cancelled, n_unread;             /* of the finished: by the client or the end, for want of reading */
    int64_t n_preempted;                       /* times that a sequence lost its blocks */
    struct engine_class_stats classes[REQUEST_N_CLASSES];
    struct engine_promise_stats promises[REQUEST_N_CLASSES];

    /* Tokens. */
    int64_t n_prompt_tokens, n_new_tokens;   /* of prompts that are through; sampled */
    int64_t n_cache_asked, n_cache_found;    /* tokens of prompts with a cache, of them found */
    int64_t cache_saved_ns;                  /* what those would have taken on an idle machine */
    int64_t n_misses[ENGINE_STATS_N_MISSES]; /* admitted prompts by what ended the search (enum prefix_miss) */

    /* KV. */
    int n_groups;
    struct engine_group_stats groups[KV_LAYERS_MAX_GROUPS];
    int n_running, n_free_blocks, n_reusable_blocks, n_held_blocks; /* sequences known; blocks of the first group */
};

/* Of all classes together. */
struct engine_class_stats engine_stats_all(const struct engine_stats *stats);

/* Thread: engine. */

void engine_stats_init(struct engine_stats *stats);

/* Fills what is so now, and makes it readable. */
void engine_stats_publish(struct engine *engine);

/* The first token of the request has come, or its prompt is through without one. */
void engine_stats_note_prompt(struct engine *engine, const struct request *request, int n_cached);

/* The item's part of the plan has been computed: its work is the request's and the engine's. */
void engine_stats_note_work(struct engine *engine, struct request *request, const struct plan_item *item,
                            bool is_prefill);

/* What the plan would take with its decode rows alone, by what it takes: 0 without any, 1 with no other. */
double engine_stats_decode_share(const struct engine *engine);

/* The plan has been computed, in so much time, of which decode had this share. */
void engine_stats_note_step(struct engine *engine, int64_t took_ns, double decode_share);

#endif
