#include "engine/engine.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/seqlock.h"
#include "base/thread.h"
#include "engine/step_batch.h"
#include "kvcache/block_store.h"
#include "sched/commit.h"
#include "sched/plan.h"

#define MAX_INBOX 1024
#define EVENTS_PER_SEQUENCE 64 /* room in the outbox before steps wait for the reader */

struct engine {
    struct engine_options options;
    struct thread thread;
    struct ring inbox, outbox;
    atomic_bool must_end; /* relaxed: the message that follows wakes the engine */

    /* Owned by the engine thread from here on. */
    struct thread_pool *pool;
    struct kernel_table kernels;
    struct block_store store;
    struct block_pool blocks;
    struct prefix_index index;
    struct forward *forward;
    struct sampler sampler;
    struct plan plan;
    struct plan_state state;
    struct step_batch batch;
    struct sequence *sequences; /* [max_sequences] */
    struct request **requests;  /* [max_sequences] of the sequence with the same number */
    struct engine_stats stats;
    int64_t step_start_ns;

    /* Read by others. */
    struct model_config model;
    size_t weight_bytes;
    _Atomic uint64_t shared_stats[SEQLOCK_WORDS(struct engine_stats)]; /* a copy of stats, by stats_lock */
    struct seqlock stats_lock;

    /* The start: written by the engine thread before is_ready is posted. */
    enum status start_status;
    int64_t ready_ns;
    struct status_note start_note;
    struct ring is_ready;
};

/* ---- start and end ---- */

static enum status reserve_kv(struct engine *engine, struct status_note *note) {
    const struct engine_options *options = &engine->options;
    const struct model_config *model = &engine->model;
    struct kv_layout layout;
    int n_blocks = (options->kv_tokens + options->block_tokens - 1) / options->block_tokens;
    enum status status = kv_layout_init(&layout, options->kv_dtype, model->n_layers, model->n_kv_heads, model->head_dim,
                                        options->block_tokens, n_blocks, note);
    if (status) return status;
    status = block_store_init(&engine->store, &layout);
    if (status) return status_fail(note, status, "no memory for a KV cache of %zu bytes", layout.pool_bytes);
    status = block_pool_init(&engine->blocks, n_blocks);
    if (!status && options->has_prefix_cache)
        status = prefix_index_init(&engine->index, &engine->blocks, options->block_tokens, model->arch,
                                   sizeof model->arch, hash_sha256);
    if (status) return status_fail(note, status, "no memory for an index of %d blocks", n_blocks);
    return STATUS_OK;
}

static enum status reserve_steps(struct engine *engine, struct status_note *note) {
    const struct engine_options *options = &engine->options;
    size_t n = (size_t)options->max_sequences;
    size_t max_blocks = (size_t)(options->max_context + options->block_tokens - 1) / (size_t)options->block_tokens + 1;
    struct plan_limits limits = {options->max_sequences, options->max_chunk, options->max_logit_rows};
    engine->sequences = mem_alloc_array(n, sizeof *engine->sequences);
    engine->requests = mem_alloc_array(n, sizeof *engine->requests);
    engine->state = (struct plan_state){.limits = limits,
                                        .sequences = mem_alloc_array(n, sizeof *engine->state.sequences),
                                        .pool = &engine->blocks,
                                        .index = options->has_prefix_cache ? &engine->index : NULL,
                                        .block_tokens = options->block_tokens};
    bool has_memory = engine->sequences && engine->requests && engine->state.sequences;
    for (size_t i = 0; has_memory && i < n; i++) {
        engine->sequences[i].blocks = mem_alloc_array(max_blocks, sizeof(block_id));
        has_memory = engine->sequences[i].blocks != NULL;
    }
    if (has_memory && !plan_init(&engine->plan, &limits) && !step_batch_init(&engine->batch, &limits) &&
        !sampler_init(&engine->sampler, engine->model.n_vocab))
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
    struct forward_limits limits = {options->max_chunk, options->max_logit_rows, options->activations,
                                    options->has_bf16_tables, &engine->must_end};
    status =
        forward_create(&engine->forward, options->gguf, engine->pool, &engine->kernels, &engine->store, &limits, note);
    if (status) return status;
    engine->model = *forward_config(engine->forward); /* now with the vocabulary's size */
    engine->weight_bytes = forward_weight_bytes(engine->forward);
    return reserve_steps(engine, note);
}

