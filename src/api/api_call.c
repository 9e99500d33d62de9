#include "api/api_call.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/api_choice.h"
#include "api/api_dashboard.h"
#include "api/api_delivery.h"
#include "api/api_promise.h"
#include "api/api_request.h"
#include "api/api_response.h"
#include "api/app_cache.h"
#include "api/pre_hook.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MAX_PIECE_BYTES ((size_t)1 << 20)     /* of what one token makes certain */
#define SLOW_READER_BYTES ((size_t)256 << 10) /* pending from here on: tokens are not acknowledged */

/* ---- life ---- */

void api_call_reset_prompt(struct api_prompt *prompt) {
    struct request *request = prompt->request;
    if (request) {
        mem_free(request->logprobs);
        mem_free(request->prompt_logprobs);
        mem_free(request->embedding);
    }
    engine_client_free(&prompt->request);
    grammar_destroy(&prompt->grammar);
    mem_free(prompt->ids);
    mem_free(prompt->own_text);
    prompt->ids = NULL;
    prompt->own_text = NULL;
}

void api_call_free_prompts(struct api_prompt *prompts, int n_prompts, int n_choices) {
    for (int i = 0; prompts && i < n_prompts; i++) {
        api_call_reset_prompt(&prompts[i]);
        api_choice_deinit_all(&prompts[i], n_choices);
    }
    mem_free(prompts);
}

void api_call_close(struct api_call *call) {
    struct api_server *api = call->api;
    if (call->next) call->next->prev = call->prev;
    if (call->prev)
        call->prev->next = call->next;
    else
        api->calls = call->next;
    api->n_calls--;
    pre_hook_drop(call);
    app_cache_drop(call);
    mem_free(call->question);
    if (call->record.max_bytes) str_deinit(&call->record);
    api_call_free_prompts(call->prompts, call->n_prompts, call->params.n);
    api_params_deinit(&call->params);
    json_decref(call->json);
    mem_free(call);
}

/* The client's own id if it gave a sound one. */
static void set_id(struct api_call *call) {
    const char *given = call->exchange ? http_exchange_header(call->exchange, "x-request-id") : NULL;
    if (!given) given = json_string_value(json_object_get(call->json, "request_id"));
    size_t n = given ? strlen(given) : 0;
    bool is_sound = n >= 1 && n <= 128;
    for (size_t i = 0; is_sound && i < n; i++)
        is_sound = given[i] > ' ' && given[i] < 0x7f && given[i] != '"' && given[i] != '\\';
    if (is_sound)
        snprintf(call->id, sizeof call->id, "%s%s", call->response->id_prefix, given);
    else
        snprintf(call->id, sizeof call->id, "%s%016llx%08llx", call->response->id_prefix,
                 (unsigned long long)api_server_random(call->api), (unsigned long long)call->api->n_requests);
}

static void on_gone(void *owner) {
    struct api_call *call = owner;
    call->exchange = NULL;
    call->was_left = true;
    api_call_cancel(call);
    if (!call->ask && !call->look) return;
    pre_hook_drop(call); /* nobody else will tell of it */
    app_cache_drop(call);
    api_call_on_failure(call, -1);
}

/* What the headers tell. */
static void read_headers(struct api_call *call) {
    const char *traceparent = http_exchange_header(call->exchange, "traceparent");
    if (traceparent && utf8_valid_prefix(traceparent, strlen(traceparent)) == strlen(traceparent))
        snprintf(call->traceparent, sizeof call->traceparent, "%s", strlen(traceparent) < 60 ? traceparent : "");
    http_exchange_on_gone(call->exchange, on_gone, call);
}

static void enlist(struct api_server *api, struct api_call *call) {
    call->next = api->calls;
    if (api->calls) api->calls->prev = call;
    api->calls = call;
    api->n_calls++;
    api->n_requests++;
}

