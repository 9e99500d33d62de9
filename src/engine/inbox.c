#include "engine/inbox.h"

#include "engine/gate.h"
#include "engine/outbox.h"
#include "engine/pacing.h"

/* ---- what can never be answered ---- */

static enum status check_sizes(const struct engine *engine, struct request *request) {
    struct status_note *note = &request->note;
    if (request->n_prompt < 1) return status_fail(note, STATUS_INVALID, "the prompt has no tokens");
    if (request->max_new < 0) return status_fail(note, STATUS_INVALID, "max_tokens %d is negative", request->max_new);
    int max_choices =
        engine->options.max_sequences < REQUEST_MAX_CHOICES ? engine->options.max_sequences : REQUEST_MAX_CHOICES;
    if (request->n_choices < 1 || request->n_choices > max_choices)
        return status_fail(note, STATUS_LIMIT, "n %d is not within 1..%d", request->n_choices, max_choices);
    if (request->n_choices > 1 && request->max_new < 1)
        return status_fail(note, STATUS_INVALID, "n %d with max_tokens %d", request->n_choices, request->max_new);
    if (request->min_new < 0 || request->min_new > request->max_new)
        return status_fail(note, STATUS_INVALID, "min_tokens %d is not within 0..max_tokens %d", request->min_new,
                           request->max_new);
    return STATUS_OK;
}

static enum status check_tokens(const struct engine *engine, struct request *request) {
    struct status_note *note = &request->note;
    int n_vocab = engine->model.n_vocab;
    for (int i = 0; i < request->n_prompt; i++)
        if (request->tokens[i] >= (uint32_t)n_vocab)
            return status_fail(note, STATUS_INVALID, "prompt token %d is %u, not below the vocabulary's %d", i,
                               request->tokens[i], n_vocab);
    if (request->n_stop_tokens < 0 || request->n_stop_tokens > REQUEST_MAX_STOP_TOKENS)
        return status_fail(note, STATUS_LIMIT, "%d stop tokens, not within 0..%d", request->n_stop_tokens,
                           REQUEST_MAX_STOP_TOKENS);
    if (request->n_end_tokens < 0 || request->n_end_tokens > request->n_stop_tokens)
        return status_fail(note, STATUS_INVALID, "%d of %d stop tokens are the model's own", request->n_end_tokens,
                           request->n_stop_tokens);
    return STATUS_OK;
}

static enum status check_results(const struct engine *engine, struct request *request) {
    struct status_note *note = &request->note;
    int n_tokens = engine->model.n_tokens,
        max_top = SAMPLER_MAX_TOP_LOGPROBS < n_tokens ? SAMPLER_MAX_TOP_LOGPROBS : n_tokens;
    if (request->logits && (request->logits_from < 0 || request->logits_from >= request->n_prompt))
        return status_fail(note, STATUS_INVALID, "logits from position %d of a prompt of %d", request->logits_from,
                           request->n_prompt);
    if (request->n_top_logprobs < 0 || request->n_top_logprobs > max_top)
        return status_fail(note, STATUS_INVALID, "top_logprobs %d is not within 0..%d", request->n_top_logprobs,
                           max_top);
    if ((unsigned)request->pooling > POOLING_LAST)
        return status_fail(note, STATUS_INVALID, "pooling %d is unknown", (int)request->pooling);
    if (request->pooling && (!request->embedding || request->max_new))
        return status_fail(note, STATUS_INVALID, "a pooled prompt has max_tokens %d, and %s place for the result",
                           request->max_new, request->embedding ? "a" : "no");
    return STATUS_OK;
}

static enum status check_service(struct request *request) {
    struct status_note *note = &request->note;
    if ((unsigned)request->class_ >= REQUEST_N_CLASSES)
        return status_fail(note, STATUS_INVALID, "class %d is unknown", (int)request->class_);
    if (request->tenant_weight < 0)
        return status_fail(note, STATUS_INVALID, "tenant_weight %d is negative", request->tenant_weight);
    if (request->deadline_ns < 0)
        return status_fail(note, STATUS_INVALID, "the deadline lies before the clock's start");
    if (request->pin_ns < 0 || (request->pin_ns && (request->max_new || !request->has_cache)))
        return status_fail(note, STATUS_INVALID, "a prompt that is pinned has max_tokens %d, and %s cache",
                           request->max_new, request->has_cache ? "a" : "no");
    if (request->max_unread < 0)
        return status_fail(note, STATUS_INVALID, "max_unread %d is negative", request->max_unread);
    return STATUS_OK;
}

static enum status check_request(const struct engine *engine, struct request *request) {
    enum status status = check_sizes(engine, request);
    if (!status) status = check_tokens(engine, request);
    if (!status) status = check_results(engine, request);
    if (!status) status = check_service(request);
    if (!status) status = sampler_check(&request->sampling, &request->note);
    return status ? status : sampler_check_ids(&request->sampling, engine->model.n_vocab, &request->note);
}

/* ---- from request to sequence ---- */

static struct sequence *take_slot(struct engine *engine, struct request *request, uint32_t choice) {
    int slot = 0;
    while (engine->slots[slot].request) slot++;
    engine->slots[slot] = (struct engine_slot){.request = request, .choice = choice};
    return &engine->sequences[slot];
}

