#include <string.h>

#include "api/api_response.h"

/* The answers of /v1/completions.   Source: OpenAI's API with vLLM's additions. */

#define OBJECT "text_completion"
#define MAX_TOKEN_BYTES 65536

/* Tokens in a row: first those of the prompt [n_before], then the answer's. */
struct told {
    const struct api_call *call;
    const struct api_prompt *prompt;
    int choice, n_before;
};

/* Of token i: itself first, then the likeliest. NULL: the first token of all has none. */
static const struct token_logprob *logprobs_at(const struct told *told, int i) {
    const struct request *request = told->prompt->request;
    size_t n_each = (size_t)(1 + request->n_top_logprobs);
    if (i == 0 && told->n_before) return NULL;
    if (i < told->n_before) return request->prompt_logprobs + (size_t)i * n_each;
    return request->logprobs +
           ((size_t)told->choice * (size_t)request->max_new + (size_t)(i - told->n_before)) * n_each;
}

static uint32_t token_at(const struct told *told, int i) {
    return i < told->n_before ? told->prompt->ids[i] : logprobs_at(told, i)->id;
}

static void write_token_text(struct json_write *json, const struct api_call *call, uint32_t id, bool is_key) {
    struct str text;
    str_init(&text, MAX_TOKEN_BYTES);
    if (api_response_token_text(call->api, id, &text)) json->status = STATUS_NOMEM;
    json_write_text(json, text.ptr, text.n_bytes);
    str_deinit(&text);
    if (!is_key) return;
    /* A text as a key: the colon takes the comma's place. */
    if (!json->status) json->status = str_append(json->out, ":", 1);
    json->needs_comma = false;
}

static void write_token_logprobs(struct json_write *json, const struct told *told, int from, int to) {
    json_write_field_array(json, "token_logprobs");
    for (int i = from; i < to; i++) {
        const struct token_logprob *own = logprobs_at(told, i);
        if (own)
            json_write_real(json, api_response_logprob(own->logprob));
        else
            json_write_null(json);
    }
    json_write_end_array(json);
}

static void write_top_logprobs(struct json_write *json, const struct told *told, int from, int to) {
    json_write_field_array(json, "top_logprobs");
    for (int i = from; i < to; i++) {
        const struct token_logprob *all = logprobs_at(told, i);
        if (!all) {
            json_write_null(json);
            continue;
        }
        json_write_object(json);
        for (int t = 1; t <= told->prompt->request->n_top_logprobs; t++) {
            write_token_text(json, told->call, all[t].id, true);
            json_write_real(json, api_response_logprob(all[t].logprob));
        }
        json_write_end_object(json);
    }
    json_write_end_array(json);
}

/* {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of tokens [from, to) of an answer; has_echo: all of the
 * prompt's stand before, and then from is 0. */
static void write_logprobs(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                           int choice, int from, int to, bool has_echo) {
    bool counts_echo = call->extras.has_echo && prompt->request->prompt_logprobs;
    struct told told = {call, prompt, choice, counts_echo ? prompt->n_ids : 0};
    size_t offset = 0;
    json_write_key(json, "logprobs");
    if (!call->params.has_logprobs || !prompt->request->logprobs) {
        json_write_null(json);
        return;
    }
    from += has_echo ? 0 : told.n_before;
    to += told.n_before;
    json_write_object(json);
    json_write_field_array(json, "tokens");
    for (int i = from; i < to; i++) write_token_text(json, call, token_at(&told, i), false);
    json_write_end_array(json);
    write_token_logprobs(json, &told, from, to);
    write_top_logprobs(json, &told, from, to);
    json_write_field_array(json, "text_offset");
    for (int i = 0; i < to; i++) {
        size_t n_bytes;
        if (i >= from) json_write_int(json, (int64_t)offset);
        tokenizer_text_of(call->api->tokenizer, (int32_t)token_at(&told, i), &n_bytes);
        offset += n_bytes;
    }
    json_write_end_array(json);
    json_write_end_object(json);
}

/* The prompt's own text in front of an answer, if it is wanted. */
static enum status echo_into(const struct api_call *call, const struct api_prompt *prompt, struct str *text) {
    struct detokenizer detokenizer;
    enum status status = STATUS_OK;
    if (!call->extras.has_echo) return STATUS_OK;
    if (prompt->text) return str_append(text, prompt->text, prompt->n_bytes);
    detokenizer_init(&detokenizer, call->api->tokenizer, DETOKENIZER_AT_START | DETOKENIZER_SHOW_SPECIAL);
    for (int i = 0; !status && i < prompt->n_ids; i++)
        status = detokenizer_push(&detokenizer, (int32_t)prompt->ids[i], text);
    return status ? status : detokenizer_finish(&detokenizer, text);
}