/* What the request holds is copied and still its own. NULL: no memory. */
static struct api_call *make(const struct api_origin *origin, const struct api_request *request,
                             const struct api_response *response) {
    struct api_call *call = mem_alloc(sizeof *call);
    if (!call) return NULL;
    *call = (struct api_call){.api = request->api,
                              .response = response,
                              .exchange = origin->exchange,
                              .take = origin->take,
                              .taker = origin->owner,
                              .json = request->json,
                              .params = request->params,
                              .extras = request->extras,
                              .prompts = request->prompts,
                              .n_prompts = request->n_prompts,
                              .kind = response->kind,
                              .key_idx = origin->key_idx,
                              .created_s = (int64_t)time(NULL),
                              .received_ns = origin->received_ns,
                              .read_ns = origin->read_ns ? origin->read_ns : origin->received_ns};
    atomic_init(&call->is_gone, false);
    bool has_memory = true;
    for (int i = 0; i < call->n_prompts; i++) {
        call->prompts[i].call = call;
        has_memory = has_memory && api_choice_init_all(call, &call->prompts[i]);
    }
    if (has_memory) return call;
    mem_free(call);
    return NULL;
}

struct api_call *api_call_open(const struct api_origin *origin, struct api_request *request,
                               const struct api_response *response, struct api_fault *fault) {
    struct api_server *api = request->api;
    int64_t deadline_ms = 0;
    if (origin->exchange && !api_promise_read_deadline(origin->exchange, &deadline_ms, fault)) return NULL;
    if (api->n_calls >= api->options.max_calls) {
        api_fault_set(fault, 429, "rate_limit_exceeded", NULL, "%d requests are open, which is the limit",
                      api->options.max_calls);
        fault->retry_after_s = 1;
        return NULL;
    }
    struct api_call *call = make(origin, request, response);
    if (!call) {
        api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the request");
        return NULL;
    }
    *request = (struct api_request){.api = api};
    if (!call->params.has_seed) call->params.sampling.seed = api_server_random(api);
    call->deadline_ns = deadline_ms ? call->received_ns + deadline_ms * 1000000 : 0;
    snprintf(call->path, sizeof call->path, "%s", origin->path);
    if (origin->is_batch) call->params.class_ = REQUEST_BATCH;
    call->is_estimate = strcmp(call->path, API_ESTIMATE_PATH) == 0;
    set_id(call);
    enlist(api, call);
    if (call->exchange) read_headers(call);
    return call;
}

/* What its key and its class make of it. */
static void apply_terms(struct api_call *call) {
    struct api_server *api = call->api;
    struct api_fault ignored;
    bool is_over = !api_auth_check_rate(&api->auth, call->key_idx, clock_now_ns(), &ignored);
    call->terms = api_auth_terms(&api->auth, call->key_idx);
    if (call->terms.class_ == REQUEST_BATCH || (is_over && api->options.moves_over_cap))
        call->params.class_ = REQUEST_BATCH;
    int64_t ttft_ns = api->options.slo_ns[call->params.class_][SLO_TTFT];
    if (call->deadline_ns || !ttft_ns) return;
    call->deadline_ns = call->received_ns + ttft_ns;
    call->has_slo_deadline = true;
}

void api_call_start(struct api_call *call) {
    apply_terms(call);
    call->parsed_ns = clock_now_ns();
    if (tokenize_worker_push(call->api->worker, call)) BUG("more calls than the worker's queue holds");
}

/* ---- cancel ---- */

static void cancel_prompt(struct api_prompt *prompt) {
    if (prompt->state != PROMPT_ADMITTED) return;                                     /* its ADMITTED finds is_gone */
    if (engine_client_cancel(prompt->call->api->engine, prompt->request->id)) return; /* api_call_tick tries again */
}

void api_call_cancel(struct api_call *call) {
    atomic_store_explicit(&call->is_gone, true, memory_order_relaxed);
    for (int i = 0; i < call->n_prompts; i++) cancel_prompt(&call->prompts[i]);
}

/* ---- what others ask of it ---- */

int api_call_choice_idx(const struct api_prompt *prompt, int choice) {
    return (int)(prompt - prompt->call->prompts) * prompt->call->params.n + choice;
}

int api_call_max_context(const struct api_server *api, const struct api_key_terms *terms) {
    int max = engine_max_context(api->engine);
    return terms->max_context && terms->max_context < max ? terms->max_context : max;
}

