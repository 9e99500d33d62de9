#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine_state.h"
#include "engine/harvest.h"
#include "engine/inbox.h"
#include "engine/outbox.h"
#include "engine/pacing.h"
#include "kernels/kernel_ops.h"
#include "planner/capacity.h"

#define MAX_INBOX 1024
#define EVENTS_PER_SEQUENCE 64 /* room in the outbox before steps wait for the reader */
#define MAX_SLEEP_NS INT64_C(3600000000000)
#define IDLE_POLL_MS 1 /* how late a reader's progress is seen when nothing else is to be done */

/* ---- start and end ---- */

static void size_groups(const struct engine *engine, const struct kv_layers *layers, int *out_n_blocks) {
    const struct engine_options *options = &engine->options;
    int n_blocks = (options->kv_tokens + options->block_tokens - 1) / options->block_tokens;
    for (int g = 0; g < layers->n_groups; g++)
        out_n_blocks[g] = capacity_windowed_blocks(layers->windows[g], n_blocks, options->max_sequences,
                                                   options->max_chunk, options->block_tokens);
}

static enum status reserve_kv(struct engine *engine, struct status_note *note) {
    const struct engine_options *options = &engine->options;
    const struct model_config *model = &engine->model;
    char identity[sizeof model->arch + 32] = ""; /* one engine has one model and activation form */
    snprintf(identity, sizeof identity, "%s %s", model->arch, dtype_name(options->kv_dtype));
    struct group_store_shape shape = {options->kv_dtype, model->n_kv_heads, model->head_dim, options->block_tokens};
    struct kv_groups_options sizes = {.block_tokens = options->block_tokens,
                                      .tile_tokens = ATTENTION_TILE_KEYS,
                                      .has_index = options->has_prefix_cache,
                                      .identity = identity,
                                      .n_identity = sizeof identity,
                                      .hash = hash_sha256};
    struct kv_layers layers;
    int windows[MODEL_MAX_LAYERS];
    for (int i = 0; i < model->n_layers; i++) windows[i] = model->layers[i].window;
    enum status status = kv_layers_init(&layers, model->n_layers, windows, options->max_context, note);
    if (status) return status;
    size_groups(engine, &layers, sizes.n_blocks);
    status = group_store_init(&engine->store, &layers, &shape, sizes.n_blocks, note);
    if (status) return status;
    sizes.n_groups = layers.n_groups;
    memcpy(sizes.windows, layers.windows, sizeof sizes.windows);
    status = kv_groups_init(&engine->groups, &sizes);
    return status ? status_fail(note, status, "no memory for an index of %d blocks", sizes.n_blocks[0]) : STATUS_OK;
}

int64_t engine_batch_step_ns(const struct engine_options *options) {
    return options->batch_step_ns ? options->batch_step_ns : STEP_BOUND_BATCH_STEPS * options->max_step_ns;
}

/* A chunk, beside everybody who decodes. */
static int max_step_rows(const struct engine_options *options) {
    return options->max_chunk + options->max_sequences;
}

