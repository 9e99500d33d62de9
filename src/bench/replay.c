#include "bench/replay.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/host_time.h"
#include "engine/engine_client.h"

#define NEVER INT64_MAX

enum state {
    UNKNOWN_DUE, /* what it continues is not home */
    DUE,
    RUNNING,
    HOME
};

struct item {
    enum state state;
    int64_t due_ns;
    int64_t cancel_ns; /* NEVER: not, or done */
    struct request *request;
    bool is_needed; /* another request continues it */
};

struct replay {
    struct engine *engine;
    struct outcomes *outcomes;
    const struct trace *trace;
    double scale;
    const int64_t *solo_ns;
    int64_t start_ns;
    struct item *items; /* [n_requests] */
    int *sent;          /* [n_requests] request index by order of submission */
    int n_sent, n_home;
    int n_before; /* all before it are home */
    uint64_t first_id;
};

static int64_t now_ns(const struct replay *replay) {
    return clock_now_ns() - replay->start_ns;
}

static int64_t scaled_ns(const struct replay *replay, double ms) {
    return (int64_t)(ms * 1e6 * replay->scale);
}

/* ---- a request's way ---- */

static void free_request(struct replay *replay, int idx) {
    if (!replay->items[idx].is_needed) engine_client_free(&replay->items[idx].request);
}

/* idx has come to its end: what continues it becomes due, or is skipped. */
static void come_home(struct replay *replay, int idx, enum outcome_kind kind) {
    struct outcome *outcome = &replay->outcomes->of[idx];
    outcome->kind = kind;
    if (kind == OUTCOME_SKIPPED) outcome->arrival_ns = outcome->submitted_ns = now_ns(replay);
    outcome->finished_ns = now_ns(replay);
    replay->items[idx].state = HOME;
    replay->items[idx].cancel_ns = NEVER;
    replay->n_home++;
    for (int i = idx + 1; replay->items[idx].is_needed && i < replay->trace->n_requests; i++) {
        if (replay->trace->requests[i].after != idx) continue;
        replay->items[i].state = DUE;
        replay->items[i].due_ns = outcome->finished_ns + scaled_ns(replay, replay->trace->requests[i].arrival_ms);
        if (kind != OUTCOME_FINISHED) come_home(replay, i, OUTCOME_SKIPPED);
    }
}

static struct request *make_request(struct replay *replay, int idx) {
    const struct trace_request *asked = &replay->trace->requests[idx];
    int n_before = asked->n_prompt - asked->n_own;
    uint32_t *prompt = mem_alloc_array((size_t)asked->n_prompt, sizeof *prompt);
    if (!prompt) return NULL;
    if (asked->after >= 0)
        memcpy(prompt, replay->items[asked->after].request->tokens, (size_t)n_before * sizeof *prompt);
    trace_own_tokens(replay->trace, idx, engine_model(replay->engine)->n_vocab, prompt + n_before);
    struct request *request = engine_client_make(prompt, asked->n_prompt, asked->n_output);
    mem_free(prompt);
    return request;
}

static void set_deadline(const struct replay *replay, int idx) {
    const struct trace_request *asked = &replay->trace->requests[idx];
    struct outcome *outcome = &replay->outcomes->of[idx];
    if (!asked->has_deadline) return;
    double solo_ns = replay->solo_ns ? (double)replay->solo_ns[idx] : 0;
    outcome->deadline_ns = outcome->arrival_ns + (int64_t)(asked->deadline_ms * 1e6 + asked->deadline_solo_x * solo_ns);
}

static enum status submit(struct replay *replay, int idx) {
    struct item *item = &replay->items[idx];
    const struct trace_request *asked = &replay->trace->requests[idx];
    struct outcome *outcome = &replay->outcomes->of[idx];
    outcome->arrival_ns = item->due_ns;
    set_deadline(replay, idx);
    item->request = make_request(replay, idx);
    if (!item->request) return STATUS_NOMEM;
    outcome->submitted_ns = now_ns(replay);
    item->request->class_ = asked->class_;
    item->request->tenant_id = trace_tenant_id(asked);
    item->request->tenant_weight = asked->tenant_weight;
    item->request->priority = asked->priority;
    if (outcome->deadline_ns >= 0) item->request->deadline_ns = replay->start_ns + outcome->deadline_ns;
    if (engine_client_submit(replay->engine, item->request)) {
        snprintf(outcome->note, sizeof outcome->note, "the inbox is full");
        come_home(replay, idx, OUTCOME_REFUSED);
        free_request(replay, idx);
        return STATUS_OK;
    }
    if (replay->n_sent == 0) replay->first_id = item->request->id;
    REQUIRE(item->request->id == replay->first_id + (uint64_t)replay->n_sent);
    replay->sent[replay->n_sent++] = idx;
    item->state = RUNNING;
    if (asked->has_cancel) item->cancel_ns = item->due_ns + scaled_ns(replay, asked->cancel_ms);
    return STATUS_OK;
}

/* Sends what is due, and finds when the next thing will be. */
static enum status send_due(struct replay *replay, int64_t *out_next_ns) {
    enum status status = STATUS_OK;
    int64_t at_ns = now_ns(replay);
    *out_next_ns = NEVER;
    while (replay->n_before < replay->trace->n_requests && replay->items[replay->n_before].state == HOME)
        replay->n_before++;
    for (int i = replay->n_before; i < replay->trace->n_requests && !status; i++) {
        struct item *item = &replay->items[i];
        if (item->state == DUE && item->due_ns <= at_ns) status = submit(replay, i);
        if (item->state == RUNNING && item->cancel_ns <= at_ns &&
            engine_client_cancel(replay->engine, item->request->id) == STATUS_OK)
            item->cancel_ns = NEVER;
        int64_t next_ns = item->state == DUE ? item->due_ns : item->state == RUNNING ? item->cancel_ns : NEVER;
        if (next_ns < *out_next_ns) *out_next_ns = next_ns;
    }
    return status;
}

