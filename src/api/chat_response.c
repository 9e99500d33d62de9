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
    json_write_key(json, "content");
    json_write_array(json);
    for (int i = from; i < to; i++) api_response_write_logprob(json, call, prompt, choice, i);
    json_write_end_array(json);
    json_write_end_object(json);
}

static void write_field(struct json_write *json, const char *key, const struct str *text) {
    json_write_key(json, key);
    json_write_text(json, text->ptr, text->n_bytes);
}

/* Reasoning and text. may_be_null: no text is null, since there is more beside it. */
static void write_content(struct json_write *json, const struct answer *answer, bool may_be_null) {
    if (answer->reasoning.n_bytes) {
        /* Servers have given it both names, and clients read one or the other. */
        write_field(json, "reasoning", &answer->reasoning);
        write_field(json, "reasoning_content", &answer->reasoning);
    }
    if (answer->text.n_bytes || !may_be_null)
        write_field(json, "content", &answer->text);
    else
        json_write_field_null(json, "content");
}

/* "tool_calls": whole ones, or what is new of them in a stream. */
static void write_calls(struct json_write *json, const struct answer *answer, bool is_whole) {
    bool has_begun = false;
    for (int i = 0; i < answer->n_calls; i++) {
        const struct answer_call *call = &answer->calls[i];
        if (call->is_told && !call->arguments.n_bytes) continue;
        if (!has_begun) {
            json_write_key(json, "tool_calls");
            json_write_array(json);
            has_begun = true;
        }
        json_write_object(json);
        if (!is_whole) json_write_field_int(json, "index", i);
        if (!call->is_told) {
            json_write_field_text(json, "id", call->id);
            json_write_field_text(json, "type", "function");
        }
        json_write_key(json, "function");
        json_write_object(json);
        if (!call->is_told) write_field(json, "name", &call->name);
        write_field(json, "arguments", &call->arguments);
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
    json_write_key(json, "message");
    json_write_object(json);
    json_write_field_text(json, "role", "assistant");
    write_content(json, &choice->answer, choice->answer.n_calls > 0);
    write_calls(json, &choice->answer, true);
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
    json_write_key(&json, "choices");
    json_write_array(&json);
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
    json_write_key(json, "choices");
    json_write_array(json);
    json_write_object(json);
    json_write_field_int(json, "index", api_call_choice_idx(prompt, choice));
    json_write_key(json, "delta");
    json_write_object(json);
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
    bool has_more = answer->reasoning.n_bytes || answer->n_calls;
    api_response_begin_event(&json, out, NULL);
    open_chunk(&json, call, prompt, choice);
    write_content(&json, answer, has_more);
    write_calls(&json, answer, false);
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
