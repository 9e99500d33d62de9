#include "api/api_response.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "http/sse.h"
#include "observe/phase_json.h"

#define MAX_TOKEN_BYTES 65536
#define LEAST_LOGPROB (-9999.0) /* JSON has no infinity; this is what OpenAI's servers say instead */

void api_response_write_phases(struct json_write *json, const struct phase_stats *stats) {
    json_write_object(json);
    phase_json_write(json, stats);
    phase_json_write_since(json, "predicted_ttft_ms", stats, stats->predicted_ns);
    json_write_field_int(json, "prefill_steps", stats->n_prefill_steps);
    json_write_field_int(json, "preemptions", stats->n_preemptions);
    json_write_field_real(json, "prefill_gflop", stats->prefill.flops / 1e9);
    json_write_field_real(json, "decode_gflop", stats->decode.flops / 1e9);
    json_write_field_real(json, "kv_bytes_written", stats->prefill.kv_bytes_written + stats->decode.kv_bytes_written);
    json_write_end_object(json);
}

void api_response_begin_event(struct json_write *json, struct str *out, const char *name) {
    json_write_init(json, out);
    json->status = sse_begin_event(out, name);
}

enum status api_response_end_event(struct json_write *json) {
    return json->status ? json->status : sse_end_event(json->out);
}

static enum status write_done(struct str *out) {
    enum status status = sse_begin_event(out, NULL);
    if (!status) status = str_append_text(out, "[DONE]");
    return status ? status : sse_end_event(out);
}

void api_response_write_kvick(struct json_write *json, const struct api_call *call) {
    bool is_wanted = call->params.wants_phases || call->api->options.returns_phases;
    if (!is_wanted || call->n_home < call->n_prompts) return;
    json_write_key(json, "kvick");
    if (call->n_prompts > 1) json_write_array(json);
    for (int i = 0; i < call->n_prompts; i++) api_response_write_phases(json, &call->prompts[i].request->stats);
    if (call->n_prompts > 1) json_write_end_array(json);
}

void api_response_write_progress(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                                 const struct event *event) {
    json_write_field_object(json, "prompt_progress");
    json_write_field_int(json, "total", prompt->n_ids);
    json_write_field_int(json, "cache", event->n_cached);
    json_write_field_int(json, "processed", event->n_done);
    json_write_field_real(json, "time_ms", phase_stats_ms(call->received_ns, clock_now_ns()));
    json_write_end_object(json);
}

enum status api_response_end_progress(struct json_write *json, const struct api_call *call,
                                      const struct api_prompt *prompt, const struct event *event) {
    json_write_field_null(json, "logprobs");
    json_write_field_null(json, "finish_reason");
    json_write_end_object(json);
    json_write_end_array(json);
    api_response_write_progress(json, call, prompt, event);
    if (call->params.has_usage_chunk) json_write_field_null(json, "usage");
    json_write_end_object(json);
    return api_response_end_event(json);
}

void api_response_write_usage(struct json_write *json, const struct api_call *call) {
    struct api_usage usage = api_call_usage(call);
    json_write_field_object(json, "usage");
    json_write_field_int(json, "prompt_tokens", usage.n_prompt);
    if (call->kind != API_EMBEDDING) json_write_field_int(json, "completion_tokens", usage.n_completion);
    json_write_field_int(json, "total_tokens", usage.n_prompt + usage.n_completion);
    json_write_field_object(json, "prompt_tokens_details");
    json_write_field_int(json, "cached_tokens", usage.n_cached);
    json_write_end_object(json);
    if (call->kind == API_CHAT) {
        json_write_field_object(json, "completion_tokens_details");
        json_write_field_int(json, "reasoning_tokens", usage.n_reasoning);
        json_write_end_object(json);
    }
    api_response_write_kvick(json, call);
    json_write_end_object(json);
}

double api_response_logprob(float logprob) {
    return isfinite(logprob) ? (double)logprob : LEAST_LOGPROB;
}