static void take_event(struct replay *replay, const struct event *event) {
    REQUIRE(event->request_id >= replay->first_id && event->request_id - replay->first_id < (uint64_t)replay->n_sent);
    int idx = replay->sent[event->request_id - replay->first_id];
    struct outcome *outcome = &replay->outcomes->of[idx];
    /* Told when it arrived at the engine, counted from when it was due. */
    if (event->kind == EVENT_ADMITTED && event->estimate_ns)
        outcome->predicted_ns = outcome->submitted_ns - outcome->arrival_ns + event->estimate_ns;
    if (event->kind == EVENT_TOKEN) outcome->token_ns[outcome->n_tokens++] = now_ns(replay);
    if (event->kind != EVENT_REFUSED && event->kind != EVENT_FINISHED) return;
    const struct request *request = replay->items[idx].request;
    outcome->n_cached = request->stats.n_cached_tokens;
    outcome->phases = request->stats;
    outcome->has_phases = event->kind == EVENT_FINISHED;
    if (event->kind == EVENT_REFUSED) {
        snprintf(outcome->note, sizeof outcome->note, "%s", request->note.text);
        outcome->refusal = event->refusal;
        outcome->retry_after_ns = event->retry_after_ns;
    }
    bool is_cancelled = event->kind == EVENT_FINISHED && event->reason == FINISH_CANCELLED;
    come_home(replay, idx,
              event->kind == EVENT_REFUSED ? OUTCOME_REFUSED
              : is_cancelled               ? OUTCOME_CANCELLED
                                           : OUTCOME_FINISHED);
    free_request(replay, idx);
}

/* ---- the run ---- */

static enum status prepare(struct replay *replay) {
    const struct trace *trace = replay->trace;
    size_t n = (size_t)trace->n_requests;
    replay->items = mem_alloc_array(n, sizeof *replay->items);
    replay->sent = mem_alloc_array(n, sizeof *replay->sent);
    if (!replay->items || !replay->sent) return STATUS_NOMEM;
    for (int i = 0; i < trace->n_requests; i++) {
        int after = trace->requests[i].after;
        replay->items[i] = (struct item){after >= 0 ? UNKNOWN_DUE : DUE,
                                         scaled_ns(replay, trace->requests[i].arrival_ms), NEVER, NULL, false};
        if (after >= 0) replay->items[after].is_needed = true;
    }
    return STATUS_OK;
}

/* Milliseconds to wait for an event before something is due; -1: for ever. */
static int wait_ms(const struct replay *replay, int64_t next_ns) {
    if (next_ns == NEVER) return -1;
    int64_t ms = (next_ns - now_ns(replay)) / 1000000;
    return ms < 0 ? 0 : ms > INT_MAX ? INT_MAX : (int)ms;
}

static enum status run(struct replay *replay) {
    struct event event;
    int64_t next_ns;
    enum status status = STATUS_OK;
    while (replay->n_home < replay->trace->n_requests && !status) {
        status = send_due(replay, &next_ns);
        if (status || replay->n_home == replay->trace->n_requests) break;
        if (engine_client_wait(replay->engine, wait_ms(replay, next_ns), &event)) take_event(replay, &event);
        while (engine_client_wait(replay->engine, 0, &event)) take_event(replay, &event);
    }
    return status;
}

/* Requests still with the engine after an error must come home before their memory goes. */
static void recall(struct replay *replay) {
    struct event event;
    for (int i = 0; replay->items && i < replay->trace->n_requests; i++)
        while (replay->items[i].state == RUNNING &&
               engine_client_cancel(replay->engine, replay->items[i].request->id) == STATUS_OK) {
            while (replay->items[i].state == RUNNING)
                if (engine_client_wait(replay->engine, -1, &event)) take_event(replay, &event);
        }
}

enum status replay_run(struct engine *engine, double scale, const int64_t *solo_ns, struct outcomes *outcomes,
                       struct status_note *note) {
    struct replay replay = {
        .engine = engine, .outcomes = outcomes, .trace = outcomes->trace, .scale = scale, .solo_ns = solo_ns};
    struct host_time before, after;
    struct engine_stats stats_before = engine_read_stats(engine);
    enum status status = prepare(&replay);
    host_time_read(&before);
    replay.start_ns = clock_now_ns();
    if (!status) status = run(&replay);
    if (status) recall(&replay);
    host_time_read(&after);
    outcomes->totals.wall_ms = (double)now_ns(&replay) / 1e6;
    outcomes->totals.stolen_ms = host_time_between_ms(before.stolen_ms, after.stolen_ms);
    outcomes->totals.waited_ms = host_time_between_ms(before.waited_ms, after.waited_ms);
    struct engine_stats stats = engine_read_stats(engine);
    double steps_ns = (double)(stats.steps_ns - stats_before.steps_ns);
    outcomes->totals.n_steps = stats.n_steps - stats_before.n_steps;
    if (steps_ns > 0)
        outcomes->totals.outside_forward_share = 1 - (double)(stats.forwards_ns - stats_before.forwards_ns) / steps_ns;
    outcomes->totals.n_preemptions = 0;
    for (int i = 0; i < outcomes->trace->n_requests; i++)
        outcomes->totals.n_preemptions += outcomes->of[i].phases.n_preemptions;
    for (int i = 0; replay.items && i < replay.trace->n_requests; i++) engine_client_free(&replay.items[i].request);
    mem_free(replay.items);
    mem_free(replay.sent);
    return status ? status_fail(note, status, "no memory to replay %d requests", outcomes->trace->n_requests) : status;
}