static void write_choice(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                         int idx) {
    const struct api_choice *choice = &prompt->choices[idx];
    const struct request *request = prompt->request;
    struct str text;
    str_init(&text, (size_t)128 << 20);
    enum status status = echo_into(call, prompt, &text);
    if (!status) status = answer_join(&choice->answer, ANSWER_IS_TEXT, false, &text);
    if (status) json->status = status;
    json_write_object(json);
    json_write_field_int(json, "index", api_call_choice_idx(prompt, idx));
    json_write_field_str(json, "text", &text);
    str_deinit(&text);
    int n_told = api_response_n_told(prompt, idx);
    write_logprobs(json, call, prompt, idx, 0, n_told, call->extras.has_echo);
    json_write_field_text(json, "finish_reason", choice->finish_reason);
    api_response_write_stop_reason(json, choice);
    if (call->params.returns_ids) {
        api_response_write_ids(json, "token_ids", engine_client_answer(request, idx), n_told);
        api_response_write_ids(json, "prompt_token_ids", request->tokens, request->n_prompt);
    }
    json_write_end_object(json);
}

static enum status write_whole(const struct api_call *call, struct str *out) {
    struct json_write json;
    json_write_init(&json, out);
    api_response_write_head(&json, call, OBJECT);
    json_write_field_array(&json, "choices");
    for (int p = 0; p < call->n_prompts; p++)
        for (int i = 0; i < call->params.n; i++) write_choice(&json, call, &call->prompts[p], i);
    json_write_end_array(&json);
    api_response_write_usage(&json, call);
    json_write_end_object(&json);
    return json_write_finish(&json);
}

/* A chunk up to its one choice's fields. */
static void open_chunk(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                       int choice) {
    api_response_write_head(json, call, OBJECT);
    json_write_field_array(json, "choices");
    json_write_object(json);
    json_write_field_int(json, "index", api_call_choice_idx(prompt, choice));
}

#define NO_TOKEN (-1)
#define THE_ECHO (-2)

/* One chunk: text, log-probabilities of one token (or none, or the echo's), and the end if there is one. */
static enum status write_chunk(const struct api_call *call, const struct api_prompt *prompt, int idx,
                               const struct str *text, int token_idx, const char *finish_reason, struct str *out) {
    const struct api_choice *choice = &prompt->choices[idx];
    struct json_write json;
    api_response_begin_event(&json, out, NULL);
    open_chunk(&json, call, prompt, idx);
    json_write_key(&json, "text");
    json_write_text(&json, text ? text->ptr : "", text ? text->n_bytes : 0);
    if (token_idx >= 0)
        write_logprobs(&json, call, prompt, idx, token_idx, token_idx + 1, false);
    else if (token_idx == THE_ECHO)
        write_logprobs(&json, call, prompt, idx, 0, 0, true);
    else
        json_write_field_null(&json, "logprobs");
    if (finish_reason) {
        json_write_field_text(&json, "finish_reason", finish_reason);
        api_response_write_stop_reason(&json, choice);
    } else {
        json_write_field_null(&json, "finish_reason");
        json_write_field_null(&json, "stop_reason");
    }
    if (call->params.returns_ids) {
        if (token_idx >= 0)
            api_response_write_ids(&json, "token_ids", engine_client_answer(prompt->request, idx) + token_idx, 1);
        if (token_idx == 0)
            api_response_write_ids(&json, "prompt_token_ids", prompt->request->tokens, prompt->request->n_prompt);
    }
    json_write_end_object(&json);
    json_write_end_array(&json);
    if (call->params.has_continuous_usage)
        api_response_write_usage(&json, call);
    else if (call->params.has_usage_chunk)
        json_write_field_null(&json, "usage");
    json_write_end_object(&json);
    return api_response_end_event(&json);
}

/* The echo, before anything is computed, or with the log-probabilities of its tokens. */
static enum status write_first(const struct api_call *call, const struct api_prompt *prompt, int choice,
                               struct str *out) {
    struct str text;
    str_init(&text, (size_t)64 << 20);
    enum status status = echo_into(call, prompt, &text);
    if (!status) status = write_chunk(call, prompt, choice, &text, THE_ECHO, NULL, out);
    str_deinit(&text);
    return status;
}

static enum status write_piece(const struct api_call *call, struct api_prompt *prompt, int choice, int token_idx,
                               struct str *out) {
    struct str text;
    str_init(&text, ANSWER_MAX_BYTES);
    enum status status = answer_join(&prompt->choices[choice].answer, ANSWER_IS_TEXT, true, &text);
    if (!status) status = write_chunk(call, prompt, choice, &text, token_idx, NULL, out);
    str_deinit(&text);
    return status;
}

static enum status write_end(const struct api_call *call, struct api_prompt *prompt, int choice, struct str *out) {
    return write_chunk(call, prompt, choice, NULL, NO_TOKEN, prompt->choices[choice].finish_reason, out);
}

/* Empty text, so that who reads choices alone goes on as before. */
static enum status write_progress(const struct api_call *call, const struct api_prompt *prompt,
                                  const struct event *event, struct str *out) {
    struct json_write json;
    api_response_begin_event(&json, out, NULL);
    open_chunk(&json, call, prompt, 0);
    json_write_field_text(&json, "text", "");
    return api_response_end_progress(&json, call, prompt, event);
}

static enum status write_last(const struct api_call *call, struct str *out) {
    return api_response_write_last(call, OBJECT, out);
}

const struct api_response completion_response = {.id_prefix = "cmpl-",
                                                 .shape = API_OPENAI,
                                                 .kind = API_COMPLETION,
                                                 .write_whole = write_whole,
                                                 .write_first = write_first,
                                                 .write_piece = write_piece,
                                                 .write_end = write_end,
                                                 .write_last = write_last,
                                                 .write_progress = write_progress};
