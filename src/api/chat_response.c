#include <string.h>

#include "api/api_response.h"

/* The answers of /v1/chat/completions.   Source: OpenAI's API, as its clients parse it. */

static void write_head(struct json_write *json, const struct api_call *call, const char *object) {
    json_write_object(json);
    json_write_field_text(json, "id", call->id);
    json_write_field_text(json, "object", object);
    json_write_field_int(json, "created", call->created_s);
    json_write_field_text(json, "model", call->api->options.model_names[0]);
}

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

static void write_choice(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                         int idx) {
    const struct api_choice *choice = &prompt->choices[idx];
    json_write_object(json);
    json_write_field_int(json, "index", api_call_choice_idx(prompt, idx));
    json_write_key(json, "message");
    json_write_object(json);
    json_write_field_text(json, "role", "assistant");
    json_write_key(json, "content");
    json_write_text(json, choice->text.ptr, choice->text.n_bytes);
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
    write_head(&json, call, "chat.completion");
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
    write_head(json, call, "chat.completion.chunk");
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
    json_write_init(&json, out);
    open_chunk(&json, call, prompt, choice);
    json_write_field_text(&json, "role", "assistant");
    json_write_field_text(&json, "content", "");
    json_write_end_object(&json);
    json_write_field_null(&json, "logprobs");
    json_write_field_null(&json, "finish_reason");
    if (call->params.returns_ids && choice == 0)
        api_response_write_ids(&json, "prompt_token_ids", prompt->request->tokens, prompt->request->n_prompt);
    close_chunk(&json, call);
    return json_write_finish(&json);
}

static enum status write_piece(const struct api_call *call, const struct api_prompt *prompt, int choice, int token_idx,
                               struct str *out) {
    struct json_write json;
    const struct str *text = &prompt->choices[choice].text;
    json_write_init(&json, out);
    open_chunk(&json, call, prompt, choice);
    json_write_key(&json, "content");
    json_write_text(&json, text->ptr, text->n_bytes);
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
    return json_write_finish(&json);
}

static enum status write_end(const struct api_call *call, const struct api_prompt *prompt, int choice,
                             struct str *out) {
    struct json_write json;
    json_write_init(&json, out);
    open_chunk(&json, call, prompt, choice);
    json_write_end_object(&json);
    json_write_field_null(&json, "logprobs");
    json_write_field_text(&json, "finish_reason", prompt->choices[choice].finish_reason);
    api_response_write_stop_reason(&json, &prompt->choices[choice]);
    close_chunk(&json, call);
    return json_write_finish(&json);
}

static enum status write_usage(const struct api_call *call, struct str *out) {
    struct json_write json;
    json_write_init(&json, out);
    write_head(&json, call, "chat.completion.chunk");
    json_write_key(&json, "choices");
    json_write_array(&json);
    json_write_end_array(&json);
    api_response_write_usage(&json, call);
    json_write_end_object(&json);
    return json_write_finish(&json);
}

const struct api_response chat_response = {.id_prefix = "chatcmpl-",
                                           .shape = API_OPENAI,
                                           .write_whole = write_whole,
                                           .write_first = write_first,
                                           .write_piece = write_piece,
                                           .write_end = write_end,
                                           .write_usage = write_usage};
