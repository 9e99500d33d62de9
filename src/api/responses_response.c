#include <stdio.h>
#include <string.h>

#include "api/api_request.h"
#include "api/api_response.h"
#include "base/mem.h"

/* The answers of /v1/responses: a list of items (reasoning, message, function calls); a stream is a row of named and
 * numbered events, whose last one holds all again.   Source: OpenAI's API, as its Python client parses it. */

#define MAX_ITEM_ID_BYTES (API_MAX_ID_BYTES + 24)

static void write_empty_list(struct json_write *json, const char *key) {
    json_write_field_array(json, key);
    json_write_end_array(json);
}

/* An item's id is made of the answer's, so that it is the same in every event. */
static void write_item_id(struct json_write *json, const struct api_call *call, const char *key, enum answer_kind kind,
                          int idx) {
    static const char *const prefixes[] = {
        [ANSWER_IS_REASONING] = "rs", [ANSWER_IS_TEXT] = "msg", [ANSWER_IS_CALL] = "fc"};
    char id[MAX_ITEM_ID_BYTES];
    snprintf(id, sizeof id, "%s_%s_%d", prefixes[kind], call->id + strlen(call->response->id_prefix), idx);
    json_write_field_text(json, key, id);
}

/* ---- items ---- */

static const struct answer_part *part_of(const struct api_call *call, int idx) {
    return &call->prompts[0].choices[0].answer.parts[idx];
}

/* Of the tokens that wrote a message, if they are wanted: those behind the item before it, and from n_told on. */
static void write_logprobs(struct json_write *json, const struct api_call *call, int idx, int n_told) {
    const struct api_prompt *prompt = &call->prompts[0];
    bool is_wanted = call->params.has_logprobs && prompt->request->logprobs;
    int from = idx ? part_of(call, idx - 1)->n_tokens : 0;
    if (from < n_told) from = n_told;
    json_write_field_array(json, "logprobs");
    for (int i = from; is_wanted && i < part_of(call, idx)->n_tokens; i++)
        api_response_write_logprob(json, call, prompt, 0, i);
    json_write_end_array(json);
}

/* What a message or reasoning holds. is_begun: nothing of it is told yet. */
static void write_content_part(struct json_write *json, const struct api_call *call, int idx, bool is_begun) {
    const struct answer_part *part = part_of(call, idx);
    bool is_text = part->kind == ANSWER_IS_TEXT;
    json_write_object(json);
    json_write_field_text(json, "type", is_text ? "output_text" : "reasoning_text");
    json_write_key(json, "text");
    json_write_text(json, part->text.ptr, is_begun ? 0 : part->text.n_bytes);
    if (is_text) write_empty_list(json, "annotations");
    if (is_text && is_begun)
        write_empty_list(json, "logprobs");
    else if (is_text)
        write_logprobs(json, call, idx, 0);
    json_write_end_object(json);
}

static const char *end_status(const struct api_choice *choice) {
    return choice->finish_reason && strcmp(choice->finish_reason, "length") == 0 ? "incomplete" : "completed";
}

/* Only the last message can be cut off. */
static const char *item_status(const struct api_choice *choice, int idx, bool is_begun) {
    if (is_begun) return "in_progress";
    bool is_last = idx == choice->answer.n_parts - 1;
    return is_last && choice->answer.parts[idx].kind == ANSWER_IS_TEXT ? end_status(choice) : "completed";
}

static void write_call(struct json_write *json, const struct answer_part *part, bool is_begun) {
    json_write_field_text(json, "type", "function_call");
    json_write_field_text(json, "call_id", part->id);
    json_write_field_str(json, "name", &part->name);
    json_write_key(json, "arguments");
    json_write_text(json, part->text.ptr, is_begun ? 0 : part->text.n_bytes);
}

/* is_begun: it holds nothing yet. */
static void write_item(struct json_write *json, const struct api_call *call, int idx, bool is_begun) {
    const struct answer_part *part = part_of(call, idx);
    json_write_object(json);
    write_item_id(json, call, "id", part->kind, idx);
    if (part->kind == ANSWER_IS_CALL) {
        write_call(json, part, is_begun);
    } else {
        json_write_field_text(json, "type", part->kind == ANSWER_IS_TEXT ? "message" : "reasoning");
        if (part->kind == ANSWER_IS_TEXT)
            json_write_field_text(json, "role", "assistant");
        else
            write_empty_list(json, "summary");
        json_write_field_array(json, "content");
        if (!is_begun) write_content_part(json, call, idx, false);
        json_write_end_array(json);
    }
    json_write_field_text(json, "status", item_status(&call->prompts[0].choices[0], idx, is_begun));
    json_write_end_object(json);
}

