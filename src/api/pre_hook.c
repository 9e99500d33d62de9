#include "api/pre_hook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_gate.h"
#include "api/api_request.h"
#include "base/clock.h"
#include "base/json_write.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/http_peer.h"
#include "observe/metric_table.h"

#define MAX_QUESTION_BYTES ((size_t)128 << 20)
#define MAX_REPLY_BYTES ((size_t)16 << 20)
#define MAX_REASON_BYTES 400
#define N_RECENT 64
#define COMPLAINT_NS INT64_C(1000000000) /* a line a second about what fails */

enum verdict { PASS, REPLACE, REFUSE, FAILED, N_VERDICTS };

static const char *const verdict_names[N_VERDICTS] = {"pass", "replace", "refuse", "failed"};

struct pre_hook {
    struct http_peer *peer;
    struct pre_hook_options options;
    int64_t recent_ns[N_RECENT];
    uint64_t n_recent; /* ever */
    uint64_t n_verdicts[N_VERDICTS];
    int64_t complained_ns;
};

enum status pre_hook_create(struct pre_hook **out_hook, struct http_server *server,
                            const struct pre_hook_options *options, struct status_note *note) {
    struct http_peer_limits limits = {options->timeout_ms, options->max_asks, MAX_REPLY_BYTES};
    struct pre_hook *hook = mem_alloc(sizeof *hook);
    *out_hook = NULL;
    if (!hook) return status_fail(note, STATUS_NOMEM, "no memory for the guardrail");
    hook->options = *options;
    enum status status = http_peer_open(&hook->peer, server, options->address, &limits, note);
    if (status)
        mem_free(hook);
    else
        *out_hook = hook;
    return status;
}

void pre_hook_destroy(struct pre_hook **hook) {
    if (!*hook) return;
    http_peer_close(&(*hook)->peer);
    mem_free(*hook);
    *hook = NULL;
}

/* ---- the question ---- */

/* The field of a request that holds what is asked, and who reads it. */
static const char *field_of(enum api_kind kind, const struct api_ask **out_ask) {
    static const struct {
        const char *name;
        const struct api_ask *ask;
    } fields[] = {[API_CHAT] = {"messages", &chat_request},
                  [API_COMPLETION] = {"prompt", &completion_request},
                  [API_EMBEDDING] = {"input", &embedding_request}};
    if (out_ask) *out_ask = fields[kind].ask;
    return fields[kind].name;
}

/* What the model would read, special tokens and all. */
static enum status write_text(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt) {
    struct detokenizer detokenizer;
    struct str text;
    enum status status = STATUS_OK;
    str_init(&text, MAX_QUESTION_BYTES);
    detokenizer_init(&detokenizer, call->api->tokenizer, DETOKENIZER_AT_START | DETOKENIZER_SHOW_SPECIAL);
    for (int i = 0; !status && i < prompt->n_ids; i++)
        status = detokenizer_push(&detokenizer, (int32_t)prompt->ids[i], &text);
    if (!status) status = detokenizer_finish(&detokenizer, &text);
    if (!status) json_write_text(json, text.ptr, text.n_bytes);
    str_deinit(&text);
    return status;
}

char *pre_hook_question(const struct api_call *call, size_t *out_n_bytes) {
    const char *field = field_of(call->kind, NULL);
    struct json_write json;
    struct str body;
    size_t n_asked = 0;
    char *asked = json_read_dump(json_object_get(call->json, field), &n_asked), *out = NULL;
    enum status status = asked ? STATUS_OK : STATUS_NOMEM;
    str_init(&body, MAX_QUESTION_BYTES);
    json_write_init(&json, &body);
    json_write_object(&json);
    json_write_field_text(&json, "id", call->id);
    json_write_field_text(&json, "route", call->path);
    json_write_field_text(&json, "model", call->api->options.model_names[0]);
    if (call->terms.name[0])
        json_write_field_text(&json, "key", call->terms.name);
    else
        json_write_field_null(&json, "key");
    json_write_field_flag(&json, "stream", call->params.is_stream);
    json_write_field_array(&json, "texts");
    for (int i = 0; !status && i < call->n_prompts; i++) status = write_text(&json, call, &call->prompts[i]);
    json_write_end_array(&json);
    json_write_key(&json, field);
    json_write_raw(&json, asked ? asked : "null", asked ? n_asked : 4);
    json_write_end_object(&json);
    if (!status) status = json_write_finish(&json);
    *out_n_bytes = body.n_bytes;
    if (!status) out = str_take(&body);
    str_deinit(&body);
    mem_free(asked);
    return out;
}

/* ---- the answer ---- */

/* Another text in place of the call's. False: it makes no sense; nothing has changed. */
static bool replace(struct api_call *call, const json_t *answer, struct status_note *note) {
    const struct api_ask *ask;
    const char *field = field_of(call->kind, &ask);
    const json_t *given = json_object_get(answer, field);
    struct api_fault fault = {0};
    if (!given) return !status_fail(note, STATUS_FORMAT, "it replaces, and gives no '%s'", field);
    json_t *old = json_incref(json_object_get(call->json, field));
    json_object_set(call->json, field, (json_t *)given);
    struct api_request request = {
        .api = call->api, .json = call->json, .max_ids = engine_max_context(call->api->engine)};
    bool is_read = ask->read_prompts(&request, &fault) && request.n_prompts == call->n_prompts;
    if (!is_read) {
        status_fail(note, STATUS_FORMAT, "what it gives instead is no good: %.200s",
                    fault.http_code ? fault.message : "the number of prompts differs");
        json_object_set(call->json, field, old);
        api_call_free_prompts(request.prompts, request.n_prompts, call->params.n);
    }
    for (int i = 0; is_read && i < call->n_prompts; i++) {
        struct api_prompt *prompt = &call->prompts[i], *instead = &request.prompts[i];
        api_call_reset_prompt(prompt);
        prompt->text = instead->text;
        prompt->n_bytes = instead->n_bytes;
        prompt->own_text = instead->own_text;
        prompt->ids = instead->ids;
        prompt->n_ids = instead->n_ids;
    }
    if (is_read) mem_free(request.prompts);
    json_decref(old);
    return is_read;
}