static enum status reserve_steps(struct engine *engine, struct status_note *note) {
    const struct engine_options *options = &engine->options;
    size_t n = (size_t)options->max_sequences;
    struct plan_limits limits = {.max_sequences = options->max_sequences,
                                 .max_rows = max_step_rows(options),
                                 .max_logit_rows = options->max_logit_rows,
                                 .max_prefill_rows = engine_usual_chunk(options),
                                 .step = {.is_unbounded = !options->target_itl_ns && !options->max_step_ns,
                                          .target_itl_ns = options->target_itl_ns,
                                          .max_step_ns = options->max_step_ns,
                                          .batch_step_ns = engine_batch_step_ns(options)}};
    engine->sequences = mem_alloc_array(n, sizeof *engine->sequences);
    engine->slots = mem_alloc_array(n, sizeof *engine->slots);
    engine->hidden = mem_alloc_array((size_t)limits.max_rows * (size_t)engine->model.d_model, sizeof(float));
    engine->pooled = mem_alloc_array(n * (size_t)engine->model.d_model, sizeof(double));
    engine->mask_words = mem_alloc_array(n * SAMPLER_MASK_WORDS(engine->model.n_vocab), sizeof(uint32_t));
    engine->picks = mem_alloc_array((size_t)options->max_logit_rows + n, sizeof *engine->picks);
    engine->state = (struct plan_state){
        .limits = limits, .sequences = mem_alloc_array(n, sizeof *engine->state.sequences), .groups = &engine->groups};
    engine->start_limits = limits.step;
    policy_init(&engine->state.policy, options->policy);
    struct admission_limits admission = options->admission;
    admission.max_context = options->max_context;
    bool has_memory = engine->sequences && engine->slots && engine->state.sequences && engine->hidden &&
                      engine->pooled && engine->mask_words && engine->picks;
    for (size_t i = 0; has_memory && i < n; i++)
        has_memory = !kv_table_init(&engine->sequences[i].kv, &engine->groups, options->max_context);
    if (has_memory && !plan_init(&engine->plan, &limits) &&
        !kv_pins_init(&engine->pins, &engine->groups, options->max_context, limits.max_rows) &&
        !admission_init(&engine->admission, &admission, options->max_sequences) &&
        !step_batch_init(&engine->batch, &limits, engine->groups.n_groups) &&
        !sampler_init(&engine->sampler, engine->model.n_tokens, engine->model.n_vocab, options->n_threads,
                      &engine->kernels))
        return STATUS_OK;
    return status_fail(note, STATUS_NOMEM, "no memory for %d sequences of %d tokens", options->max_sequences,
                       options->max_context);
}

static enum status load(struct engine *engine, struct status_note *note) {
    const struct engine_options *options = &engine->options;
    enum status status = thread_pool_create(&engine->pool, options->n_threads);
    if (status) return status_fail(note, status, "cannot start %d threads", options->n_threads);
    if (options->is_unpinned) thread_pool_unpin(engine->pool);
    kernel_table_choose(&engine->kernels, options->tiers);
    status = reserve_kv(engine, note);
    if (status) return status;
    status = backing_start(&engine->backing, &engine->store);
    if (status) return status_fail(note, status, "cannot start the thread that backs the KV cache");
    struct forward_limits limits = {max_step_rows(options), options->max_logit_rows, options->activations,
                                    options->has_bf16_tables, &engine->must_end};
    status =
        forward_create(&engine->forward, options->gguf, engine->pool, &engine->kernels, &engine->store, &limits, note);
    if (status) return status;
    engine->model = *forward_config(engine->forward); /* now with the vocabulary's size */
    engine->weight_bytes = forward_weight_bytes(engine->forward);
    return reserve_steps(engine, note);
}

static void unload(struct engine *engine) {
    for (int i = 0; engine->sequences && i < engine->options.max_sequences; i++)
        kv_table_deinit(&engine->sequences[i].kv);
    mem_free(engine->sequences);
    mem_free(engine->slots);
    mem_free(engine->hidden);
    mem_free(engine->pooled);
    mem_free(engine->mask_words);
    mem_free(engine->picks);
    mem_free(engine->state.sequences);
    plan_deinit(&engine->plan);
    admission_deinit(&engine->admission);
    step_batch_deinit(&engine->batch);
    sampler_deinit(&engine->sampler);
    forward_destroy(&engine->forward);
    kv_pins_deinit(&engine->pins);
    kv_groups_deinit(&engine->groups);
    backing_stop(&engine->backing);
    group_store_deinit(&engine->store);
    thread_pool_destroy(&engine->pool);
}

/* ---- a step ---- */

