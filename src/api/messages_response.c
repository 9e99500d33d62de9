#include <stdio.h>
#include <string.h>

#include "api/api_response.h"

/* The answers of /v1/messages: blocks of thinking, text and tool use; a stream is a row of named events.
 * Source: Anthropic's API, as its Python client parses it. */

/* input_tokens counts what the cache did not hold. In a stream's first event nothing is known of the cache yet. */
static void write_usage(struct json_write *json, const struct api_call *call, bool is_begin) {
    struct api_usage usage = {.n_prompt = call->prompts[0].n_ids};
    if (!is_begin) usage = api_call_usage(call);
    json_write_field_object(json, "usage");
    json_write_field_int(json, "input_tokens", usage.n_prompt - usage.n_cached);
    json_write_field_int(json, "output_tokens", usage.n_completion);
    json_write_field_int(json, "cache_read_input_tokens", usage.n_cached);
    json_write_field_int(json, "cache_creation_input_tokens", 0);
    if (!is_begin) api_response_write_kvick(json, call);
    json_write_end_object(json);
}

static void write_stop(struct json_write *json, const struct api_choice *choice) {
    static const char *const names[][2] = {{"length", "max_tokens"}, {"tool_calls", "tool_use"}, {"stop", "end_turn"}};
    bool has_stop = choice->stop.found >= 0 && strcmp(choice->finish_reason, "stop") == 0;
    const char *reason = has_stop ? "stop_sequence" : "end_turn";
    for (size_t i = 0; !has_stop && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(choice->finish_reason, names[i][0]) == 0) reason = names[i][1];
    json_write_field_text(json, "stop_reason", reason);
    json_write_key(json, "stop_sequence");
    if (has_stop) {
        const struct stop_string *stop = &choice->stop.stops[choice->stop.found];
        json_write_text(json, stop->ptr, stop->n_bytes);
    } else {
        json_write_null(json);
    }
}

static void write_head(struct json_write *json, const struct api_call *call) {
    json_write_object(json);
    json_write_field_text(json, "id", call->id);
    json_write_field_text(json, "type", "message");
    json_write_field_text(json, "role", "assistant");
    json_write_field_text(json, "model", call->api->options.model_names[0]);
}

/* ---- whole ---- */

/* The model wrote the arguments: what is no object is told as text under one name, so that the answer stays JSON. */
static void write_input(struct json_write *json, const struct str *arguments) {
    json_t *input = json_loadb(arguments->ptr, arguments->n_bytes, JSON_ALLOW_NUL, NULL);
    json_write_key(json, "input");
    if (json_is_object(input)) {
        json_write_raw(json, arguments->ptr, arguments->n_bytes);
    } else {
        json_write_object(json);
        json_write_field_str(json, "arguments", arguments);
        json_write_end_object(json);
    }
    json_decref(input);
}

static const char *const types[] = {
    [ANSWER_IS_REASONING] = "thinking", [ANSWER_IS_TEXT] = "text", [ANSWER_IS_CALL] = "tool_use"};

static void write_block(struct json_write *json, const struct answer_part *part) {
    json_write_object(json);
    json_write_field_text(json, "type", types[part->kind]);
    if (part->kind == ANSWER_IS_CALL) {
        json_write_field_text(json, "id", part->id);
        json_write_field_str(json, "name", &part->name);
        write_input(json, &part->text);
    } else {
        json_write_field_str(json, types[part->kind], &part->text);
        if (part->kind == ANSWER_IS_REASONING) json_write_field_text(json, "signature", "");
    }
    json_write_end_object(json);
}

static enum status write_whole(const struct api_call *call, struct str *out) {
    const struct api_choice *choice = &call->prompts[0].choices[0];
    struct json_write json;
    json_write_init(&json, out);
    write_head(&json, call);
    json_write_field_array(&json, "content");
    for (int i = 0; i < choice->answer.n_parts; i++) write_block(&json, &choice->answer.parts[i]);
    json_write_end_array(&json);
    write_stop(&json, choice);
    write_usage(&json, call, false);
    json_write_end_object(&json);
    return json_write_finish(&json);
}

/* ---- streamed ---- */

