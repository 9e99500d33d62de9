#include <stdio.h>
#include <string.h>

#include "api/answer_blocks.h"
#include "api/api_request.h"
#include "api/api_response.h"
#include "base/mem.h"

/* The answers of /v1/responses: a list of items (reasoning, message, function calls); a stream is a row of named and
 * numbered events, whose last one holds all again.   Source: OpenAI's API, as its Python client parses it. */

#define MAX_ITEM_ID_BYTES (API_MAX_ID_BYTES + 24)

/* What a stream has told so far, or the answer of a request that did not stream. */
static const struct answer *told(const struct api_choice *choice) {
    return choice->whole ? choice->whole : &choice->answer;
}

static void write_field(struct json_write *json, const char *key, const struct str *text) {
    json_write_key(json, key);
    json_write_text(json, text->ptr, text->n_bytes);
}

static void write_empty_list(struct json_write *json, const char *key) {
    json_write_key(json, key);
    json_write_array(json);
    json_write_end_array(json);
}

/* An item's id is made of the answer's, so that it is the same in every event. */
static void write_item_id(struct json_write *json, const struct api_call *call, const char *key, const char *prefix,
                          int idx) {
    char id[MAX_ITEM_ID_BYTES];
    snprintf(id, sizeof id, "%s_%s_%d", prefix, call->id + strlen(call->response->id_prefix), idx);
    json_write_field_text(json, key, id);
}

/* ---- items ---- */

static void write_logprobs(struct json_write *json, const struct api_call *call, int from, int to) {
    const struct api_prompt *prompt = &call->prompts[0];
    json_write_key(json, "logprobs");
    json_write_array(json);
    for (int i = from; prompt->request->logprobs && i < to; i++) api_response_write_logprob(json, call, prompt, 0, i);
    json_write_end_array(json);
}

/* Tokens of the answer so far whose log-probabilities are known, if they are wanted. */
static int n_logprobs(const struct api_call *call) {
    const struct api_prompt *prompt = &call->prompts[0];
    const struct api_choice *choice = &prompt->choices[0];
    if (!call->params.has_logprobs) return 0;
    /* Only when the engine has ended it may the request's own count be read. */
    return choice->is_over && choice->stop.found < 0 ? api_response_n_told(prompt, 0) : choice->n_tokens;
}

/* n_tokens: those whose log-probabilities stand beside the text. */
static void write_text_part(struct json_write *json, const struct api_call *call, const struct str *text,
                            int n_tokens) {
    json_write_object(json);
    json_write_field_text(json, "type", "output_text");
    json_write_key(json, "text");
    json_write_text(json, text ? text->ptr : "", text ? text->n_bytes : 0);
    write_empty_list(json, "annotations");
    write_logprobs(json, call, 0, n_tokens);
    json_write_end_object(json);
}

static void write_reasoning_part(struct json_write *json, const struct str *text) {
    json_write_object(json);
    json_write_field_text(json, "type", "reasoning_text");
    json_write_key(json, "text");
    json_write_text(json, text ? text->ptr : "", text ? text->n_bytes : 0);
    json_write_end_object(json);
}

/* text NULL: it has only begun. */
static void write_reasoning(struct json_write *json, const struct api_call *call, int idx, const struct str *text) {
    json_write_object(json);
    write_item_id(json, call, "id", "rs", idx);
    json_write_field_text(json, "type", "reasoning");
    write_empty_list(json, "summary");
    json_write_key(json, "content");
    json_write_array(json);
    if (text) write_reasoning_part(json, text);
    json_write_end_array(json);
    json_write_field_text(json, "status", text ? "completed" : "in_progress");
    json_write_end_object(json);
}

static void write_message(struct json_write *json, const struct api_call *call, int idx, const struct str *text,
                          const char *status) {
    json_write_object(json);
    write_item_id(json, call, "id", "msg", idx);
    json_write_field_text(json, "type", "message");
    json_write_field_text(json, "role", "assistant");
    json_write_field_text(json, "status", status);
    json_write_key(json, "content");
    json_write_array(json);
    if (text) write_text_part(json, call, text, n_logprobs(call));
    json_write_end_array(json);
    json_write_end_object(json);
}