static void unload(struct engine *engine) {
    for (int i = 0; engine->sequences && i < engine->options.max_sequences; i++) mem_free(engine->sequences[i].blocks);
    mem_free(engine->sequences);
    mem_free(engine->requests);
    mem_free(engine->state.sequences);
    plan_deinit(&engine->plan);
    step_batch_deinit(&engine->batch);
    sampler_deinit(&engine->sampler);
    forward_destroy(&engine->forward);
    if (engine->options.has_prefix_cache) prefix_index_deinit(&engine->index);
    block_pool_deinit(&engine->blocks);
    block_store_deinit(&engine->store);
    thread_pool_destroy(&engine->pool);
}

/* ---- requests ---- */

static void send(struct engine *engine, const struct event *event) {
    /* plan waits for room before a step, and admissions are bounded by the inbox: this cannot overflow. */
    if (ring_push(&engine->outbox, event)) BUG("outbox overflow");
}

static void go_home(struct engine *engine, struct request *request, struct event event) {
    request->stats.finished_ns = clock_now_ns();
    event.request_id = request->id;
    event.request = request;
    send(engine, &event);
}

/* What can never be answered is refused before any work. */
static enum status check_request(const struct engine *engine, struct request *request) {
    int n_vocab = engine->model.n_vocab;
    struct status_note *note = &request->note;
    if (request->n_prompt < 1) return status_fail(note, STATUS_INVALID, "the prompt has no tokens");
    if (request->max_new < 0) return status_fail(note, STATUS_INVALID, "max_tokens %d is negative", request->max_new);
    if (request->n_prompt > engine->options.max_context ||
        request->max_new > engine->options.max_context - request->n_prompt)
        return status_fail(note, STATUS_LIMIT,
                           "the prompt has %d tokens and may be answered with %d, the context holds %d",
                           request->n_prompt, request->max_new, engine->options.max_context);
    for (int i = 0; i < request->n_prompt; i++)
        if (request->tokens[i] >= (uint32_t)n_vocab)
            return status_fail(note, STATUS_INVALID, "prompt token %d is %u, not below the vocabulary's %d", i,
                               request->tokens[i], n_vocab);
    if (request->logits && (request->logits_from < 0 || request->logits_from >= request->n_prompt))
        return status_fail(note, STATUS_INVALID, "logits from position %d of a prompt of %d", request->logits_from,
                           request->n_prompt);
    if ((unsigned)request->class_ >= REQUEST_N_CLASSES)
        return status_fail(note, STATUS_INVALID, "class %d is unknown", (int)request->class_);
    if (request->tenant_weight < 0)
        return status_fail(note, STATUS_INVALID, "tenant_weight %d is negative", request->tenant_weight);
    if (request->deadline_ns < 0)
        return status_fail(note, STATUS_INVALID, "the deadline lies before the clock's start");
    return sampler_check(&request->sampling, note);
}

static int find_free_slot(const struct engine *engine) {
    for (int i = 0; i < engine->options.max_sequences; i++)
        if (engine->sequences[i].state == SEQ_FREE) return i;
    return -1;
}

static void admit(struct engine *engine, struct request *request) {
    int slot = find_free_slot(engine);
    enum status status = check_request(engine, request);
    if (!status && slot < 0)
        status = status_fail(&request->note, STATUS_BUSY, "%d requests are running", engine->options.max_sequences);
    if (status) {
        go_home(engine, request, (struct event){.kind = EVENT_REFUSED, .status = status});
        return;
    }
    struct sequence *sequence = &engine->sequences[slot];
    *sequence = (struct sequence){.state = SEQ_WAITING,
                                  .request_id = request->id,
                                  .tokens = request->tokens,
                                  .n_prompt = request->n_prompt,
                                  .n_tokens = request->n_prompt,
                                  .max_tokens = request->n_prompt + request->max_new,
                                  .logits_from = request->logits ? request->logits_from : request->n_prompt,
                                  .has_cache = request->has_cache,
                                  .salt = &request->salt,
                                  .blocks = sequence->blocks};
    engine->requests[slot] = request;
    engine->state.sequences[engine->state.n_sequences++] = sequence;
    request->stats.admitted_ns = clock_now_ns();
    request->stats.n_prompt_tokens = request->n_prompt;
    send(engine, &(struct event){.kind = EVENT_ADMITTED, .request_id = request->id});
}