/* An event with its type, open for its other fields. */
static void begin_event(struct json_write *json, struct str *out, const char *type) {
    api_response_begin_event(json, out, type);
    json_write_object(json);
    json_write_field_text(json, "type", type);
}

static enum status end_event(struct json_write *json) {
    json_write_end_object(json);
    return api_response_end_event(json);
}

static enum status write_first(const struct api_call *call, const struct api_prompt *prompt, int choice,
                               struct str *out) {
    struct json_write json;
    (void)prompt, (void)choice;
    begin_event(&json, out, "message_start");
    json_write_key(&json, "message");
    write_head(&json, call);
    json_write_field_array(&json, "content");
    json_write_end_array(&json);
    json_write_field_null(&json, "stop_reason");
    json_write_field_null(&json, "stop_sequence");
    write_usage(&json, call, true);
    json_write_end_object(&json);
    return end_event(&json);
}

static enum status begin_block(const struct api_call *call, struct api_choice *choice, int idx, struct str *out) {
    const struct answer_part *part = &choice->answer.parts[idx];
    struct json_write json;
    (void)call;
    begin_event(&json, out, "content_block_start");
    json_write_field_int(&json, "index", idx);
    json_write_field_object(&json, "content_block");
    json_write_field_text(&json, "type", types[part->kind]);
    if (part->kind == ANSWER_IS_CALL) {
        json_write_field_text(&json, "id", part->id);
        json_write_field_str(&json, "name", &part->name);
        json_write_field_object(&json, "input");
        json_write_end_object(&json);
    } else {
        json_write_field_text(&json, types[part->kind], "");
        if (part->kind == ANSWER_IS_REASONING) json_write_field_text(&json, "signature", "");
    }
    json_write_end_object(&json);
    return end_event(&json);
}

static enum status write_delta(const struct api_call *call, struct api_choice *choice, int idx, struct str *out) {
    static const char *const delta_types[] = {[ANSWER_IS_REASONING] = "thinking_delta",
                                              [ANSWER_IS_TEXT] = "text_delta",
                                              [ANSWER_IS_CALL] = "input_json_delta"};
    static const char *const keys[] = {
        [ANSWER_IS_REASONING] = "thinking", [ANSWER_IS_TEXT] = "text", [ANSWER_IS_CALL] = "partial_json"};
    const struct answer_part *part = &choice->answer.parts[idx];
    struct json_write json;
    (void)call;
    begin_event(&json, out, "content_block_delta");
    json_write_field_int(&json, "index", idx);
    json_write_field_object(&json, "delta");
    json_write_field_text(&json, "type", delta_types[part->kind]);
    api_response_write_news(&json, keys[part->kind], part);
    json_write_end_object(&json);
    return end_event(&json);
}

static enum status end_block(const struct api_call *call, struct api_choice *choice, int idx, struct str *out) {
    struct json_write json;
    (void)call, (void)choice;
    begin_event(&json, out, "content_block_stop");
    json_write_field_int(&json, "index", idx);
    return end_event(&json);
}

static const struct answer_blocks_form form = {begin_block, write_delta, end_block};

static enum status write_last(const struct api_call *call, struct str *out) {
    struct json_write json;
    begin_event(&json, out, "message_delta");
    json_write_field_object(&json, "delta");
    write_stop(&json, &call->prompts[0].choices[0]);
    json_write_end_object(&json);
    write_usage(&json, call, false);
    enum status status = end_event(&json);
    if (status) return status;
    begin_event(&json, out, "message_stop");
    return end_event(&json);
}

/* Clients pass over a ping, whatever it holds. */
static enum status write_progress(const struct api_call *call, const struct api_prompt *prompt,
                                  const struct event *event, struct str *out) {
    struct json_write json;
    begin_event(&json, out, "ping");
    api_response_write_progress(&json, call, prompt, event);
    return end_event(&json);
}

const struct api_response messages_response = {.id_prefix = "msg_",
                                               .shape = API_ANTHROPIC,
                                               .kind = API_CHAT,
                                               .blocks = &form,
                                               .write_whole = write_whole,
                                               .write_first = write_first,
                                               .write_piece = answer_blocks_write,
                                               .write_end = answer_blocks_finish,
                                               .write_last = write_last,
                                               .write_progress = write_progress};