int api_response_n_told(const struct api_prompt *prompt, int choice) {
    const struct request_choice *made = &prompt->request->choices[choice];
    int n = made->n_new_tokens - (made->reason == FINISH_STOP);
    return n < prompt->choices[choice].n_tokens ? n : prompt->choices[choice].n_tokens;
}

void api_response_write_news(struct json_write *json, const char *key, const struct answer_part *part) {
    json_write_key(json, key);
    json_write_text(json, part->text.ptr + part->n_told_bytes, part->text.n_bytes - part->n_told_bytes);
}

void api_response_write_ids(struct json_write *json, const char *key, const uint32_t *ids, int n) {
    json_write_field_array(json, key);
    for (int i = 0; i < n; i++) json_write_int(json, ids[i]);
    json_write_end_array(json);
}

void api_response_write_stop_reason(struct json_write *json, const struct api_choice *choice) {
    json_write_key(json, "stop_reason");
    if (choice->stop.found < 0) {
        json_write_null(json);
        return;
    }
    const struct stop_string *stop = &choice->stop.stops[choice->stop.found];
    json_write_text(json, stop->ptr, stop->n_bytes);
}

enum status api_response_token_text(const struct api_server *api, uint32_t id, struct str *out) {
    size_t n_bytes;
    const char *text = tokenizer_text_of(api->tokenizer, (int32_t)id, &n_bytes);
    str_clear(out);
    for (size_t from = 0; text && from < n_bytes;) {
        size_t n_valid = utf8_valid_prefix(text + from, n_bytes - from);
        enum status status = str_append(out, text + from, n_valid);
        from += n_valid;
        if (!status && from < n_bytes) status = str_append_text(out, "\xef\xbf\xbd");
        if (status) return status;
        from += from < n_bytes;
    }
    return STATUS_OK;
}

static void write_token(struct json_write *json, const struct api_call *call, struct token_logprob logprob) {
    struct str text;
    size_t n_bytes;
    const char *bytes = tokenizer_text_of(call->api->tokenizer, (int32_t)logprob.id, &n_bytes);
    str_init(&text, MAX_TOKEN_BYTES);
    if (api_response_token_text(call->api, logprob.id, &text)) json->status = STATUS_NOMEM;
    json_write_field_str(json, "token", &text);
    json_write_field_real(json, "logprob", api_response_logprob(logprob.logprob));
    json_write_field_array(json, "bytes");
    for (size_t i = 0; bytes && i < n_bytes; i++) json_write_int(json, (unsigned char)bytes[i]);
    json_write_end_array(json);
    str_deinit(&text);
}

void api_response_write_logprob(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                                int choice, int token_idx) {
    const struct request *request = prompt->request;
    size_t n_each = (size_t)(1 + request->n_top_logprobs);
    const struct token_logprob *own =
        request->logprobs + ((size_t)choice * (size_t)request->max_new + (size_t)token_idx) * n_each;
    json_write_object(json);
    write_token(json, call, own[0]);
    json_write_field_array(json, "top_logprobs");
    for (size_t i = 1; i < n_each; i++) {
        json_write_object(json);
        write_token(json, call, own[i]);
        json_write_end_object(json);
    }
    json_write_end_array(json);
    json_write_end_object(json);
}

void api_response_write_head(struct json_write *json, const struct api_call *call, const char *object) {
    json_write_object(json);
    json_write_field_text(json, "id", call->id);
    json_write_field_text(json, "object", object);
    json_write_field_int(json, "created", call->created_s);
    json_write_field_text(json, "model", call->api->options.model_names[0]);
}

enum status api_response_write_last(const struct api_call *call, const char *object, struct str *out) {
    struct json_write json;
    if (!call->params.has_usage_chunk) return write_done(out);
    api_response_begin_event(&json, out, NULL);
    api_response_write_head(&json, call, object);
    json_write_field_array(&json, "choices");
    json_write_end_array(&json);
    api_response_write_usage(&json, call);
    json_write_end_object(&json);
    enum status status = api_response_end_event(&json);
    return status ? status : write_done(out);
}
