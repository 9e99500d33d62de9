#include "bench/load_replay.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/words.h"

#define MAX_TEXT_BYTES ((size_t)64 << 20)
#define MAX_TURNS 256
#define MAX_WAIT_MS 1000
#define SHARED_TEXT 0x40000000 /* numbers of shared texts begin here, of own ones at 0 */
#define NEVER INT64_MAX

enum state { UNKNOWN_DUE, DUE, RUNNING, HOME };

struct item {
    struct replay *replay;
    enum state state;
    int64_t due_ns;
    int64_t cancel_ns; /* NEVER: not, or done */
    struct str own;    /* its own words */
    struct load_answer answer;
};

struct replay {
    const struct load_replay_options *options;
    const struct trace *trace;
    struct outcomes *outcomes;
    struct load_client *client;
    struct item *items; /* [n_requests] */
    int64_t start_ns;
    int n_running, n_home, n_failed, max_running;
    int first_open; /* all before it are running or home */
    struct status_note *note;
};

static int64_t now_ns(const struct replay *replay) {
    return clock_now_ns() - replay->start_ns;
}

/* ---- a request's end ---- */

static void come_home(struct replay *replay, int idx, enum outcome_kind kind);

static void release(struct replay *replay, int before) {
    for (int i = before + 1; i < replay->trace->n_requests; i++) {
        if (replay->trace->requests[i].after != before) continue;
        if (replay->outcomes->of[before].kind != OUTCOME_FINISHED) {
            come_home(replay, i, OUTCOME_SKIPPED);
            continue;
        }
        replay->items[i].state = DUE;
        replay->items[i].due_ns =
            now_ns(replay) + (int64_t)(replay->trace->requests[i].arrival_ms * 1e6 * replay->options->scale);
    }
}

static void come_home(struct replay *replay, int idx, enum outcome_kind kind) {
    struct outcome *outcome = &replay->outcomes->of[idx];
    outcome->kind = kind;
    outcome->finished_ns = now_ns(replay);
    if (kind == OUTCOME_SKIPPED) outcome->arrival_ns = outcome->submitted_ns = outcome->finished_ns;
    replay->items[idx].state = HOME;
    replay->n_home++;
    release(replay, idx);
}

/* One time for each token: an event may have brought several, or none if a character was cut. */
static void keep_times(const struct replay *replay, const struct load_answer *answer, struct outcome *outcome,
                       int max_tokens) {
    int n = answer->n_new > 0 ? answer->n_new : answer->n_content;
    if (n > max_tokens) n = max_tokens;
    if (answer->n_content == 0) n = 0;
    for (int i = 0; i < n; i++) {
        int event = n > 1 ? (int)((int64_t)i * (answer->n_content - 1) / (n - 1)) : 0;
        outcome->token_ns[i] = answer->content_ns[event] - replay->start_ns;
    }
    outcome->n_tokens = n;
}

static void keep_answer(struct replay *replay, int idx) {
    const struct load_answer *answer = &replay->items[idx].answer;
    struct outcome *outcome = &replay->outcomes->of[idx];
    if (answer->n_prompt > 0) outcome->n_prompt = answer->n_prompt;
    outcome->n_cached = answer->n_cached > 0 ? answer->n_cached : 0;
    keep_times(replay, answer, outcome, replay->trace->requests[idx].n_output);
    replay->n_running--;
}

static void on_end(void *owner, struct load_answer *answer) {
    struct item *item = owner;
    struct replay *replay = item->replay;
    int idx = (int)(item - replay->items);
    struct outcome *outcome = &replay->outcomes->of[idx];
    keep_answer(replay, idx);
    if (answer->end != LOAD_OK) snprintf(outcome->note, sizeof outcome->note, "%s", answer->note);
    if (answer->retry_after_s > 0) outcome->retry_after_ns = (int64_t)answer->retry_after_s * 1000000000;
    bool is_failed = answer->end != LOAD_OK && answer->end != LOAD_REFUSED;
    if (is_failed && replay->n_failed++ == 0)
        status_fail(replay->note, STATUS_PEER, "request %d: %s: %s", idx, load_answer_end_name(answer->end),
                    answer->note);
    come_home(replay, idx,
              is_failed                     ? OUTCOME_CANCELLED
              : answer->end == LOAD_REFUSED ? OUTCOME_REFUSED
                                            : OUTCOME_FINISHED);
}

