#include <string.h>

#include "api/api_response.h"

/* The answers of /v1/chat/completions.   Source: OpenAI's API, as its clients parse it. */

/* {"content": [...]} of all tokens of an answer, or of one. */
static void write_logprobs(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                           int choice, int from, int to) {
    json_write_key(json, "logprobs");
    if (!call->params.has_logprobs || !prompt->request->logprobs) {
        json_write_null(json);
        return;
    }
    json_write_object(json);
    json_write_field_array(json, "content");
    for (int i = from; i < to; i++) api_response_write_logprob(json, call, prompt, choice, i);
    json_write_end_array(json);
    json_write_end_object(json);
}

/* Reasoning and text, of a stream what is new of them. No text is null if there is more beside it. */
static void write_content(struct json_write *json, const struct answer *answer, bool is_new) {
    struct str reasoning, text;
    str_init(&reasoning, ANSWER_MAX_BYTES);
    str_init(&text, ANSWER_MAX_BYTES);
    if (!json->status) json->status = answer_join(answer, ANSWER_IS_REASONING, is_new, &reasoning);
    if (!json->status) json->status = answer_join(answer, ANSWER_IS_TEXT, is_new, &text);
    if (reasoning.n_bytes) {
        /* Servers have given it both names, and clients read one or the other. */
        json_write_field_str(json, "reasoning", &reasoning);
        json_write_field_str(json, "reasoning_content", &reasoning);
    }
    if (text.n_bytes == 0 && (answer->n_calls > 0 || (is_new && reasoning.n_bytes)))
        json_write_field_null(json, "content");
    else
        json_write_field_str(json, "content", &text);
    str_deinit(&reasoning);
    str_deinit(&text);
}

/* "tool_calls": whole ones, or what is new of them in a stream. */
static void write_calls(struct json_write *json, const struct answer *answer, bool is_new) {
    int n_calls = 0;
    bool has_begun = false;
    for (int i = 0; i < answer->n_parts; i++) {
        const struct answer_part *part = &answer->parts[i];
        if (part->kind != ANSWER_IS_CALL) continue;
        int idx = n_calls++;
        if (part->is_told && part->n_told_bytes == part->text.n_bytes) continue;
        if (!has_begun) {
            json_write_field_array(json, "tool_calls");
            has_begun = true;
        }
        json_write_object(json);
        if (is_new) json_write_field_int(json, "index", idx);
        if (!part->is_told) {
            json_write_field_text(json, "id", part->id);
            json_write_field_text(json, "type", "function");
        }
        json_write_field_object(json, "function");
        if (!part->is_told) json_write_field_str(json, "name", &part->name);
        api_response_write_news(json, "arguments", part);
        json_write_end_object(json);
        json_write_end_object(json);
    }
    if (has_begun) json_write_end_array(json);
}

static void write_choice(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                         int idx) {
    const struct api_choice *choice = &prompt->choices[idx];
    json_write_object(json);
    json_write_field_int(json, "index", api_call_choice_idx(prompt, idx));
    json_write_field_object(json, "message");
    json_write_field_text(json, "role", "assistant");
    write_content(json, &choice->answer, false);
    write_calls(json, &choice->answer, false);
    json_write_end_object(json);
    int n_told = api_response_n_told(prompt, idx);
    write_logprobs(json, call, prompt, idx, 0, n_told);
    json_write_field_text(json, "finish_reason", choice->finish_reason);
    api_response_write_stop_reason(json, choice);
    if (call->params.returns_ids)
        api_response_write_ids(json, "token_ids", engine_client_answer(prompt->request, idx), n_told);
    json_write_end_object(json);
}

static enum status write_whole(const struct api_call *call, struct str *out) {
    struct json_write json;
    json_write_init(&json, out);
    api_response_write_head(&json, call, "chat.completion");
    json_write_field_array(&json, "choices");
    for (int i = 0; i < call->params.n; i++) write_choice(&json, call, &call->prompts[0], i);
    json_write_end_array(&json);
    api_response_write_usage(&json, call);
    if (call->params.returns_ids)
        api_response_write_ids(&json, "prompt_token_ids", call->prompts[0].request->tokens,
                               call->prompts[0].request->n_prompt);
    json_write_end_object(&json);
    return json_write_finish(&json);
}