/* Between layers: whether nobody is left who wants the step's results. Requests that come are admitted meanwhile. */
static bool is_abandoned(void *arg) {
    struct engine *engine = arg;
    if (atomic_load_explicit(&engine->must_end, memory_order_relaxed)) return true;
    if (ring_n_items(&engine->inbox) == 0) return false;
    if (engine->is_probing) return true;
    inbox_read(engine);
    /* A long step is for nobody who waits: it is computed anew, in short ones. */
    if (engine->state.urgency == STEP_RELAXED && plan_has_interactive(&engine->state)) return true;
    if (!engine->n_cancelled) return false;
    for (int i = 0; i < engine->plan.n_items; i++)
        if (!engine->plan.items[i].sequence->is_cancelled) return false;
    return true;
}

static void make_copies(struct engine *engine) {
    for (int i = 0; i < engine->state.n_sequences; i++) engine_copy_blocks(engine, &engine->state.sequences[i]->kv);
}

static enum phase phase_of(const struct plan_item *item) {
    if (item->n_again) return PHASE_PREEMPTED;
    return item->from < item->sequence->n_prompt ? PHASE_PREFILL_OWN : PHASE_DECODE;
}

static enum phase phase_without_rows(const struct sequence *sequence) {
    if (sequence->is_paused) return PHASE_BLOCKED;
    if (sequence->state == SEQ_WAITING) return sequence->n_done > 0 ? PHASE_PREEMPTED : PHASE_QUEUE;
    return sequence_is_decoding(sequence) ? PHASE_DECODE : PHASE_PREFILL_LOST;
}

/* What every request's time is spent on from this step's start on. A request with several sequences decodes while one
 * of them does. */
static void switch_phases(struct engine *engine) {
    for (int i = 0; i < engine->plan.n_items; i++) {
        const struct plan_item *item = &engine->plan.items[i];
        struct request *request = engine_slot_of(engine, item->sequence)->request;
        enum phase phase = phase_of(item);
        if (request->last_step == engine->stats.n_steps && phase != PHASE_DECODE) continue;
        request->last_step = engine->stats.n_steps;
        phase_stats_switch(&request->stats, phase, engine->step_start_ns);
    }
    for (int i = 0; i < engine->state.n_sequences; i++) {
        const struct sequence *sequence = engine->state.sequences[i];
        struct request *request = engine_slot_of(engine, sequence)->request;
        if (request->last_step != engine->stats.n_steps)
            phase_stats_switch(&request->stats, phase_without_rows(sequence), engine->step_start_ns);
        message_show(request);
    }
}

/* Before the step: who was in it may be gone afterwards. */
static void note_rows(const struct engine *engine, struct step_record *record) {
    *record = (struct step_record){.start_ns = engine->step_start_ns, .n_decode_rows = engine->plan.n_decode_rows};
    for (int i = engine->plan.n_decode_rows; i < engine->plan.n_items; i++) {
        const struct plan_item *item = &engine->plan.items[i];
        step_history_add_part(record, item->sequence->request_id, item->to - item->from, item->from);
    }
}

static void note_step(struct engine *engine, struct step_record *record, double decode_share, bool is_done) {
    record->end_ns = clock_now_ns();
    record->decode_ns = (int64_t)(decode_share * (double)(record->end_ns - record->start_ns));
    record->is_abandoned = !is_done;
    if (is_done) {
        record->prefill = engine->step_prefill;
        record->decode = engine->step_decode;
    }
    step_history_push(&engine->steps, record);
}