/* ---- sending ---- */

static enum status make_words(const struct replay *replay, int idx) {
    const struct trace_request *asked = &replay->trace->requests[idx];
    const struct load_replay_options *options = replay->options;
    struct str *own = &replay->items[idx].own;
    int n_shared = (int)(asked->n_shared / options->tokens_per_word);
    int n_new = (int)((asked->n_own - asked->n_shared) / options->tokens_per_word);
    enum status status = STATUS_OK;
    if (n_shared) status = words_append(own, options->seed, (uint32_t)(SHARED_TEXT + asked->shared_id), n_shared);
    return status ? status : words_append(own, options->seed, (uint32_t)idx, n_new > 0 ? n_new : 1);
}

/* The turns so far and its own. turns: [MAX_TURNS]. */
static enum status make_turns(const struct replay *replay, int idx, struct load_turn *turns, int *out_n_turns) {
    int n_turns = 0, chain[MAX_TURNS / 2], n_chain = 0;
    enum status status = make_words(replay, idx);
    if (status) return status_fail(replay->note, status, "no memory for a prompt");
    for (int i = idx; i >= 0 && n_chain < MAX_TURNS / 2; i = replay->trace->requests[i].after) chain[n_chain++] = i;
    for (int i = n_chain - 1; i >= 0; i--) {
        turns[n_turns++] = (struct load_turn){"user", replay->items[chain[i]].own.ptr};
        if (i > 0) turns[n_turns++] = (struct load_turn){"assistant", replay->items[chain[i]].answer.text.ptr};
    }
    *out_n_turns = n_turns;
    return STATUS_OK;
}

static enum status submit(struct replay *replay, int idx) {
    struct item *item = &replay->items[idx];
    const struct trace_request *asked = &replay->trace->requests[idx];
    struct outcome *outcome = &replay->outcomes->of[idx];
    struct load_turn turns[MAX_TURNS];
    int n_turns = 0;
    enum status status = asked->ids ? STATUS_OK : make_turns(replay, idx, turns, &n_turns);
    if (status) return status;
    struct load_ask ask = {.turns = turns,
                           .n_turns = n_turns,
                           .ids = asked->ids,
                           .n_ids = asked->n_own,
                           .max_tokens = asked->n_output > 0 ? asked->n_output : 1,
                           .is_batch = asked->class_ == REQUEST_BATCH,
                           .timeout_ms = replay->options->timeout_ms};
    outcome->arrival_ns = replay->options->n_clients ? now_ns(replay) : item->due_ns;
    outcome->submitted_ns = now_ns(replay);
    status = load_client_start(replay->client, &ask, &item->answer, on_end, item, replay->note);
    if (status) return status;
    item->state = RUNNING;
    if (asked->has_cancel)
        item->cancel_ns = outcome->arrival_ns + (int64_t)(asked->cancel_ms * 1e6 * replay->options->scale);
    replay->n_running++;
    return STATUS_OK;
}

/* Clients leave whose time it is. *next_ns: moved to when the next one will. */
static void cancel_due(struct replay *replay, int64_t *next_ns) {
    for (int i = 0; i < replay->trace->n_requests; i++) {
        struct item *item = &replay->items[i];
        if (item->state != RUNNING || item->cancel_ns == NEVER) continue;
        if (item->cancel_ns <= now_ns(replay)) {
            item->cancel_ns = NEVER;
            load_client_cancel(replay->client, &item->answer);
            keep_answer(replay, i);
            come_home(replay, i, OUTCOME_CANCELLED);
        } else if (item->cancel_ns < *next_ns) {
            *next_ns = item->cancel_ns;
        }
    }
}

