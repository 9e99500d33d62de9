#include "api/api_promise.h"

#include <stdio.h>
#include <string.h>

#include "api/api_response.h"
#include "api/pre_hook.h"

#define DEADLINE_HEADER "x-kvick-deadline-ms"
#define MAX_DEADLINE_MS INT64_C(86400000)
#define MAX_RETRY_S 3600
#define MAX_TIMING_BYTES 512

bool api_promise_read_deadline(const struct http_exchange *exchange, int64_t *out_deadline_ms,
                               struct api_fault *fault) {
    const char *given = http_exchange_header(exchange, DEADLINE_HEADER);
    *out_deadline_ms = 0;
    if (!given || (str_read_count(given, MAX_DEADLINE_MS, out_deadline_ms) && *out_deadline_ms > 0)) return true;
    return api_fault_set(fault, 400, NULL, DEADLINE_HEADER, "%s must be whole milliseconds within 1..%lld",
                         DEADLINE_HEADER, (long long)MAX_DEADLINE_MS);
}

/* ---- headers ---- */

/* Of several prompts the last one's first token ends the wait. 0: nothing was told. */
static int64_t ttft_estimate_ns(const struct api_call *call) {
    int64_t longest_ns = 0;
    for (int i = 0; i < call->n_prompts; i++) {
        const struct event *told = &call->prompts[i].told;
        int64_t ns = told->estimate_ns ? told->told_ns + told->estimate_ns - call->received_ns : 0;
        if (told->kind == EVENT_ADMITTED && ns > longest_ns) longest_ns = ns;
    }
    return longest_ns;
}

/* Until the request is home its account is the engine's, all but the parts before. */
static void write_timing(const struct api_prompt *prompt, char out[MAX_TIMING_BYTES]) {
    bool is_home = prompt->state == PROMPT_HOME && prompt->request;
    const struct phase_stats *stats = is_home ? &prompt->request->stats : &prompt->before;
    size_t n = 0;
    for (int i = 0; i < (is_home ? N_PHASES : PHASE_QUEUE); i++) {
        if (!stats->part_ns[i]) continue;
        int n_more = snprintf(out + n, MAX_TIMING_BYTES - n, "%s%s;dur=%.3f", n ? ", " : "",
                              phase_stats_name((enum phase)i), (double)stats->part_ns[i] / 1e6);
        if (n_more < 0 || (size_t)n_more >= MAX_TIMING_BYTES - n) break;
        n += (size_t)n_more;
    }
    out[n] = 0;
}

void api_promise_set_headers(const struct api_call *call) {
    char timing[MAX_TIMING_BYTES + 64], value[32];
    int64_t estimate_ns = ttft_estimate_ns(call);
    write_timing(&call->prompts[0], timing);
    if (estimate_ns) {
        size_t n = strlen(timing);
        snprintf(value, sizeof value, "%.3f", (double)estimate_ns / 1e6);
        snprintf(timing + n, sizeof timing - n, "%sestimate;dur=%s", n ? ", " : "", value);
        http_exchange_set_header(call->exchange, "X-Kvick-Ttft-Estimate-Ms", value);
    }
    if (timing[0]) http_exchange_set_header(call->exchange, "Server-Timing", timing);
}

/* ---- refusals ---- */

static int retry_after_s(int64_t retry_after_ns) {
    int64_t s = (retry_after_ns + 999999999) / 1000000000;
    return s < MAX_RETRY_S ? (int)s : MAX_RETRY_S;
}

void api_promise_refuse(struct api_fault *fault, const struct event *event) {
    const struct status_note *note = &event->request->note;
    if (event->refusal == ADMISSION_ADMITTED) {
        api_fault_from_status(fault, event->status, note);
    } else if (event->refusal == ADMISSION_CONTEXT) {
        api_fault_set(fault, 400, "context_length_exceeded", NULL, "%s", note->text);
    } else if (!event->retry_after_ns) {
        api_fault_set(fault, 400, admission_reason_name(event->refusal), NULL, "%s", note->text);
    } else {
        api_fault_set(fault, 429, admission_reason_name(event->refusal), NULL, "%s", note->text);
        fault->retry_after_s = retry_after_s(event->retry_after_ns);
    }
}

/* ---- estimates ---- */

static void write_time(struct json_write *json, const char *key, int64_t ns) {
    json_write_key(json, key);
    if (ns)
        json_write_real(json, (double)ns / 1e6);
    else
        json_write_null(json);
}

static void write_one(struct json_write *json, const struct api_prompt *prompt) {
    const struct event *told = &prompt->told;
    bool is_taken = told->kind == EVENT_ESTIMATED;
    json_write_object(json);
    json_write_field_text(json, "reason", admission_reason_name(is_taken ? ADMISSION_ADMITTED : told->refusal));
    int64_t hook_ns = prompt->call->api->hook ? pre_hook_expected_ns(prompt->call->api->hook) : 0;
    write_time(json, "ttft_ms", told->estimate_ns ? told->estimate_ns + hook_ns : 0);
    write_time(json, "retry_after_ms", is_taken ? 0 : told->retry_after_ns);
    json_write_field_int(json, "prompt_tokens", prompt->request->n_prompt);
    json_write_field_int(json, "cached_tokens", prompt->request->stats.n_cached_tokens);
    json_write_end_object(json);
}

enum status api_promise_write_estimate(const struct api_call *call, struct str *out) {
    struct json_write json;
    json_write_init(&json, out);
    json_write_object(&json);
    json_write_field_text(&json, "object", "estimate");
    json_write_field_array(&json, "data");
    for (int i = 0; i < call->n_prompts; i++) write_one(&json, &call->prompts[i]);
    json_write_end_array(&json);
    json_write_end_object(&json);
    return json_write_finish(&json);
}