struct api_usage api_call_usage(const struct api_call *call) {
    struct api_usage usage = {0};
    for (int i = 0; i < call->n_prompts; i++) {
        const struct api_prompt *prompt = &call->prompts[i];
        if (!prompt->request || prompt->state == PROMPT_PENDING) continue;
        struct phase_stats stats;
        if (prompt->state == PROMPT_HOME)
            stats = prompt->request->stats;
        else
            engine_client_look(prompt->request, &stats);
        usage.n_prompt += prompt->request->n_prompt;
        usage.n_cached += stats.n_cached_tokens;
        for (int c = 0; c < call->params.n; c++) {
            usage.n_completion += prompt->choices[c].n_tokens;
            usage.n_reasoning += prompt->choices[c].n_reasoning_tokens;
        }
    }
    return usage;
}

/* ---- what comes back ---- */

/* One prompt less is out. The last one ends the call. */
static void come_home(struct api_prompt *prompt) {
    struct api_call *call = prompt->call;
    prompt->state = PROMPT_HOME;
    if (++call->n_home < call->n_prompts) return;
    api_delivery_finish(call);
    if (!call->is_estimate) api_history_note(call);
    api_call_close(call);
}

void api_call_on_failure(struct api_call *call, int prompt_idx) {
    if (prompt_idx >= 0) {
        api_fault_from_status(&call->fault, STATUS_BUSY, NULL);
        snprintf(call->fault.message, sizeof call->fault.message, "the engine's queue is full");
        api_call_cancel(call);
        come_home(&call->prompts[prompt_idx]);
        return;
    }
    /* None of it reached the engine. */
    call->n_home = call->n_prompts - 1;
    come_home(&call->prompts[call->n_prompts - 1]);
}

static void note_pace(const struct api_prompt *prompt, const struct api_choice *choice, const struct event *event,
                      int64_t now_ns) {
    const struct api_call *call = prompt->call;
    struct live_history *live = &call->api->dashboard->live;
    if (choice->last_token_ns) {
        request_metrics_gap(&call->api->metrics, prompt->request->class_, now_ns - choice->last_token_ns);
        live_history_note_next(live, now_ns, now_ns - choice->last_token_ns);
    } else {
        live_history_note_first(live, now_ns, event->choice ? -1 : event->told_ns - call->received_ns);
    }
}

static void on_token(struct api_prompt *prompt, const struct event *event) {
    struct api_call *call = prompt->call;
    struct api_choice *choice = &prompt->choices[event->choice];
    struct str piece;
    if (choice->is_over) return;
    int64_t now_ns = clock_now_ns();
    note_pace(prompt, choice, event, now_ns);
    choice->last_token_ns = now_ns;
    choice->n_tokens++;
    str_init(&piece, MAX_PIECE_BYTES);
    enum status status = detokenizer_push(&choice->detokenizer, (int32_t)event->token, &piece);
    if (!status) status = api_choice_read(call, choice, &piece, false);
    str_deinit(&piece);
    if (status) {
        api_delivery_fail(call);
        return;
    }
    api_delivery_piece(prompt, (int)event->choice, event->token_idx);
    if (choice->stop.found < 0 && !choice->is_complete) return;
    api_delivery_end_choice(prompt, (int)event->choice, "stop");
    bool is_all_over = true;
    for (int i = 0; i < call->params.n; i++) is_all_over &= prompt->choices[i].is_over;
    if (is_all_over) cancel_prompt(prompt);
}

static void on_choice_finished(struct api_prompt *prompt, const struct event *event) {
    struct api_call *call = prompt->call;
    struct api_choice *choice = &prompt->choices[event->choice];
    struct str tail;
    if (choice->is_over) return;
    str_init(&tail, MAX_PIECE_BYTES);
    enum status status = detokenizer_finish(&choice->detokenizer, &tail);
    if (!status) status = api_choice_read(call, choice, &tail, true);
    str_deinit(&tail);
    if (status) {
        api_delivery_fail(call);
        return;
    }
    if (event->reason == FINISH_CANCELLED && !call->fault.http_code)
        api_fault_set(&call->fault, 503, "server_shutdown", NULL, "the server ended before the answer did");
    const char *words = prompt->grammar ? grammar_fault(prompt->grammar) : NULL;
    if (words && !call->fault.http_code)
        api_fault_set(&call->fault, 500, "grammar_failed", call->params.grammar_field,
                      "the form that '%s' demands cannot go on: %s", call->params.grammar_field, words);
    if (event->reason == FINISH_UNREAD) api_delivery_abort(call);
    /* A stop token is part of the count: the model made it. */
    if (event->reason == FINISH_STOP) choice->n_tokens++;
    api_delivery_piece(prompt, (int)event->choice, -1);
    api_delivery_end_choice(prompt, (int)event->choice, event->reason == FINISH_LENGTH ? "length" : "stop");
}