/* False if there was nothing to compute. */
static bool run_step(struct engine *engine) {
    engine->step_start_ns = clock_now_ns();
    outbox_watch_readers(engine, engine->step_start_ns);
    plan_make(&engine->plan, &engine->state, engine->step_start_ns);
    switch_phases(engine);
    make_copies(engine);
    if (engine->plan.n_items == 0) return false;
    backing_note_use(&engine->backing, &engine->groups);
    struct model_batch batch = step_batch_build(&engine->batch, &engine->plan, &engine->groups);
    bool only_decodes = engine->plan.n_rows == engine->plan.n_decode_rows && engine->options.n_decode_threads;
    thread_pool_limit(engine->pool, only_decodes ? engine->options.n_decode_threads : engine->options.n_threads);
    struct step_record record;
    note_rows(engine, &record);
    double decode_share = engine_stats_decode_share(engine); /* by the costs that the plan went by */
    engine->is_in_step = true;
    int64_t forward_start_ns = clock_now_ns();
    bool is_done = forward_run(engine->forward, &batch, &engine->logits);
    engine->stats.forwards_ns += clock_now_ns() - forward_start_ns;
    if (is_done) harvest_step(engine, &batch, clock_now_ns());
    engine->is_in_step = false;
    engine->stats.n_steps++;
    engine->stats.n_abandoned_steps += !is_done;
    if (is_done) {
        int64_t took_ns = clock_now_ns() - engine->step_start_ns;
        engine_stats_note_step(engine, took_ns, decode_share);
        pacing_observe(engine, took_ns);
    }
    note_step(engine, &record, decode_share, is_done);
    outbox_finish_cancelled(engine);
    engine->stats.steps_ns += clock_now_ns() - engine->step_start_ns;
    return true;
}

/* How long an idle engine may sleep: until a pin ends. */
static int next_expiry_ms(const struct engine *engine) {
    int64_t next_ns = kv_pins_next_ns(&engine->pins), left_ns = next_ns - clock_now_ns();
    if (!next_ns) return -1;
    if (left_ns > MAX_SLEEP_NS) left_ns = MAX_SLEEP_NS;
    return left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0;
}

/* Without sequences: work for idle moments, in short pieces, then waits for a message. */
static void rest(struct engine *engine) {
    backing_rest(&engine->backing, true);
    while (ring_n_items(&engine->inbox) == 0 && forward_release_file(engine->forward)) continue;
    while (engine->must_probe && !backing_is_calm(&engine->backing) && !ring_wait(&engine->inbox, IDLE_POLL_MS))
        continue;
    if (engine->must_probe && ring_n_items(&engine->inbox) == 0) pacing_measure_idle(engine);
    if (ring_n_items(&engine->inbox) == 0) pacing_measure_peak(engine);
    ring_wait(&engine->inbox, next_expiry_ms(engine));
    backing_rest(&engine->backing, false);
}

/* One round of the loop; waits where nothing can be done. */
static void turn(struct engine *engine) {
    if (engine->state.n_sequences == 0) rest(engine);
    kv_pins_expire(&engine->pins, clock_now_ns());
    inbox_read(engine);
    bool has_run = outbox_has_step_room(engine) && run_step(engine);
    outbox_flush(engine);
    engine_stats_publish(engine);
    /* Nothing tells when a reader goes on, so this looks again a little later. */
    bool waits_for_reader = engine->state.n_sequences || !outbox_has_answer_room(engine);
    if (!has_run && waits_for_reader) thread_sleep_ms(IDLE_POLL_MS);
}

static void engine_main(void *arg) {
    struct engine *engine = arg;
    char done = 1;
    engine_stats_init(&engine->stats);
    engine->start_status = load(engine, &engine->start_note);
    engine->ready_ns = clock_now_ns();
    bool can_run = engine->start_status == STATUS_OK;
    if (can_run) pacing_init(engine);
    if (can_run) forward_watch(engine->forward, is_abandoned, engine);
    if (can_run) engine_stats_publish(engine); /* who asks before the first request learns the pools */
    if (ring_push(&engine->is_ready, &done)) BUG("cannot say that the engine is ready");
    while (can_run && !atomic_load_explicit(&engine->must_end, memory_order_relaxed)) turn(engine);
    while (engine->state.n_sequences > 0) outbox_finish(engine, engine->state.sequences[0], FINISH_CANCELLED);
    if (can_run) inbox_send_home(engine);
    outbox_flush(engine);
    unload(engine);
}

