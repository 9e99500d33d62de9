#include "api/api_history.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/api_call.h"
#include "api/api_reply.h"
#include "api/api_response.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "observe/request_log.h"

#define MAX_LINE_BYTES 4096

enum status api_history_init(struct api_history *history) {
    *history = (struct api_history){.records = mem_alloc_array(API_HISTORY_MAX, sizeof *history->records)};
    if (!history->records) return STATUS_NOMEM;
    /* Written once, so that a server's memory does not grow with its first requests. */
    memset(history->records, 0, API_HISTORY_MAX * sizeof *history->records);
    return STATUS_OK;
}

void api_history_deinit(struct api_history *history) {
    mem_free(history->records);
    history->records = NULL;
}

/* It reached the engine; else it has no account of its time. */
static bool was_run(const struct api_prompt *prompt) {
    return prompt->request && prompt->request->stats.finished_ns;
}

static void add(struct api_history *history, const struct api_prompt *prompt, const struct request_record *of) {
    const struct api_call *call = prompt->call;
    struct api_record *record = &history->records[history->next];
    history->next = (history->next + 1) % API_HISTORY_MAX;
    history->n_ever++;
    *record = (struct api_record){.key_idx = call->key_idx,
                                  .http_code = call->http_code,
                                  .prompt_idx = (int)(prompt - call->prompts),
                                  .was_run = was_run(prompt),
                                  .end = of->end,
                                  .n_completion = of->n_completion,
                                  .created_s = call->created_s,
                                  .received_ns = call->received_ns,
                                  .ended_ns = clock_now_ns(),
                                  .class_ = call->params.class_};
    snprintf(record->id, sizeof record->id, "%s", call->id);
    snprintf(record->path, sizeof record->path, "%s", call->path);
    snprintf(record->key_name, sizeof record->key_name, "%s", call->terms.name);
    if (!record->was_run) return;
    record->stats = prompt->request->stats;
    record->request_id = prompt->request->id;
}

static enum request_end end_of(const struct api_prompt *prompt) {
    const struct api_call *call = prompt->call;
    if (call->was_left) return REQUEST_ABORT;
    if (call->fault.http_code) return REQUEST_ERROR;
    const char *reason = prompt->choices[0].finish_reason;
    return reason && strcmp(reason, "length") == 0 ? REQUEST_LENGTH : REQUEST_STOP;
}

static int n_completion_of(const struct api_call *call, const struct api_prompt *prompt) {
    int n = 0;
    for (int c = 0; c < call->params.n; c++) n += prompt->choices[c].n_tokens;
    return n;
}

static void log_prompt(const struct api_call *call, const struct request_record *record) {
    struct timespec now;
    struct str text;
    clock_gettime(CLOCK_REALTIME, &now);
    struct request_log_line line = {.time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000,
                                    .id = call->id,
                                    .path = call->path,
                                    .traceparent = call->traceparent[0] ? call->traceparent : NULL,
                                    .key = call->terms.name[0] ? call->terms.name : NULL,
                                    .http_code = call->http_code,
                                    .record = record,
                                    .fault = call->fault.http_code ? call->fault.reason : NULL};
    str_init(&text, MAX_LINE_BYTES);
    if (!request_log_write(&line, call->api->options.log_format, &text)) log_raw(text.ptr, text.n_bytes);
    str_deinit(&text);
}

static void diagnose(const struct api_call *call, const struct api_prompt *prompt, const struct request_record *of) {
    enum admission_reason refusal = prompt->told.kind == EVENT_REFUSED ? prompt->told.refusal : ADMISSION_ADMITTED;
    if (!prompt->request || call->is_estimate) return;
    struct diagnosis_record record = diagnosis_record_of(of, refusal, call->terms.name[0] ? call->terms.name : NULL);
    diagnosis_note(call->api->diagnosis, &record, clock_now_ns());
}

void api_history_note(struct api_call *call) {
    for (int i = 0; i < call->n_prompts; i++) {
        const struct api_prompt *prompt = &call->prompts[i];
        struct request_record record = {prompt->request, end_of(prompt), n_completion_of(call, prompt),
                                        call->params.max_tokens, call->terms.name};
        add(&call->api->history, prompt, &record);
        diagnose(call, prompt, &record);
        if (was_run(prompt)) {
            request_metrics_finish(&call->api->metrics, &record);
            api_auth_use(&call->api->auth, call->key_idx, record.n_completion,
                         prompt->request->stats.part_ns[PHASE_PREFILL_OWN], clock_now_ns());
        }
        if (call->api->options.logs_requests) log_prompt(call, was_run(prompt) ? &record : NULL);
    }
}

/* ---- replies ---- */

