#include "api/api_delivery.h"

#include <string.h>

#include "api/api_promise.h"
#include "api/api_response.h"
#include "api/app_cache.h"
#include "http/sse.h"

#define MAX_BODY_BYTES (2 * ANSWER_MAX_BYTES) /* of events, too: some forms repeat request and answer in them */

/* The exchange ends here, whatever of the call still runs. */
static void end_exchange(struct api_call *call) {
    http_exchange_on_gone(call->exchange, NULL, NULL);
    call->exchange = NULL;
}

static bool is_wanted(const struct api_call *call) {
    return call->exchange || call->take;
}

static void hand_over(struct api_call *call, int http_code, const struct str *body) {
    api_take_fn *take = call->take;
    call->take = NULL;
    call->http_code = http_code;
    take(call->taker, call, body->ptr, body->n_bytes);
}

static void hand_over_fault(struct api_call *call) {
    struct str body;
    str_init(&body, MAX_BODY_BYTES);
    if (api_fault_write(&call->fault, call->response->shape, &body)) str_clear(&body);
    hand_over(call, call->fault.http_code, &body);
    str_deinit(&body);
}

static void reply_fault(struct api_call *call) {
    struct http_exchange *exchange = call->exchange;
    struct str body;
    if (call->take) hand_over_fault(call);
    if (!exchange) return;
    end_exchange(call);
    call->http_code = http_exchange_is_started(exchange) ? 200 : call->fault.http_code;
    if (!http_exchange_is_started(exchange)) {
        api_fault_reply(&call->fault, call->response->shape, exchange);
        return;
    }
    str_init(&body, MAX_BODY_BYTES);
    enum status status = sse_begin_event(&body, call->response->shape == API_ANTHROPIC ? "error" : NULL);
    if (!status) status = api_fault_write(&call->fault, call->response->shape, &body);
    if (!status) status = sse_end_event(&body);
    if (!status) http_exchange_send(exchange, body.ptr, body.n_bytes);
    http_exchange_end(exchange);
    str_deinit(&body);
}

void api_delivery_fail(struct api_call *call) {
    api_fault_set(&call->fault, 503, "out_of_memory", NULL, "no memory for the answer");
    api_call_cancel(call);
    reply_fault(call);
}

static void send_events(struct api_call *call, enum status status, struct str *data) {
    if (!status && call->exchange) {
        http_exchange_send(call->exchange, data->ptr, data->n_bytes);
        app_cache_record(call, data->ptr, data->n_bytes);
    } else if (status) {
        api_delivery_fail(call);
    }
    str_deinit(data);
}

void api_delivery_start(struct api_call *call) {
    if (!call->params.is_stream || !call->exchange || http_exchange_is_started(call->exchange)) return;
    http_exchange_set_header(call->exchange, "X-Request-Id", call->id);
    api_promise_set_headers(call);
    sse_start(call->exchange);
}

static void send_first(struct api_prompt *prompt, int choice) {
    struct api_call *call = prompt->call;
    if (prompt->choices[choice].has_started || !call->exchange) return;
    prompt->choices[choice].has_started = true;
    if (call->kind == API_COMPLETION && !call->extras.has_echo) return;
    struct str data;
    str_init(&data, MAX_BODY_BYTES);
    send_events(call, call->response->write_first(call, prompt, choice, &data), &data);
}

void api_delivery_piece(struct api_prompt *prompt, int choice, int token_idx) {
    struct api_call *call = prompt->call;
    struct str data;
    bool has_news = answer_has_news(&prompt->choices[choice].answer) ||
                    (token_idx >= 0 && (call->params.has_logprobs || call->params.returns_ids));
    if (!call->params.is_stream || !call->exchange || !has_news) return;
    send_first(prompt, choice);
    if (!call->exchange) return;
    str_init(&data, MAX_BODY_BYTES);
    send_events(call, call->response->write_piece(call, prompt, choice, token_idx, &data), &data);
    answer_mark_told(&prompt->choices[choice].answer);
}

void api_delivery_end_choice(struct api_prompt *prompt, int choice, const char *reason) {
    struct api_call *call = prompt->call;
    struct str data;
    bool is_call = prompt->choices[choice].answer.n_calls > 0 && strcmp(reason, "stop") == 0;
    prompt->choices[choice].is_over = true;
    prompt->choices[choice].finish_reason = is_call ? "tool_calls" : reason;
    if (!call->params.is_stream || !call->exchange) return;
    send_first(prompt, choice);
    if (!call->exchange) return;
    str_init(&data, MAX_BODY_BYTES);
    send_events(call, call->response->write_end(call, prompt, choice, &data), &data);
}

void api_delivery_progress(struct api_prompt *prompt, const struct event *event) {
    struct api_call *call = prompt->call;
    struct str data;
    bool has_all = !call->extras.has_echo || !call->params.has_logprobs; /* an echo waits for its log-probabilities */
    if (has_all) send_first(prompt, 0);
    if (!call->exchange || !http_exchange_is_started(call->exchange)) return;
    str_init(&data, MAX_BODY_BYTES);
    send_events(call, call->response->write_progress(call, prompt, event, &data), &data);
}

static void finish_stream(struct api_call *call) {
    struct str data;
    str_init(&data, MAX_BODY_BYTES);
    send_events(call, call->response->write_last(call, &data), &data);
    if (!call->exchange) return;
    struct http_exchange *exchange = call->exchange;
    app_cache_keep(call);
    end_exchange(call);
    call->http_code = 200;
    http_exchange_end(exchange);
}

static void finish_whole(struct api_call *call) {
    struct http_exchange *exchange = call->exchange;
    struct str body;
    str_init(&body, MAX_BODY_BYTES);
    if (call->is_estimate ? api_promise_write_estimate(call, &body) : call->response->write_whole(call, &body)) {
        api_delivery_fail(call);
    } else if (call->take) {
        hand_over(call, 200, &body);
    } else {
        http_exchange_set_header(exchange, "X-Request-Id", call->id);
        if (!call->is_estimate) api_promise_set_headers(call);
        app_cache_record(call, body.ptr, body.n_bytes);
        app_cache_keep(call);
        end_exchange(call);
        call->http_code = 200;
        http_exchange_reply(exchange, 200, "application/json", body.ptr, body.n_bytes);
    }
    str_deinit(&body);
}

void api_delivery_finish(struct api_call *call) {
    if (!is_wanted(call)) return;
    if (call->fault.http_code)
        reply_fault(call);
    else if (call->params.is_stream && !call->is_estimate)
        finish_stream(call);
    else
        finish_whole(call);
}

void api_delivery_stored(struct api_call *call, const char *bytes, size_t n_bytes) {
    struct http_exchange *exchange = call->exchange;
    http_exchange_set_header(exchange, "X-Request-Id", call->id);
    end_exchange(call);
    call->http_code = 200;
    if (call->params.is_stream) {
        sse_start(exchange);
        http_exchange_send(exchange, bytes, n_bytes);
        http_exchange_end(exchange);
    } else {
        http_exchange_reply(exchange, 200, "application/json", bytes, n_bytes);
    }
}

void api_delivery_abort(struct api_call *call) {
    struct http_exchange *exchange = call->exchange;
    if (!exchange) return;
    call->was_left = true; /* counted and logged as a client that went */
    end_exchange(call);
    http_exchange_abort(exchange);
}
