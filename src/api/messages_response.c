#include <stdio.h>
#include <string.h>

#include "api/answer_blocks.h"
#include "api/api_response.h"

/* The answers of /v1/messages: blocks of thinking, text and tool use; a stream is a row of named events.
 * Source: Anthropic's API, as its Python client parses it. */

static void write_text_field(struct json_write *json, const char *key, const struct str *text) {
    json_write_key(json, key);
    json_write_text(json, text->ptr, text->n_bytes);
}

/* input_tokens counts what the cache did not hold. In a stream's first event nothing is known of the cache yet. */
static void write_usage(struct json_write *json, const struct api_call *call, bool is_begin) {
    struct api_usage usage = {.n_prompt = call->prompts[0].n_ids};
    if (!is_begin) usage = api_call_usage(call);
    json_write_key(json, "usage");
    json_write_object(json);
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
        write_text_field(json, "arguments", arguments);
        json_write_end_object(json);
    }
    json_decref(input);
}

static void write_blocks(struct json_write *json, const struct answer *answer) {
    json_write_key(json, "content");
    json_write_array(json);
    if (answer->reasoning.n_bytes) {
        json_write_object(json);
        json_write_field_text(json, "type", "thinking");
        write_text_field(json, "thinking", &answer->reasoning);
        json_write_field_text(json, "signature", "");
        json_write_end_object(json);
    }
    if (answer->text.n_bytes) {
        json_write_object(json);
        json_write_field_text(json, "type", "text");
        write_text_field(json, "text", &answer->text);
        json_write_end_object(json);
    }
    for (int i = 0; i < answer->n_calls; i++) {
        json_write_object(json);
        json_write_field_text(json, "type", "tool_use");
        json_write_field_text(json, "id", answer->calls[i].id);
        write_text_field(json, "name", &answer->calls[i].name);
        write_input(json, &answer->calls[i].arguments);
        json_write_end_object(json);
    }
    json_write_end_array(json);
}

static enum status write_whole(const struct api_call *call, struct str *out) {
    const struct api_choice *choice = &call->prompts[0].choices[0];
    struct json_write json;
    json_write_init(&json, out);
    write_head(&json, call);
    write_blocks(&json, &choice->answer);
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
    json_write_key(&json, "content");
    json_write_array(&json);
    json_write_end_array(&json);
    json_write_field_null(&json, "stop_reason");
    json_write_field_null(&json, "stop_sequence");
    write_usage(&json, call, true);
    json_write_end_object(&json);
    return end_event(&json);
}

static enum status begin_block(const struct api_call *call, struct api_choice *choice, const struct answer_call *tool,
                               struct str *out) {
    static const char *const types[] = {
        [ANSWER_BLOCK_REASONING] = "thinking", [ANSWER_BLOCK_TEXT] = "text", [ANSWER_BLOCK_CALL] = "tool_use"};
    struct json_write json;
    (void)call;
    begin_event(&json, out, "content_block_start");
    json_write_field_int(&json, "index", choice->n_blocks - 1);
    json_write_key(&json, "content_block");
    json_write_object(&json);
    json_write_field_text(&json, "type", types[choice->block]);
    if (tool) {
        json_write_field_text(&json, "id", tool->id);
        write_text_field(&json, "name", &tool->name);
        json_write_key(&json, "input");
        json_write_object(&json);
        json_write_end_object(&json);
    } else {
        json_write_field_text(&json, types[choice->block], "");
        if (choice->block == ANSWER_BLOCK_REASONING) json_write_field_text(&json, "signature", "");
    }
    json_write_end_object(&json);
    return end_event(&json);
}

static enum status write_delta(const struct api_call *call, struct api_choice *choice, const struct str *text,
                               int token_idx, struct str *out) {
    static const char *const types[] = {[ANSWER_BLOCK_REASONING] = "thinking_delta",
                                        [ANSWER_BLOCK_TEXT] = "text_delta",
                                        [ANSWER_BLOCK_CALL] = "input_json_delta"};
    static const char *const keys[] = {
        [ANSWER_BLOCK_REASONING] = "thinking", [ANSWER_BLOCK_TEXT] = "text", [ANSWER_BLOCK_CALL] = "partial_json"};
    struct json_write json;
    (void)call, (void)token_idx;
    begin_event(&json, out, "content_block_delta");
    json_write_field_int(&json, "index", choice->n_blocks - 1);
    json_write_key(&json, "delta");
    json_write_object(&json);
    json_write_field_text(&json, "type", types[choice->block]);
    write_text_field(&json, keys[choice->block], text);
    json_write_end_object(&json);
    return end_event(&json);
}

static enum status end_block(const struct api_call *call, struct api_choice *choice, struct str *out) {
    struct json_write json;
    (void)call;
    begin_event(&json, out, "content_block_stop");
    json_write_field_int(&json, "index", choice->n_blocks - 1);
    return end_event(&json);
}

static const struct answer_blocks_form form = {begin_block, write_delta, end_block};

static enum status write_piece(const struct api_call *call, struct api_prompt *prompt, int choice, int token_idx,
                               struct str *out) {
    return answer_blocks_write(&form, call, &prompt->choices[choice], token_idx, out);
}

static enum status write_end(const struct api_call *call, struct api_prompt *prompt, int choice, struct str *out) {
    return answer_blocks_close(&form, call, &prompt->choices[choice], out);
}

static enum status write_last(const struct api_call *call, struct str *out) {
    struct json_write json;
    begin_event(&json, out, "message_delta");
    json_write_key(&json, "delta");
    json_write_object(&json);
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
                                               .write_whole = write_whole,
                                               .write_first = write_first,
                                               .write_piece = write_piece,
                                               .write_end = write_end,
                                               .write_last = write_last,
                                               .write_progress = write_progress};
