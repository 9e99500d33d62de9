/* engine: the loop that turns requests into tokens; reads like the walk in ARCHITECTURE.md.
 *
 * One thread owns scheduler, cache, model and sampler. Clients talk to it through engine_client.
 * Memory: everything is reserved at create; between plan and commit nothing is allocated. */
#ifndef KVICK_ENGINE_ENGINE_H
#define KVICK_ENGINE_ENGINE_H

#include "base/hash.h"
#include "base/ring.h"
#include "engine/engine_stats.h"
#include "engine/message.h"
#include "engine/step_history.h"
#include "kernels/dtype.h"
#include "model/forward.h"
#include "planner/cost_model.h"
#include "sched/plan.h"

struct engine;
struct gguf;

struct engine_options {
    const struct gguf *gguf; /* borrowed, outlives the engine */
    unsigned tiers;          /* allowed kernels (base/cpu.h) */
    enum dtype kv_dtype;
    enum activation_form activations;
    bool has_bf16_tables; /* see struct forward_limits */
    int n_threads;        /* the engine's thread included */
    int n_decode_threads; /* of steps without prompt tokens; 0: n_threads; at most n_threads */
    bool is_unpinned;     /* threads may be moved between cores */
    int max_chunk;        /* prompt tokens of a step */
    int usual_chunk;      /* likewise, unless they are to be run unchunked (engine_client); 0: max_chunk */
    int block_tokens;
    int max_context;    /* of one request, prompt plus answer */
    int max_sequences;  /* at a time */
    int kv_tokens;      /* slots of the pool; at least max_context */
    int max_logit_rows; /* of a step; at least max_sequences */
    bool has_prefix_cache;
    enum policy_kind policy;
    struct admission_limits admission;  /* max_context is that of above */
    int64_t target_itl_ns, max_step_ns; /* a step's time, see sched/step_bound.h; both 0: only rows bound it */
    int64_t batch_step_ns; /* the same with nothing but batch work; 0: STEP_BOUND_BATCH_STEPS max_step_ns */
    /* What steps cost, where their time is bounded. */
    const char *cost_dir;                  /* measurements are kept there (planner/cost_file.h); NULL: nowhere */
    int64_t calibrate_ns;                  /* spent on measuring at the start if none is kept; 0: costs are guessed */
    int64_t hasty_ns;                      /* > 0: so much of it before the first answer, the rest while idle */
    uint8_t weights_id[HASH_SHA256_BYTES]; /* of the model file, for those that are kept */
};

/* Prompt tokens of a step, unless they are run unchunked. */
static inline int engine_usual_chunk(const struct engine_options *options) {
    return options->usual_chunk ? options->usual_chunk : options->max_chunk;
}

/* batch_step_ns, or what stands for 0. */
int64_t engine_batch_step_ns(const struct engine_options *options);

/* Starts the engine's thread, which loads the model; it answers after engine_await.
 * Errors: STATUS_FORMAT, STATUS_INVALID, STATUS_NOMEM, STATUS_LIMIT. */
WARN_UNUSED enum status engine_begin(struct engine **out_engine, const struct engine_options *options,
                                     struct status_note *note);

/* Returns when the engine can answer, or says why it never will: then it must be destroyed. Called once.
 * Errors: those of engine_begin. */
WARN_UNUSED enum status engine_await(struct engine *engine, struct status_note *note);

/* Both; on an error nothing is left. */
WARN_UNUSED enum status engine_create(struct engine **out_engine, const struct engine_options *options,
                                      struct status_note *note);

/* Ends the thread, also one that still loads. Requests still running come home as CANCELLED before it returns. */
void engine_destroy(struct engine **engine);

/* Const once awaited. */
const struct model_config *engine_model(const struct engine *engine);
int engine_max_context(const struct engine *engine);
size_t engine_weight_bytes(const struct engine *engine);
size_t engine_kv_bytes(const struct engine *engine);

/* What steps cost, as known when the engine began to answer; NULL without cost_dir and bounds. */
const struct cost_model *engine_cost(const struct engine *engine);

/* How long steps may be (see sched/step_bound.h), as known when the engine began to answer. Thread: any. */
const struct step_limits *engine_step_limits(const struct engine *engine);

/* Thread: any. The last step's numbers; n_in_inbox as of now. */
struct engine_stats engine_read_stats(struct engine *engine);

/* Its last steps. Thread: any. */
const struct step_history *engine_steps(const struct engine *engine);

/* When the engine could answer (base/clock.h). */
int64_t engine_ready_ns(const struct engine *engine);

/* What engine_client uses: the two ends, and the count of requests that are on the way in. */
void engine_count_sent(struct engine *engine, int n);
struct ring *engine_inbox(struct engine *engine);  /* struct command_message; the engine consumes */
struct ring *engine_outbox(struct engine *engine); /* struct event; one client thread consumes */

#endif