/* Sends what is due and finds when the next is. In a closed loop everything is due at once, in the trace's order. */
static enum status send_due(struct replay *replay, int64_t *out_next_ns) {
    enum status status = STATUS_OK;
    *out_next_ns = NEVER;
    while (replay->first_open < replay->trace->n_requests && replay->items[replay->first_open].state >= RUNNING)
        replay->first_open++;
    for (int i = replay->first_open; i < replay->trace->n_requests && !status; i++) {
        struct item *item = &replay->items[i];
        if (item->state != DUE) continue;
        if (replay->n_running == replay->max_running && replay->options->n_clients) break;
        bool is_due = replay->options->n_clients || item->due_ns <= now_ns(replay);
        if (is_due && replay->n_running < replay->max_running)
            status = submit(replay, i);
        else if (!is_due && item->due_ns < *out_next_ns)
            *out_next_ns = item->due_ns;
    }
    return status;
}

static int wait_ms(const struct replay *replay, int64_t next_ns) {
    if (next_ns == NEVER) return MAX_WAIT_MS;
    int64_t ms = (next_ns - now_ns(replay)) / 1000000;
    return ms < 0 ? 0 : ms > MAX_WAIT_MS ? MAX_WAIT_MS : (int)ms;
}

/* ---- the run ---- */

static enum status prepare(struct replay *replay) {
    const struct trace *trace = replay->trace;
    replay->items = mem_alloc_array((size_t)trace->n_requests, sizeof *replay->items);
    if (!replay->items) return STATUS_NOMEM;
    for (int i = 0; i < trace->n_requests; i++) {
        const struct trace_request *asked = &trace->requests[i];
        struct item *item = &replay->items[i];
        *item = (struct item){.replay = replay,
                              .state = asked->after >= 0 ? UNKNOWN_DUE : DUE,
                              .due_ns = (int64_t)(asked->arrival_ms * 1e6 * replay->options->scale),
                              .cancel_ns = NEVER};
        str_init(&item->own, MAX_TEXT_BYTES);
        if (load_answer_init(&item->answer, asked->n_output > 0 ? asked->n_output : 1)) return STATUS_NOMEM;
    }
    return STATUS_OK;
}

static enum status run(struct replay *replay) {
    int64_t next_ns;
    enum status status = STATUS_OK;
    replay->start_ns = clock_now_ns();
    while (replay->n_home < replay->trace->n_requests && !status) {
        status = send_due(replay, &next_ns);
        cancel_due(replay, &next_ns);
        if (!status) load_client_run(replay->client, wait_ms(replay, next_ns));
    }
    replay->outcomes->totals.wall_ms = (double)now_ns(replay) / 1e6;
    return status;
}

/* Ids go to completions alone, and an answer's text is no part of a prompt of ids. */
static enum status check_ids(const struct load_target *target, const struct trace *trace, struct status_note *note) {
    for (int i = 0; i < trace->n_requests; i++) {
        const struct trace_request *asked = &trace->requests[i];
        bool is_mixed = asked->after >= 0 && (asked->ids || trace->requests[asked->after].ids);
        if (is_mixed)
            return status_fail(note, STATUS_INVALID, "line %d: after: over HTTP prompt_ids continue nothing", i + 2);
        if (asked->ids && target->endpoint != LOAD_COMPLETION)
            return status_fail(note, STATUS_INVALID, "line %d: prompt_ids: they need --endpoint completions", i + 2);
    }
    return STATUS_OK;
}

enum status load_replay_run(const struct load_target *target, const struct load_replay_options *options,
                            struct outcomes *outcomes, int *out_n_failed, struct status_note *note) {
    const struct trace *trace = outcomes->trace;
    struct replay replay = {.options = options, .trace = trace, .outcomes = outcomes, .note = note};
    *out_n_failed = 0;
    enum status status = check_ids(target, trace, note);
    if (status) return status;
    replay.max_running = options->n_clients ? options->n_clients : LOAD_REPLAY_MAX_CLIENTS;
    status = prepare(&replay);
    if (status) status_fail(note, status, "no memory for %d requests", trace->n_requests);
    if (!status) status = load_client_create(&replay.client, target, replay.max_running, note);
    if (!status) status = run(&replay);
    *out_n_failed = replay.n_failed;
    load_client_destroy(&replay.client);
    for (int i = 0; replay.items && i < trace->n_requests; i++) {
        str_deinit(&replay.items[i].own);
        load_answer_deinit(&replay.items[i].answer);
    }
    mem_free(replay.items);
    return status;
}