static struct request *request_of(const struct engine *engine, const struct sequence *sequence) {
    return engine->requests[sequence - engine->sequences];
}

static void finish(struct engine *engine, struct sequence *sequence, enum finish_reason reason) {
    struct request *request = request_of(engine, sequence);
    request->stats.n_cached_tokens = sequence->n_cached_tokens;
    request->stats.n_new_tokens = sequence->n_tokens - sequence->n_prompt;
    commit_retire(sequence, &engine->state);
    go_home(engine, request, (struct event){.kind = EVENT_FINISHED, .reason = reason});
}

/* plan: the step that was made, NULL if only the pool and the sequences changed. */
static void publish_stats(struct engine *engine, const struct plan *plan) {
    struct engine_stats stats = engine->stats;
    if (plan) {
        stats.layer_ops = forward_counts(engine->forward);
        stats.n_steps++;
        stats.n_rows += plan->n_rows;
        stats.n_prefill_rows += plan->n_rows - plan->n_decode_rows;
    }
    stats.n_running = engine->state.n_sequences;
    stats.n_free_blocks = engine->blocks.n_free;
    stats.n_reusable_blocks = engine->blocks.n_reusable;
    stats.n_held_blocks = engine->blocks.n_held;
    engine->stats = stats;
    seqlock_write(&engine->stats_lock, engine->shared_stats, &stats, sizeof stats);
}

static void cancel(struct engine *engine, uint64_t request_id) {
    for (int i = 0; i < engine->state.n_sequences; i++) {
        if (engine->state.sequences[i]->request_id != request_id) continue;
        finish(engine, engine->state.sequences[i], FINISH_CANCELLED);
        publish_stats(engine, NULL);
        return;
    }
    /* An id that is unknown has finished meanwhile: nothing to do. */
}

/* Commands can be answered while half of the outbox is free: the other half is for what steps send. */
static bool has_answer_room(const struct engine *engine) {
    return ring_n_items(&engine->outbox) < ring_max_items(&engine->outbox) / 2;
}

/* Work for idle moments, in short pieces. False when none is left. */
static bool tidy(struct engine *engine) {
    return forward_release_file(engine->forward) || block_store_back(&engine->store);
}

static void read_inbox(struct engine *engine) {
    struct command_message message;
    if (engine->state.n_sequences == 0) {
        while (ring_n_items(&engine->inbox) == 0 && tidy(engine)) continue;
        ring_wait(&engine->inbox, -1);
    }
    while (has_answer_room(engine) && ring_pop(&engine->inbox, &message)) {
        if (message.kind == COMMAND_SUBMIT) admit(engine, message.request);
        if (message.kind == COMMAND_CANCEL) cancel(engine, message.request_id);
    }
}

/* ---- a step ---- */

static void make_copies(struct engine *engine) {
    for (int i = 0; i < engine->plan.n_copies; i++)
        block_store_copy(&engine->store, engine->plan.copies[i].from, engine->plan.copies[i].to);
    commit_copies(&engine->plan, &engine->state);
}

static bool is_stop_token(const struct request *request, uint32_t token) {
    for (int i = 0; i < request->n_stop_tokens; i++)
        if (request->stop_tokens[i] == token) return true;
    return false;
}

/* Stamps of the step that ended now. */
static void account(struct engine *engine, const struct plan_item *item, int64_t now_ns) {
    struct phase_stats *stats = &request_of(engine, item->sequence)->stats;
    int64_t step_ns = now_ns - engine->step_start_ns;
    if (item->from < item->sequence->n_prompt) {
        if (!stats->prefill_start_ns) stats->prefill_start_ns = engine->step_start_ns;
        stats->prefill_end_ns = now_ns;
        stats->prefill_own_ns += step_ns;
        stats->n_prefill_steps++;
    } else {
        stats->decode_own_ns += step_ns;
    }
    if (!item->is_sampled) return;
    if (!stats->first_token_ns) stats->first_token_ns = now_ns;
    stats->last_token_ns = now_ns;
}

static void hand_out_logits(struct engine *engine, const struct plan_item *item, const float *logits) {
    struct request *request = request_of(engine, item->sequence);
    size_t n_vocab = (size_t)engine->model.n_vocab;
    int n_rows = item->to - item->logits_from;
    if (!request->logits || item->from >= request->n_prompt) return;
    memcpy(request->logits + (size_t)(item->logits_from - request->logits_from) * n_vocab, logits,
           (size_t)n_rows * n_vocab * sizeof(float));
}