/* is_begun: its arguments are to come. */
static void write_call(struct json_write *json, const struct api_call *call, int idx, const struct answer_call *tool,
                       bool is_begun) {
    json_write_object(json);
    write_item_id(json, call, "id", "fc", idx);
    json_write_field_text(json, "type", "function_call");
    json_write_field_text(json, "call_id", tool->id);
    write_field(json, "name", &tool->name);
    json_write_key(json, "arguments");
    json_write_text(json, is_begun ? "" : tool->arguments.ptr, is_begun ? 0 : tool->arguments.n_bytes);
    json_write_field_text(json, "status", is_begun ? "in_progress" : "completed");
    json_write_end_object(json);
}

static const char *end_status(const struct api_choice *choice) {
    return choice->finish_reason && strcmp(choice->finish_reason, "length") == 0 ? "incomplete" : "completed";
}

/* All items of an answer, in the order in which they came. */
static void write_output(struct json_write *json, const struct api_call *call) {
    const struct api_choice *choice = &call->prompts[0].choices[0];
    const struct answer *answer = told(choice);
    int idx = 0;
    json_write_key(json, "output");
    json_write_array(json);
    if (answer->reasoning.n_bytes) write_reasoning(json, call, idx++, &answer->reasoning);
    if (answer->text.n_bytes || !answer->n_calls) write_message(json, call, idx++, &answer->text, end_status(choice));
    for (int i = 0; i < answer->n_calls; i++) write_call(json, call, idx++, &answer->calls[i], false);
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
    json_write_key(json, "usage");
    json_write_object(json);
    json_write_field_int(json, "input_tokens", usage.n_prompt);
    json_write_key(json, "input_tokens_details");
    json_write_object(json);
    json_write_field_int(json, "cached_tokens", usage.n_cached);
    json_write_field_int(json, "cache_write_tokens", 0);
    json_write_end_object(json);
    json_write_field_int(json, "output_tokens", usage.n_completion);
    json_write_key(json, "output_tokens_details");
    json_write_object(json);
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

/* An event about the open item, with its place. */
static void begin_item_event(struct json_write *json, const struct api_call *call, struct api_choice *choice,
                             struct str *out, const char *type) {
    static const char *const prefixes[] = {
        [ANSWER_BLOCK_REASONING] = "rs", [ANSWER_BLOCK_TEXT] = "msg", [ANSWER_BLOCK_CALL] = "fc"};
    begin_event(json, choice, out, type);
    write_item_id(json, call, "item_id", prefixes[choice->block], choice->n_blocks - 1);
    json_write_field_int(json, "output_index", choice->n_blocks - 1);
    if (choice->block != ANSWER_BLOCK_CALL) json_write_field_int(json, "content_index", 0);
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

static const struct answer_call *last_call(const struct api_choice *choice) {
    return &choice->whole->calls[choice->whole->n_calls - 1];
}

static enum status write_part_event(const struct api_call *call, struct api_choice *choice, const char *type,
                                    const struct str *text, struct str *out) {
    struct json_write json;
    begin_item_event(&json, call, choice, out, type);
    json_write_key(&json, "part");
    if (choice->block == ANSWER_BLOCK_REASONING)
        write_reasoning_part(&json, text);
    else
        write_text_part(&json, call, text, text ? n_logprobs(call) : 0);
    return end_event(&json);
}

/* is_begun: nothing of it is told yet. */
static enum status write_item_event(const struct api_call *call, struct api_choice *choice, const char *type,
                                    bool is_begun, struct str *out) {
    const struct answer *answer = choice->whole;
    int idx = choice->n_blocks - 1;
    struct json_write json;
    begin_event(&json, choice, out, type);
    json_write_field_int(&json, "output_index", idx);
    json_write_key(&json, "item");
    if (choice->block == ANSWER_BLOCK_REASONING)
        write_reasoning(&json, call, idx, is_begun ? NULL : &answer->reasoning);
    else if (choice->block == ANSWER_BLOCK_TEXT)
        write_message(&json, call, idx, is_begun ? NULL : &answer->text, is_begun ? "in_progress" : end_status(choice));
    else
        write_call(&json, call, idx, last_call(choice), is_begun);
    return end_event(&json);
}

static enum status begin_item(const struct api_call *call, struct api_choice *choice, const struct answer_call *tool,
                              struct str *out) {
    if (tool) {
        struct answer_call *own = &choice->whole->calls[choice->whole->n_calls++];
        memcpy(own->id, tool->id, sizeof own->id);
        enum status status = str_append(&own->name, tool->name.ptr, tool->name.n_bytes);
        return status ? status : write_item_event(call, choice, "response.output_item.added", true, out);
    }
    enum status status = write_item_event(call, choice, "response.output_item.added", true, out);
    return status ? status : write_part_event(call, choice, "response.content_part.added", NULL, out);
}

/* What is told of the open item so far. */
static struct str *told_text(const struct api_choice *choice) {
    struct answer *answer = choice->whole;
    if (choice->block == ANSWER_BLOCK_CALL) return &answer->calls[answer->n_calls - 1].arguments;
    return choice->block == ANSWER_BLOCK_TEXT ? &answer->text : &answer->reasoning;
}

static enum status go_on(const struct api_call *call, struct api_choice *choice, const struct str *text, int token_idx,
                         struct str *out) {
    static const char *const types[] = {[ANSWER_BLOCK_REASONING] = "response.reasoning_text.delta",
                                        [ANSWER_BLOCK_TEXT] = "response.output_text.delta",
                                        [ANSWER_BLOCK_CALL] = "response.function_call_arguments.delta"};
    struct json_write json;
    enum status status = str_append(told_text(choice), text->ptr, text->n_bytes);
    if (status) return status;
    begin_item_event(&json, call, choice, out, types[choice->block]);
    write_field(&json, "delta", text);
    if (choice->block == ANSWER_BLOCK_TEXT) write_logprobs(&json, call, token_idx < 0 ? 0 : token_idx, token_idx + 1);
    return end_event(&json);
}

static enum status end_item(const struct api_call *call, struct api_choice *choice, struct str *out) {
    static const char *const types[] = {[ANSWER_BLOCK_REASONING] = "response.reasoning_text.done",
                                        [ANSWER_BLOCK_TEXT] = "response.output_text.done",
                                        [ANSWER_BLOCK_CALL] = "response.function_call_arguments.done"};
    const struct str *text = told_text(choice);
    struct json_write json;
    begin_item_event(&json, call, choice, out, types[choice->block]);
    if (choice->block == ANSWER_BLOCK_CALL) write_field(&json, "name", &last_call(choice)->name);
    write_field(&json, choice->block == ANSWER_BLOCK_CALL ? "arguments" : "text", text);
    if (choice->block == ANSWER_BLOCK_TEXT) write_logprobs(&json, call, 0, n_logprobs(call));
    enum status status = end_event(&json);
    if (!status && choice->block != ANSWER_BLOCK_CALL)
        status = write_part_event(call, choice, "response.content_part.done", text, out);
    return status ? status : write_item_event(call, choice, "response.output_item.done", false, out);
}

static const struct answer_blocks_form form = {begin_item, go_on, end_item};

static enum status write_piece(const struct api_call *call, struct api_prompt *prompt, int choice, int token_idx,
                               struct str *out) {
    return answer_blocks_write(&form, call, &prompt->choices[choice], token_idx, out);
}

/* An answer that said nothing still is a message. */
static enum status write_end(const struct api_call *call, struct api_prompt *prompt, int idx, struct str *out) {
    struct api_choice *choice = &prompt->choices[idx];
    if (choice->whole->text.n_bytes == 0 && choice->whole->n_calls == 0) {
        enum status status = answer_blocks_close(&form, call, choice, out);
        choice->block = ANSWER_BLOCK_TEXT;
        choice->n_blocks++;
        if (!status) status = begin_item(call, choice, NULL, out);
        if (status) return status;
    }
    return answer_blocks_close(&form, call, choice, out);
}

static enum status write_last(const struct api_call *call, struct str *out) {
    const char *status = end_status(&call->prompts[0].choices[0]);
    bool is_cut = strcmp(status, "incomplete") == 0;
    return write_response_event(call, is_cut ? "response.incomplete" : "response.completed", status, out);
}

const struct api_response responses_response = {.id_prefix = "resp_",
                                                .shape = API_OPENAI,
                                                .kind = API_CHAT,
                                                .keeps_whole = true,
                                                .write_whole = write_whole,
                                                .write_first = write_first,
                                                .write_piece = write_piece,
                                                .write_end = write_end,
                                                .write_last = write_last};