static enum verdict read_answer(struct api_call *call, const char *body, size_t n_bytes, struct status_note *note) {
    struct api_fault fault = {0};
    json_t *answer = json_read_object(body, n_bytes, &fault);
    const char *action = json_string_value(json_object_get(answer, "action"));
    enum verdict verdict = FAILED;
    if (!answer) {
        status_fail(note, STATUS_FORMAT, "its answer is no JSON object: %.200s", fault.message);
    } else if (action && strcmp(action, "pass") == 0) {
        verdict = PASS;
    } else if (action && strcmp(action, "refuse") == 0) {
        const char *reason = json_string_value(json_object_get(answer, "reason"));
        verdict = REFUSE;
        api_fault_set(&call->fault, 400, "content_filter", NULL, "refused: %.*s", MAX_REASON_BYTES,
                      reason ? reason : "by the guardrail");
    } else if (action && strcmp(action, "replace") == 0) {
        verdict = replace(call, answer, note) ? REPLACE : FAILED;
    } else {
        status_fail(note, STATUS_FORMAT, "its 'action' is none of pass, replace, refuse");
    }
    json_decref(answer);
    return verdict;
}

static void complain(struct pre_hook *hook, const struct api_call *call, const struct status_note *note) {
    int64_t now_ns = clock_now_ns();
    if (hook->complained_ns && now_ns - hook->complained_ns < COMPLAINT_NS) return;
    hook->complained_ns = now_ns;
    log_line(LOG_WARN, "guardrail %s, request %s: %s; it %s", hook->options.address, call->id, note->text,
             hook->options.lets_pass ? "passes unseen" : "is refused");
}

static void decide(struct pre_hook *hook, struct api_call *call, enum verdict verdict, const struct status_note *note) {
    hook->n_verdicts[verdict]++;
    if (verdict == FAILED) complain(hook, call, note);
    if (verdict == PASS || (verdict == FAILED && hook->options.lets_pass)) {
        api_gate_after_hook(call);
    } else if (verdict == REPLACE) {
        call->is_cleared = true;
        call->ready_ns = 0;
        api_call_start(call);
    } else {
        if (verdict == FAILED) {
            api_fault_set(&call->fault, 503, "guardrail_unavailable", NULL, "the guardrail does not answer");
            call->fault.retry_after_s = 1;
        }
        api_gate_end(call);
    }
}

static void on_told(void *owner, enum status status, int code, const char *body, size_t n_bytes,
                    const struct status_note *why) {
    struct api_call *call = owner;
    struct pre_hook *hook = call->api->hook;
    struct status_note note = *why;
    enum verdict verdict = FAILED;
    call->ask = NULL;
    hook->recent_ns[hook->n_recent++ % N_RECENT] = clock_now_ns() - call->ready_ns;
    if (!status && (code < 200 || code > 299))
        status_fail(&note, STATUS_PEER, "it answers with HTTP %d", code);
    else if (!status)
        verdict = read_answer(call, body, n_bytes, &note);
    decide(hook, call, verdict, &note);
}

/* ---- asking ---- */

static int compare_ns(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t pre_hook_expected_ns(const struct pre_hook *hook) {
    int64_t sorted_ns[N_RECENT];
    size_t n = hook->n_recent < N_RECENT ? (size_t)hook->n_recent : N_RECENT;
    if (n == 0) return 0;
    memcpy(sorted_ns, hook->recent_ns, n * sizeof *sorted_ns);
    qsort(sorted_ns, n, sizeof *sorted_ns, compare_ns);
    return sorted_ns[(n * 95 + 99) / 100 - 1];
}

void pre_hook_ask(struct pre_hook *hook, struct api_call *call) {
    struct status_note note = {0};
    int64_t ready_ns = clock_now_ns() + pre_hook_expected_ns(hook);
    if (call->deadline_ns && ready_ns > call->deadline_ns) {
        api_fault_set(&call->fault, 429, "deadline", NULL,
                      "its first token would come after its deadline: the guardrail alone takes %.0f ms",
                      (double)pre_hook_expected_ns(hook) / 1e6);
        call->fault.retry_after_s = 1;
        api_gate_end(call);
        return;
    }
    enum status status = STATUS_NOMEM;
    if (call->question) status = http_peer_ask(hook->peer, call->question, call->n_question, on_told, call, &call->ask);
    mem_free(call->question);
    call->question = NULL;
    if (!status) return;
    status_fail(&note, status, "it cannot be asked: %s",
                status == STATUS_BUSY ? "too many questions are open" : status_text(status));
    decide(hook, call, FAILED, &note);
}

void pre_hook_drop(struct api_call *call) {
    if (!call->ask) return;
    http_peer_drop(call->ask);
    call->ask = NULL;
}

enum status pre_hook_write_metrics(const struct pre_hook *hook, const char *model_name, struct str *out) {
    struct prom_text text;
    metric_table_init(&text, out, model_name);
    metric_table_begin(&text, METRIC_PRE_HOOK_ANSWERS);
    for (int i = 0; i < N_VERDICTS; i++)
        prom_text_sample(&text, "verdict", verdict_names[i], (double)hook->n_verdicts[i]);
    metric_table_value(&text, METRIC_PRE_HOOK_EXPECTED, (double)pre_hook_expected_ns(hook) / 1e9);
    return text.status;
}