/* An answer that said nothing still is a message. */
static void ensure_message(struct answer *answer) {
    const struct answer_part *last = answer_last(answer);
    if (!last || last->kind == ANSWER_IS_REASONING) answer_begin(answer, ANSWER_IS_TEXT);
}

static void write_output(struct json_write *json, const struct api_call *call) {
    struct answer *answer = &call->prompts[0].choices[0].answer;
    ensure_message(answer);
    json_write_field_array(json, "output");
    for (int i = 0; i < answer->n_parts; i++) write_item(json, call, i, false);
    json_write_end_array(json);
}

/* ---- the response ---- */

/* A field of the request again, or what stands for it if it was not given. */
static void write_echo(struct json_write *json, const struct api_call *call, const char *key, const char *otherwise) {
    const json_t *field = json_object_get(json_object_get(call->json, API_REQUEST_ECHO), key);
    size_t n_bytes = strlen(otherwise);
    char *text = field ? json_read_dump(field, &n_bytes) : NULL;
    if (field && !text) json->status = STATUS_NOMEM;
    json_write_key(json, key);
    json_write_raw(json, text ? text : otherwise, n_bytes);
    mem_free(text);
}

static void write_usage(struct json_write *json, const struct api_call *call) {
    struct api_usage usage = api_call_usage(call);
    json_write_field_object(json, "usage");
    json_write_field_int(json, "input_tokens", usage.n_prompt);
    json_write_field_object(json, "input_tokens_details");
    json_write_field_int(json, "cached_tokens", usage.n_cached);
    json_write_field_int(json, "cache_write_tokens", 0);
    json_write_end_object(json);
    json_write_field_int(json, "output_tokens", usage.n_completion);
    json_write_field_object(json, "output_tokens_details");
    json_write_field_int(json, "reasoning_tokens", usage.n_reasoning);
    json_write_end_object(json);
    json_write_field_int(json, "total_tokens", usage.n_prompt + usage.n_completion);
    api_response_write_kvick(json, call);
    json_write_end_object(json);
}

static void write_cut(struct json_write *json, bool is_cut) {
    json_write_key(json, "incomplete_details");
    if (!is_cut) {
        json_write_null(json);
        return;
    }
    json_write_object(json);
    json_write_field_text(json, "reason", "max_output_tokens");
    json_write_end_object(json);
}

/* status: "in_progress" before the end: then there is no output yet. */
static void write_response(struct json_write *json, const struct api_call *call, const char *status) {
    bool is_over = strcmp(status, "in_progress") != 0;
    json_write_object(json);
    json_write_field_text(json, "id", call->id);
    json_write_field_text(json, "object", "response");
    json_write_field_int(json, "created_at", call->created_s);
    json_write_field_text(json, "status", status);
    json_write_field_null(json, "error");
    write_cut(json, strcmp(status, "incomplete") == 0);
    json_write_field_text(json, "model", call->api->options.model_names[0]);
    if (is_over)
        write_output(json, call);
    else
        write_empty_list(json, "output");
    write_echo(json, call, "instructions", "null");
    write_echo(json, call, "max_output_tokens", "null");
    write_echo(json, call, "metadata", "{}");
    write_echo(json, call, "reasoning", "null");
    write_echo(json, call, "text", "{\"format\":{\"type\":\"text\"}}");
    write_echo(json, call, "tool_choice", "\"auto\"");
    write_echo(json, call, "tools", "[]");
    write_echo(json, call, "user", "null");
    json_write_field_flag(json, "parallel_tool_calls", !call->params.has_one_call);
    json_write_field_null(json, "previous_response_id");
    json_write_field_flag(json, "store", false);
    json_write_field_real(json, "temperature", (double)call->params.sampling.temperature);
    json_write_field_real(json, "top_p", (double)call->params.sampling.top_p);
    json_write_field_text(json, "truncation", "disabled");
    if (is_over)
        write_usage(json, call);
    else
        json_write_field_null(json, "usage");
    json_write_end_object(json);
}

static enum status write_whole(const struct api_call *call, struct str *out) {
    struct json_write json;
    json_write_init(&json, out);
    write_response(&json, call, end_status(&call->prompts[0].choices[0]));
    return json_write_finish(&json);
}

/* ---- streamed ---- */

static void begin_event(struct json_write *json, struct api_choice *choice, struct str *out, const char *type) {
    api_response_begin_event(json, out, type);
    json_write_object(json);
    json_write_field_text(json, "type", type);
    json_write_field_int(json, "sequence_number", choice->n_events++);
}

static enum status end_event(struct json_write *json) {
    json_write_end_object(json);
    return api_response_end_event(json);
}

