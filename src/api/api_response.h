/* api_response: how the answers of one route are written; one implementation per shape of the wire.
 *
 * All append to out: JSON for a whole answer, events for a stream. Errors end the call. Thread: io. */
#ifndef KVICK_API_API_RESPONSE_H
#define KVICK_API_API_RESPONSE_H

#include "api/answer_blocks.h"
#include "api/api_call.h"
#include "base/json_write.h"

struct api_response {
    const char *id_prefix;
    enum api_shape shape;
    enum api_kind kind;
    const struct answer_blocks_form *blocks; /* of a stream that is a row of blocks; else NULL */

    /* The whole answer of a request that does not stream. */
    enum status (*write_whole)(const struct api_call *call, struct str *out);

    /* A stream, NULL where there is none: before a choice's first text, what is new of a choice, its end, and the end
     * of all with the usage. token_idx: -1 for text without a token. */
    enum status (*write_first)(const struct api_call *call, const struct api_prompt *prompt, int choice,
                               struct str *out);
    enum status (*write_piece)(const struct api_call *call, struct api_prompt *prompt, int choice, int token_idx,
                               struct str *out);
    enum status (*write_end)(const struct api_call *call, struct api_prompt *prompt, int choice, struct str *out);
    enum status (*write_last)(const struct api_call *call, struct str *out);

    /* How far the prompt is (EVENT_PROGRESS), between a stream's first event and its first text. NULL: the route
     * refuses return_progress. */
    enum status (*write_progress)(const struct api_call *call, const struct api_prompt *prompt,
                                  const struct event *event, struct str *out);
};

extern const struct api_response chat_response, completion_response, messages_response, embedding_response,
    responses_response;
extern const struct api_response warm_response_chat, warm_response_text;

/* An event of a stream around the JSON that is written between; name NULL: unnamed. */
void api_response_begin_event(struct json_write *json, struct str *out, const char *name);
WARN_UNUSED enum status api_response_end_event(struct json_write *json);

/* "usage": {...} with the phases if they are wanted. */
void api_response_write_usage(struct json_write *json, const struct api_call *call);

/* The table of a request's phases, as an object. */
void api_response_write_phases(struct json_write *json, const struct phase_stats *stats);

/* "kvick": the phases, once the call is home and if they are wanted; of several prompts a list of tables. */
void api_response_write_kvick(struct json_write *json, const struct api_call *call);

/* "prompt_progress": {total, cache, processed, time_ms}, in llama.cpp's words. */
void api_response_write_progress(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                                 const struct event *event);

/* The rest of a chunk in OpenAI's form, open within its one choice, that says it. */
WARN_UNUSED enum status api_response_end_progress(struct json_write *json, const struct api_call *call,
                                                  const struct api_prompt *prompt, const struct event *event);

/* Tokens of an answer that have text: a stop token at its end has none, and no place among the log-probabilities. */
int api_response_n_told(const struct api_prompt *prompt, int choice);

/* key: what a stream has not told of the part's text. */
void api_response_write_news(struct json_write *json, const char *key, const struct answer_part *part);

/* key: [ids] */
void api_response_write_ids(struct json_write *json, const char *key, const uint32_t *ids, int n);

/* "stop_reason": the stop string that ended the answer; null if it was a token or the limit. */
void api_response_write_stop_reason(struct json_write *json, const struct api_choice *choice);

/* What JSON can hold of a log-probability: no infinity. */
double api_response_logprob(float logprob);

/* Opens the object of an answer or a chunk of it in OpenAI's form: id, object, created, model. */
void api_response_write_head(struct json_write *json, const struct api_call *call, const char *object);

/* The last events of a stream in OpenAI's form: the chunk with the usage if it is wanted, and [DONE]. */
WARN_UNUSED enum status api_response_write_last(const struct api_call *call, const char *object, struct str *out);

/* {"token", "logprob", "bytes"[, "top_logprobs"]} of one token of the answer, in the form of chats. */
void api_response_write_logprob(struct json_write *json, const struct api_call *call, const struct api_prompt *prompt,
                                int choice, int token_idx);

/* The token's text as valid UTF-8, U+FFFD for what is none; out is cleared first. */
WARN_UNUSED enum status api_response_token_text(const struct api_server *api, uint32_t id, struct str *out);

#endif