static int n_hidden(const struct request *request) {
    return request->pooling == POOLING_MEAN ? request->n_prompt : request->pooling == POOLING_LAST;
}

static void refuse(struct engine *engine, struct request *request, struct event event) {
    event.kind = EVENT_REFUSED;
    outbox_send_home(engine, request, event);
}

/* False: it is refused and comes home with the reason. */
static bool ask(struct engine *engine, struct request *request, struct gate_answer *answer) {
    enum status status = check_request(engine, request);
    if (status) {
        refuse(engine, request, (struct event){.status = status});
        return false;
    }
    *answer = gate_ask(engine, request);
    if (answer->admission.reason == ADMISSION_ADMITTED) return true;
    refuse(engine, request,
           (struct event){.status = answer->status,
                          .refusal = answer->admission.reason,
                          .retry_after_ns = answer->admission.retry_after_ns,
                          .told_ns = answer->now_ns,
                          .estimate_ns = gate_estimate_ns(answer)});
    return false;
}

static void start(struct engine *engine, struct request *request, const struct terms *terms) {
    struct sequence *sequence = take_slot(engine, request, 0);
    for (int i = 1; i < request->n_choices; i++) take_slot(engine, request, (uint32_t)i);
    *sequence = (struct sequence){.state = SEQ_WAITING,
                                  .request_id = request->id,
                                  .tokens = request->tokens,
                                  .n_prompt = request->n_prompt,
                                  .n_tokens = request->n_prompt,
                                  .max_tokens = request->n_prompt + request->max_new,
                                  .logits_from = message_logits_from(request),
                                  .n_hidden = n_hidden(request),
                                  .terms = *terms,
                                  .kv = sequence->kv};
    kv_table_start(&sequence->kv, &request->salt, request->has_cache);
    engine->state.sequences[engine->state.n_sequences++] = sequence;
    request->n_unfinished = request->n_choices;
}

static void submit(struct engine *engine, struct request *request) {
    struct gate_answer answer = {0};
    if (!ask(engine, request, &answer)) {
        engine->stats.n_refused++;
        engine->stats.n_refused_by[answer.admission.reason]++;
        gate_refuse(engine, &answer);
        return;
    }
    struct terms terms = gate_accept(engine, &answer);
    int64_t estimate_ns = gate_estimate_ns(&answer);
    start(engine, request, &terms);
    engine->stats.n_admitted++;
    if (request->has_cache) engine->stats.n_misses[answer.miss]++;
    request->stats.admitted_ns = answer.now_ns;
    request->stats.predicted_ns = estimate_ns ? answer.now_ns + estimate_ns : 0;
    request->stats.n_prompt_tokens = request->n_prompt;
    outbox_send(engine, &(struct event){.kind = EVENT_ADMITTED,
                                        .request_id = request->id,
                                        .owner = request->owner,
                                        .told_ns = answer.now_ns,
                                        .estimate_ns = estimate_ns});
}

static void estimate(struct engine *engine, struct request *request) {
    struct gate_answer answer;
    if (!ask(engine, request, &answer)) return;
    request->stats.n_prompt_tokens = request->n_prompt;
    request->stats.n_cached_tokens = answer.candidate.n_cached;
    outbox_send_home(
        engine, request,
        (struct event){.kind = EVENT_ESTIMATED, .told_ns = answer.now_ns, .estimate_ns = gate_estimate_ns(&answer)});
}

/* An id that is unknown has finished meanwhile: nothing to do. */
static void cancel(struct engine *engine, uint64_t request_id) {
    for (int i = 0; i < engine->state.n_sequences; i++) {
        struct sequence *sequence = engine->state.sequences[i];
        if (sequence->request_id != request_id || sequence->is_cancelled) continue;
        sequence->is_cancelled = true;
        engine->n_cancelled++;
    }
    if (!engine->is_in_step) outbox_finish_cancelled(engine);
}

void inbox_read(struct engine *engine) {
    struct command_message message;
    while (outbox_has_answer_room(engine) && ring_pop(&engine->inbox, &message)) {
        engine->stats.n_taken += message.kind == COMMAND_SUBMIT || message.kind == COMMAND_ASK;
        if (message.kind == COMMAND_SUBMIT) submit(engine, message.request);
        if (message.kind == COMMAND_ASK) estimate(engine, message.request);
        if (message.kind == COMMAND_CANCEL) cancel(engine, message.request_id);
        if (message.kind == COMMAND_MAP) block_map_fill(message.map, &engine->groups, &engine->pins);
        if (message.kind == COMMAND_CHUNK) pacing_set_chunked(engine, message.is_chunked);
    }
    outbox_flush(engine);
}

void inbox_send_home(struct engine *engine) {
    struct command_message message;
    while (outbox_has_any_room(engine) && ring_pop(&engine->inbox, &message))
        if (message.kind == COMMAND_SUBMIT || message.kind == COMMAND_ASK)
            outbox_send_home(engine, message.request,
                             (struct event){.kind = EVENT_FINISHED, .reason = FINISH_CANCELLED});
}