/* An event about an item, with its place. */
static void begin_item_event(struct json_write *json, const struct api_call *call, struct api_choice *choice, int idx,
                             struct str *out, const char *type) {
    enum answer_kind kind = choice->answer.parts[idx].kind;
    begin_event(json, choice, out, type);
    write_item_id(json, call, "item_id", kind, idx);
    json_write_field_int(json, "output_index", idx);
    if (kind != ANSWER_IS_CALL) json_write_field_int(json, "content_index", 0);
}

static enum status write_response_event(const struct api_call *call, const char *type, const char *status,
                                        struct str *out) {
    struct json_write json;
    begin_event(&json, &call->prompts[0].choices[0], out, type);
    json_write_key(&json, "response");
    write_response(&json, call, status);
    return end_event(&json);
}

static enum status write_first(const struct api_call *call, const struct api_prompt *prompt, int choice,
                               struct str *out) {
    (void)prompt, (void)choice;
    enum status status = write_response_event(call, "response.created", "in_progress", out);
    return status ? status : write_response_event(call, "response.in_progress", "in_progress", out);
}

static enum status write_part_event(const struct api_call *call, struct api_choice *choice, int idx, const char *type,
                                    bool is_begun, struct str *out) {
    struct json_write json;
    begin_item_event(&json, call, choice, idx, out, type);
    json_write_key(&json, "part");
    write_content_part(&json, call, idx, is_begun);
    return end_event(&json);
}

static enum status write_item_event(const struct api_call *call, struct api_choice *choice, int idx, const char *type,
                                    bool is_begun, struct str *out) {
    struct json_write json;
    begin_event(&json, choice, out, type);
    json_write_field_int(&json, "output_index", idx);
    json_write_key(&json, "item");
    write_item(&json, call, idx, is_begun);
    return end_event(&json);
}

static enum status begin_item(const struct api_call *call, struct api_choice *choice, int idx, struct str *out) {
    enum status status = write_item_event(call, choice, idx, "response.output_item.added", true, out);
    if (status || choice->answer.parts[idx].kind == ANSWER_IS_CALL) return status;
    return write_part_event(call, choice, idx, "response.content_part.added", true, out);
}

static enum status go_on(const struct api_call *call, struct api_choice *choice, int idx, struct str *out) {
    static const char *const types[] = {[ANSWER_IS_REASONING] = "response.reasoning_text.delta",
                                        [ANSWER_IS_TEXT] = "response.output_text.delta",
                                        [ANSWER_IS_CALL] = "response.function_call_arguments.delta"};
    const struct answer_part *part = &choice->answer.parts[idx];
    struct json_write json;
    begin_item_event(&json, call, choice, idx, out, types[part->kind]);
    api_response_write_news(&json, "delta", part);
    if (part->kind == ANSWER_IS_TEXT) write_logprobs(&json, call, idx, part->n_told_tokens);
    return end_event(&json);
}

static enum status end_item(const struct api_call *call, struct api_choice *choice, int idx, struct str *out) {
    static const char *const types[] = {[ANSWER_IS_REASONING] = "response.reasoning_text.done",
                                        [ANSWER_IS_TEXT] = "response.output_text.done",
                                        [ANSWER_IS_CALL] = "response.function_call_arguments.done"};
    const struct answer_part *part = &choice->answer.parts[idx];
    bool is_call = part->kind == ANSWER_IS_CALL;
    struct json_write json;
    begin_item_event(&json, call, choice, idx, out, types[part->kind]);
    if (is_call) json_write_field_str(&json, "name", &part->name);
    json_write_field_str(&json, is_call ? "arguments" : "text", &part->text);
    if (part->kind == ANSWER_IS_TEXT) write_logprobs(&json, call, idx, 0);
    enum status status = end_event(&json);
    if (!status && !is_call) status = write_part_event(call, choice, idx, "response.content_part.done", false, out);
    return status ? status : write_item_event(call, choice, idx, "response.output_item.done", false, out);
}

static const struct answer_blocks_form form = {begin_item, go_on, end_item};

static enum status write_end(const struct api_call *call, struct api_prompt *prompt, int idx, struct str *out) {
    ensure_message(&prompt->choices[idx].answer);
    return answer_blocks_finish(call, prompt, idx, out);
}

static enum status write_last(const struct api_call *call, struct str *out) {
    const char *status = end_status(&call->prompts[0].choices[0]);
    bool is_cut = strcmp(status, "incomplete") == 0;
    return write_response_event(call, is_cut ? "response.incomplete" : "response.completed", status, out);
}

const struct api_response responses_response = {.id_prefix = "resp_",
                                                .shape = API_OPENAI,
                                                .kind = API_CHAT,
                                                .blocks = &form,
                                                .write_whole = write_whole,
                                                .write_first = write_first,
                                                .write_piece = answer_blocks_write,
                                                .write_end = write_end,
                                                .write_last = write_last};