/* A chunk up to its one choice's delta. */
static void open_chunk(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                       int choice) {
    api_response_write_head(json, call, "chat.completion.chunk");
    json_write_field_array(json, "choices");
    json_write_object(json);
    json_write_field_int(json, "index", api_call_choice_idx(prompt, choice));
    json_write_field_object(json, "delta");
}

static void close_chunk(struct json_write *json, const struct api_call *call) {
    json_write_end_object(json);
    json_write_end_array(json);
    if (call->params.has_continuous_usage)
        api_response_write_usage(json, call);
    else if (call->params.has_usage_chunk)
        json_write_field_null(json, "usage");
    json_write_end_object(json);
}

static enum status write_first(const struct api_call *call, const struct api_prompt *prompt, int choice,
                               struct str *out) {
    struct json_write json;
    api_response_begin_event(&json, out, NULL);
    open_chunk(&json, call, prompt, choice);
    json_write_field_text(&json, "role", "assistant");
    json_write_field_text(&json, "content", "");
    json_write_end_object(&json);
    json_write_field_null(&json, "logprobs");
    json_write_field_null(&json, "finish_reason");
    if (call->params.returns_ids && choice == 0)
        api_response_write_ids(&json, "prompt_token_ids", prompt->request->tokens, prompt->request->n_prompt);
    close_chunk(&json, call);
    return api_response_end_event(&json);
}

static enum status write_piece(const struct api_call *call, struct api_prompt *prompt, int choice, int token_idx,
                               struct str *out) {
    struct json_write json;
    const struct answer *answer = &prompt->choices[choice].answer;
    api_response_begin_event(&json, out, NULL);
    open_chunk(&json, call, prompt, choice);
    write_content(&json, answer, true);
    write_calls(&json, answer, true);
    json_write_end_object(&json);
    if (token_idx >= 0)
        write_logprobs(&json, call, prompt, choice, token_idx, token_idx + 1);
    else
        json_write_field_null(&json, "logprobs");
    json_write_field_null(&json, "finish_reason");
    if (call->params.returns_ids)
        api_response_write_ids(&json, "token_ids",
                               engine_client_answer(prompt->request, choice) + (token_idx < 0 ? 0 : token_idx),
                               token_idx >= 0);
    close_chunk(&json, call);
    return api_response_end_event(&json);
}

static enum status write_end(const struct api_call *call, struct api_prompt *prompt, int choice, struct str *out) {
    struct json_write json;
    api_response_begin_event(&json, out, NULL);
    open_chunk(&json, call, prompt, choice);
    json_write_end_object(&json);
    json_write_field_null(&json, "logprobs");
    json_write_field_text(&json, "finish_reason", prompt->choices[choice].finish_reason);
    api_response_write_stop_reason(&json, &prompt->choices[choice]);
    close_chunk(&json, call);
    return api_response_end_event(&json);
}

/* A delta that says nothing, so that who reads choices alone goes on as before. */
static enum status write_progress(const struct api_call *call, const struct api_prompt *prompt,
                                  const struct event *event, struct str *out) {
    struct json_write json;
    api_response_begin_event(&json, out, NULL);
    open_chunk(&json, call, prompt, 0);
    json_write_end_object(&json);
    return api_response_end_progress(&json, call, prompt, event);
}

static enum status write_last(const struct api_call *call, struct str *out) {
    return api_response_write_last(call, "chat.completion.chunk", out);
}

const struct api_response chat_response = {.id_prefix = "chatcmpl-",
                                           .shape = API_OPENAI,
                                           .kind = API_CHAT,
                                           .write_whole = write_whole,
                                           .write_first = write_first,
                                           .write_piece = write_piece,
                                           .write_end = write_end,
                                           .write_last = write_last,
                                           .write_progress = write_progress};