/* Commits one item; logits: those of its wanted rows. */
static void commit_item(struct engine *engine, const struct plan_item *item, const float *logits, int64_t now_ns) {
    struct sequence *sequence = item->sequence;
    struct request *request = request_of(engine, sequence);
    account(engine, item, now_ns);
    commit_rows(item, &engine->state);
    hand_out_logits(engine, item, logits);
    if (!item->is_sampled) {
        if (sequence->n_computed == sequence->max_tokens) finish(engine, sequence, FINISH_LENGTH);
        return;
    }
    const float *last = logits + (size_t)(item->to - item->logits_from - 1) * (size_t)engine->model.n_vocab;
    uint32_t token = sampler_pick(&engine->sampler, &request->sampling, last, (uint32_t)sequence->n_tokens);
    commit_token(item, token);
    if (is_stop_token(request, token)) {
        finish(engine, sequence, FINISH_STOP);
        return;
    }
    send(engine, &(struct event){.kind = EVENT_TOKEN, .request_id = request->id, .token = token});
    if (sequence->n_tokens == sequence->max_tokens) finish(engine, sequence, FINISH_LENGTH);
}

static void run_step(struct engine *engine) {
    engine->step_start_ns = clock_now_ns();
    plan_make(&engine->plan, &engine->state);
    if (engine->plan.n_items == 0) return;
    make_copies(engine);
    struct model_batch batch = step_batch_build(&engine->batch, &engine->plan, engine->options.block_tokens);
    bool only_decodes = engine->plan.n_rows == engine->plan.n_decode_rows && engine->options.n_decode_threads;
    thread_pool_limit(engine->pool, only_decodes ? engine->options.n_decode_threads : engine->options.n_threads);
    const float *logits = forward_run(engine->forward, &batch);
    int64_t now_ns = clock_now_ns();
    for (int i = 0; i < engine->plan.n_items; i++) {
        const struct plan_item item = engine->plan.items[i];
        commit_item(engine, &item, logits, now_ns);
        logits += (size_t)(item.to - item.logits_from) * (size_t)engine->model.n_vocab;
    }
    publish_stats(engine, &engine->plan);
}

/* Waits until the reader has made room for whatever a step can send. */
static bool has_outbox_room(const struct engine *engine) {
    size_t n_free = ring_max_items(&engine->outbox) - ring_n_items(&engine->outbox);
    return n_free >= 2 * (size_t)engine->options.max_sequences;
}

/* Requests that were never admitted, as far as the outbox has room: who does not read keeps them anyway. */
static void send_unread_home(struct engine *engine) {
    struct command_message message;
    while (ring_n_items(&engine->outbox) < ring_max_items(&engine->outbox) && ring_pop(&engine->inbox, &message))
        if (message.kind == COMMAND_SUBMIT)
            go_home(engine, message.request, (struct event){.kind = EVENT_FINISHED, .reason = FINISH_CANCELLED});
}

static void engine_main(void *arg) {
    struct engine *engine = arg;
    char done = 1;
    engine->start_status = load(engine, &engine->start_note);
    engine->ready_ns = clock_now_ns();
    bool can_run = engine->start_status == STATUS_OK;
    if (ring_push(&engine->is_ready, &done)) BUG("cannot say that the engine is ready");
    while (can_run && !atomic_load_explicit(&engine->must_end, memory_order_relaxed)) {
        read_inbox(engine);
        if (has_outbox_room(engine)) run_step(engine);
        /* Nothing tells when the reader takes an event out, so this looks again a little later. */
        bool waits_for_reader = !has_outbox_room(engine) || (!has_answer_room(engine) && !engine->state.n_sequences);
        if (waits_for_reader) thread_sleep_ms(1);
    }
    while (engine->state.n_sequences > 0) finish(engine, engine->state.sequences[0], FINISH_CANCELLED);
    send_unread_home(engine);
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
    return engine->store.layout.pool_bytes;
}

struct engine_stats engine_read_stats(struct engine *engine) {
    struct engine_stats stats;
    seqlock_read(&engine->stats_lock, engine->shared_stats, &stats, sizeof stats);
    return stats;
}

struct ring *engine_inbox(struct engine *engine) {
    return &engine->inbox;
}

struct ring *engine_outbox(struct engine *engine) {
    return &engine->outbox;
}