static void free_engine(struct engine **engine) {
    ring_deinit(&(*engine)->inbox);
    ring_deinit(&(*engine)->outbox);
    ring_deinit(&(*engine)->is_ready);
    mem_unmap_pages(*engine, sizeof **engine);
    *engine = NULL;
}

enum status engine_begin(struct engine **out_engine, const struct engine_options *options, struct status_note *note) {
    struct engine *engine = mem_map_pages(sizeof *engine); /* cache-line aligned rings */
    *out_engine = NULL;
    if (!engine) return status_fail(note, STATUS_NOMEM, "no memory for the engine");
    engine->options = *options;
    engine->inbox.event_fd = engine->outbox.event_fd = engine->is_ready.event_fd = -1;
    size_t max_events = 2 * MAX_INBOX + (size_t)options->max_sequences * EVENTS_PER_SEQUENCE;
    enum status status = forward_read_config(&engine->model, options->gguf, note);
    if (!status) {
        status = ring_init(&engine->inbox, sizeof(struct command_message), MAX_INBOX);
        if (!status) status = ring_init(&engine->outbox, sizeof(struct event), max_events);
        if (!status) status = ring_init(&engine->is_ready, 1, 1);
        if (!status) status = thread_start(&engine->thread, "engine", engine_main, engine);
        if (status) status_fail(note, status, "cannot start the engine's thread");
    }
    if (status) {
        free_engine(&engine);
        return status;
    }
    *out_engine = engine;
    return STATUS_OK;
}

enum status engine_await(struct engine *engine, struct status_note *note) {
    ring_wait(&engine->is_ready, -1);
    if (engine->start_status && note) *note = engine->start_note;
    return engine->start_status;
}

enum status engine_create(struct engine **out_engine, const struct engine_options *options, struct status_note *note) {
    enum status status = engine_begin(out_engine, options, note);
    if (status) return status;
    status = engine_await(*out_engine, note);
    if (status) engine_destroy(out_engine);
    return status;
}

void engine_destroy(struct engine **engine_ptr) {
    struct engine *engine = *engine_ptr;
    if (!engine) return;
    struct command_message message = {.kind = COMMAND_STOP_ENGINE};
    /* The flag is seen even if the engine reads no messages, because its own are not read; it sleeps only while the
     * inbox is empty, so a push that fails is not needed to wake it. */
    atomic_store_explicit(&engine->must_end, true, memory_order_relaxed);
    enum status is_full = ring_push(&engine->inbox, &message);
    (void)is_full;
    thread_join(&engine->thread);
    free_engine(engine_ptr);
}

const struct model_config *engine_model(const struct engine *engine) {
    return &engine->model;
}

const struct step_history *engine_steps(const struct engine *engine) {
    return &engine->steps;
}

int64_t engine_ready_ns(const struct engine *engine) {
    return engine->ready_ns;
}

int engine_max_context(const struct engine *engine) {
    return engine->options.max_context;
}

size_t engine_weight_bytes(const struct engine *engine) {
    return engine->weight_bytes;
}

size_t engine_kv_bytes(const struct engine *engine) {
    return group_store_bytes(&engine->store);
}

const struct cost_model *engine_cost(const struct engine *engine) {
    return engine->has_costs ? &engine->start_costs : NULL;
}

struct engine_stats engine_read_stats(struct engine *engine) {
    struct engine_stats stats;
    seqlock_read(&engine->stats_lock, engine->shared_stats, &stats, sizeof stats);
    stats.n_in_inbox = atomic_load_explicit(&engine->n_sent, memory_order_relaxed) - stats.n_taken;
    return stats;
}

void engine_count_sent(struct engine *engine, int n) {
    atomic_fetch_add_explicit(&engine->n_sent, n, memory_order_relaxed);
}

const struct step_limits *engine_step_limits(const struct engine *engine) {
    return &engine->start_limits;
}

struct ring *engine_inbox(struct engine *engine) {
    return &engine->inbox;
}

struct ring *engine_outbox(struct engine *engine) {
    return &engine->outbox;
}
