#include "engine/outbox.h"

#include "base/clock.h"
#include "sched/commit.h"

bool outbox_has_step_room(const struct engine *engine) {
    size_t n_free = ring_max_items(&engine->outbox) - ring_n_items(&engine->outbox);
    return n_free >= OUTBOX_EVENTS_PER_STEP * (size_t)engine->options.max_sequences;
}

bool outbox_has_answer_room(const struct engine *engine) {
    return ring_n_items(&engine->outbox) < ring_max_items(&engine->outbox) / 2;
}

bool outbox_has_any_room(const struct engine *engine) {
    return ring_n_items(&engine->outbox) < ring_max_items(&engine->outbox);
}

void outbox_send(struct engine *engine, const struct event *event) {
    /* plan waits for room before a step, and admissions are bounded by the inbox: this cannot overflow. */
    if (ring_put(&engine->outbox, event)) BUG("outbox overflow");
    engine->has_unannounced = true;
}

void outbox_flush(struct engine *engine) {
    if (engine->has_unannounced) ring_wake(&engine->outbox);
    engine->has_unannounced = false;
}

void outbox_send_home(struct engine *engine, struct request *request, struct event event) {
    phase_stats_finish(&request->stats, clock_now_ns());
    event.request_id = request->id;
    event.owner = request->owner;
    event.request = request;
    outbox_send(engine, &event);
}

void outbox_send_token(struct engine *engine, const struct sequence *sequence) {
    struct engine_slot *slot = engine_slot_of(engine, sequence);
    int last = sequence->n_tokens - 1;
    slot->request->n_told++;
    outbox_send(engine, &(struct event){.kind = EVENT_TOKEN,
                                        .request_id = sequence->request_id,
                                        .owner = slot->request->owner,
                                        .choice = slot->choice,
                                        .token = sequence->tokens[last],
                                        .token_idx = last - sequence->n_prompt});
}

void outbox_send_progress(struct engine *engine, const struct request *request) {
    if (!request->tells_progress) return;
    outbox_send(engine, &(struct event){.kind = EVENT_PROGRESS,
                                        .request_id = request->id,
                                        .owner = request->owner,
                                        .n_done = request->stats.n_done_tokens,
                                        .n_cached = request->stats.n_cached_tokens});
}

static void count_finish(struct engine_stats *stats, enum finish_reason reason) {
    stats->n_finished++;
    stats->n_cancelled += reason == FINISH_CANCELLED;
    stats->n_unread += reason == FINISH_UNREAD;
}

/* The choice's slot is free again, and the client hears of it. */
static void end_choice(struct engine *engine, struct engine_slot *slot, enum finish_reason reason, int n_new) {
    struct request *request = slot->request;
    request->choices[slot->choice] = (struct request_choice){reason, n_new};
    request->stats.n_new_tokens += n_new;
    request->n_unfinished--;
    slot->request = NULL;
    outbox_send(engine, &(struct event){.kind = EVENT_CHOICE_FINISHED,
                                        .request_id = request->id,
                                        .owner = request->owner,
                                        .choice = slot->choice,
                                        .reason = reason});
}

/* Choices that never became sequences end with the first. */
static void end_unborn(struct engine *engine, const struct request *request, enum finish_reason reason) {
    if (request->is_forked || request->n_choices == 1) return;
    for (int i = 0; i < engine->options.max_sequences; i++)
        if (engine->slots[i].request == request) end_choice(engine, &engine->slots[i], reason, 0);
}

static void pin_prompt(struct engine *engine, const struct sequence *sequence, struct request *request) {
    int64_t until_ns = clock_now_ns() + request->pin_ns;
    bool is_full = kv_pins_add(&engine->pins, &sequence->kv, request->n_prompt, request->tenant_id, until_ns,
                               &request->pin.n_tokens) != STATUS_OK;
    if (is_full) request->pin.n_tokens = 0;
    request->pin.is_full = is_full;
    request->pin.n_all_blocks = engine->pins.n_pinned[0];
    request->pin.max_blocks = engine->pins.max_pinned[0];
}

void outbox_finish(struct engine *engine, struct sequence *sequence, enum finish_reason reason) {
    struct engine_slot *slot = engine_slot_of(engine, sequence);
    struct request *request = slot->request;
    uint32_t choice = slot->choice;
    request->stats.n_preemptions += sequence->n_preempted;
    if (choice == 0) request->stats.n_cached_tokens = sequence->n_cached_tokens;
    if (choice == 0 && request->pin_ns && reason == FINISH_LENGTH) pin_prompt(engine, sequence, request);
    engine->n_cancelled -= sequence->is_cancelled;
    end_choice(engine, slot, reason, sequence->n_tokens - sequence->n_prompt);
    end_unborn(engine, request, reason);
    commit_retire(sequence, &engine->state);
    if (request->n_unfinished > 0) return;
    count_finish(&engine->stats, reason);
    outbox_send_home(engine, request, (struct event){.kind = EVENT_FINISHED, .choice = choice, .reason = reason});
}

void outbox_finish_cancelled(struct engine *engine) {
    if (!engine->n_cancelled) return;
    for (int i = engine->state.n_sequences - 1; i >= 0; i--)
        if (engine->state.sequences[i]->is_cancelled)
            outbox_finish(engine, engine->state.sequences[i], FINISH_CANCELLED);
}

static bool is_unread(const struct request *request) {
    if (!request->max_unread) return false;
    return request->n_told - atomic_load_explicit(&request->n_read, memory_order_relaxed) >= request->max_unread;
}

void outbox_watch_readers(struct engine *engine, int64_t now_ns) {
    for (int i = engine->state.n_sequences - 1; i >= 0; i--) {
        struct sequence *sequence = engine->state.sequences[i];
        struct engine_slot *slot = engine_slot_of(engine, sequence);
        struct request *request = slot->request;
        sequence->is_paused = is_unread(request);
        if (!sequence->is_paused) {
            slot->blocked_since = 0;
            continue;
        }
        if (!slot->blocked_since) slot->blocked_since = now_ns;
        int64_t blocked_ns = now_ns - slot->blocked_since;
        if (!request->max_blocked_ns || blocked_ns < request->max_blocked_ns) continue;
        status_fail(&request->note, STATUS_TIMEOUT, "the client has not read for %lld ms, %d tokens wait for it",
                    (long long)(blocked_ns / 1000000), request->max_unread);
        outbox_finish(engine, sequence, FINISH_UNREAD);
    }
}