/* The reader has what was sent, or will soon: the engine may go on. */
static void acknowledge(struct api_prompt *prompt) {
    struct api_call *call = prompt->call;
    if (prompt->n_unacknowledged == 0 || prompt->state != PROMPT_ADMITTED) return;
    if (call->exchange && http_exchange_n_pending(call->exchange) > SLOW_READER_BYTES) return;
    engine_client_acknowledge(prompt->request, prompt->n_unacknowledged);
    prompt->n_unacknowledged = 0;
}

/* Beyond what its class may ask or is promised it goes on as batch, where the operator wants that. */
static bool move_to_batch(struct api_prompt *prompt, const struct event *event) {
    struct api_call *call = prompt->call;
    struct request *request = event->request;
    bool is_beyond =
        event->refusal == ADMISSION_INPUT_CAP || (event->refusal == ADMISSION_DEADLINE && call->has_slo_deadline);
    if (!call->api->options.moves_over_cap || !is_beyond || request->class_ == REQUEST_BATCH ||
        atomic_load_explicit(&call->is_gone, memory_order_relaxed))
        return false;
    int64_t ttft_ns = call->api->options.slo_ns[REQUEST_BATCH][SLO_TTFT];
    if (call->has_slo_deadline) request->deadline_ns = ttft_ns ? call->received_ns + ttft_ns : 0;
    request->class_ = REQUEST_BATCH;
    request->stats = prompt->before;
    request->note = (struct status_note){0};
    enum status status = call->is_estimate ? engine_client_ask(call->api->engine, request)
                                           : engine_client_submit(call->api->engine, request);
    return status == STATUS_OK;
}

void api_call_on_event(const struct event *event) {
    struct api_prompt *prompt = event->owner;
    struct api_call *call = prompt->call;
    switch (event->kind) {
    case EVENT_ADMITTED:
        prompt->state = PROMPT_ADMITTED;
        api_auth_use(&call->api->auth, call->key_idx, prompt->n_ids, 0, clock_now_ns());
        prompt->told = *event;
        api_choice_begin(prompt);
        if (atomic_load_explicit(&call->is_gone, memory_order_relaxed))
            cancel_prompt(prompt);
        else
            api_delivery_start(call);
        return;
    case EVENT_REFUSED:
        if (move_to_batch(prompt, event)) return;
        prompt->told = *event;
        if (call->is_estimate && event->refusal != ADMISSION_ADMITTED) {
            come_home(prompt);
            return;
        }
        if (!call->fault.http_code) api_promise_refuse(&call->fault, event);
        api_call_cancel(call);
        come_home(prompt);
        return;
    case EVENT_PROGRESS: api_delivery_progress(prompt, event); return;
    case EVENT_TOKEN:
        prompt->n_unacknowledged++;
        on_token(prompt, event);
        acknowledge(prompt);
        return;
    case EVENT_CHOICE_FINISHED: on_choice_finished(prompt, event); return;
    case EVENT_ESTIMATED:
        prompt->told = *event;
        come_home(prompt);
        return;
    case EVENT_FINISHED: come_home(prompt); return;
    }
}

int api_call_n_pending(const struct api_server *api) {
    int n = 0;
    for (const struct api_call *call = api->calls; call; call = call->next)
        for (int i = 0; i < call->n_prompts; i++) n += call->prompts[i].state == PROMPT_PENDING;
    return n;
}

void api_call_tick(struct api_call *call) {
    for (int i = 0; i < call->n_prompts; i++) {
        acknowledge(&call->prompts[i]);
        if (atomic_load_explicit(&call->is_gone, memory_order_relaxed)) cancel_prompt(&call->prompts[i]);
    }
}