static void write_head(struct json_write *json, const char *id, const char *path, int64_t created_s,
                       const char *state) {
    json_write_field_text(json, "id", id);
    json_write_field_text(json, "object", "request");
    json_write_field_text(json, "path", path);
    json_write_field_int(json, "created", created_s);
    json_write_field_text(json, "state", state);
}

/* stats NULL: the prompt did not reach the engine, or not yet. */
static void write_prompt(struct json_write *json, const char *state, const struct phase_stats *stats,
                         int n_completion) {
    json_write_object(json);
    json_write_field_text(json, "state", state);
    if (stats) {
        json_write_field_int(json, "prompt_tokens", stats->n_prompt_tokens);
        json_write_field_int(json, "done_tokens", stats->n_done_tokens);
        json_write_field_int(json, "cached_tokens", stats->n_cached_tokens);
    }
    json_write_field_int(json, "output_tokens", n_completion);
    json_write_key(json, "phases");
    if (stats)
        api_response_write_phases(json, stats);
    else
        json_write_null(json);
    json_write_end_object(json);
}

/* What the open phase is called by who waits. */
static const char *state_of(const struct phase_stats *stats) {
    if (stats->open == PHASE_QUEUE) return "queued";
    return stats->first_token_ns ? "decode" : "prefill";
}

static void write_running_prompt(struct json_write *json, const struct api_call *call,
                                 const struct api_prompt *prompt) {
    struct phase_stats stats;
    if (prompt->state == PROMPT_PENDING) { /* the tokenize thread or the inbox has it */
        write_prompt(json, "preparing", NULL, 0);
        return;
    }
    if (prompt->state == PROMPT_HOME) {
        write_prompt(json, "finished", was_run(prompt) ? &prompt->request->stats : NULL, n_completion_of(call, prompt));
        return;
    }
    engine_client_look(prompt->request, &stats);
    const char *state = state_of(&stats);
    stats.n_prompt_tokens = prompt->n_ids;
    phase_stats_finish(&stats, clock_now_ns()); /* as far as it is */
    write_prompt(json, state, &stats, n_completion_of(call, prompt));
}

static void write_running(struct json_write *json, const struct api_call *call) {
    write_head(json, call->id, call->path, call->created_s, "running");
    json_write_field_null(json, "status");
    json_write_field_null(json, "finish_reason");
    json_write_field_array(json, "prompts");
    for (int i = 0; i < call->n_prompts; i++) write_running_prompt(json, call, &call->prompts[i]);
    json_write_end_array(json);
}

static bool is_of(const struct api_record *record, const char *id, int key_idx) {
    return record->id[0] && strcmp(record->id, id) == 0 && record->key_idx == key_idx;
}

/* The prompts of one request lie behind each other; of several requests with one id the last counts. */
static const struct api_record *find(const struct api_history *history, const char *id, int key_idx) {
    for (int i = 1; i <= API_HISTORY_MAX; i++) {
        const struct api_record *record = &history->records[(history->next - i + API_HISTORY_MAX) % API_HISTORY_MAX];
        if (is_of(record, id, key_idx)) return record;
    }
    return NULL;
}

static void write_finished(struct json_write *json, const struct api_history *history, const struct api_record *last) {
    int n = last->prompt_idx + 1, at = (int)(last - history->records);
    write_head(json, last->id, last->path, last->created_s, "finished");
    if (last->http_code)
        json_write_field_int(json, "status", last->http_code);
    else
        json_write_field_null(json, "status"); /* the client left before */
    json_write_field_text(json, "finish_reason", request_metrics_end_name(last->end));
    json_write_field_array(json, "prompts");
    for (int i = n - 1; i >= 0; i--) {
        const struct api_record *record = &history->records[(at - i + API_HISTORY_MAX) % API_HISTORY_MAX];
        if (!is_of(record, last->id, last->key_idx)) continue; /* forgotten already */
        write_prompt(json, "finished", record->was_run ? &record->stats : NULL, record->n_completion);
    }
    json_write_end_array(json);
}

void api_history_reply(const struct api_server *api, struct http_exchange *exchange, const char *id) {
    struct api_fault fault = {0};
    struct json_write json;
    struct str body;
    int key_idx = api_auth_key_of(&api->auth, exchange);
    const struct api_call *call = api->calls;
    while (call && (strcmp(call->id, id) != 0 || call->key_idx != key_idx)) call = call->next;
    const struct api_record *last = call ? NULL : find(&api->history, id, key_idx);
    if (!call && !last) {
        api_fault_set(&fault, 404, "request_not_found", "id",
                      "no request '%.160s' is running or among the last %d that ended", id, API_HISTORY_MAX);
        api_fault_reply(&fault, API_OPENAI, exchange);
        return;
    }
    api_reply_begin(&json, &body);
    if (call)
        write_running(&json, call);
    else
        write_finished(&json, &api->history, last);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}
