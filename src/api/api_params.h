/* api_params: what a client may ask for beside the prompt, the same for chat and for completions.
 *
 * Every value is checked here, before anything is computed; what is not honoured is refused by name, never ignored in
 * silence, unless clients send it as a matter of course (user, metadata, store, ...).
 * Thread: event loop.   Memory: texts are borrowed from the request's JSON. */
#ifndef KVICK_API_API_PARAMS_H
#define KVICK_API_API_PARAMS_H

#include "api/json_read.h"
#include "chat/stop_match.h"
#include "engine/message.h"
#include "grammar/grammar.h"

#define API_MAX_STOPS 64
#define API_MAX_STOP_BYTES 4096
#define API_MAX_CHOICES 16
#define API_MAX_SALT_BYTES 1024

struct api_params {
    int n;
    int64_t max_tokens; /* -1: as many as fit */
    struct sampling sampling;
    bool has_seed;
    struct logit_bias *biases; /* [sampling.n_biases], mem */
    struct stop_string stops[API_MAX_STOPS];
    int n_stops;
    bool keeps_stop;
    uint32_t stop_ids[REQUEST_MAX_STOP_TOKENS];
    int n_stop_ids;
    int64_t min_tokens;
    bool ignore_eos;
    bool has_logprobs;
    int n_top_logprobs;
    bool shows_special; /* skip_special_tokens: false */
    bool is_stream, has_usage_chunk, has_continuous_usage;
    bool returns_ids;
    bool has_cache_off;
    enum request_class class_;
    int priority;
    const char *salt; /* NULL: none */
    size_t n_salt;
    const char *model; /* NULL: none */
    size_t n_model;
    bool wants_phases;   /* the table of phases in usage */
    bool wants_progress; /* of the prompt, in a stream */
    enum grammar_kind grammar_kind;
    json_t *grammar;           /* owned; NULL: none */
    const char *grammar_field; /* that demanded it */
    bool is_call_forced;       /* it is the schema of a tool call */
    bool has_one_call;         /* parallel_tool_calls: false */
};

enum api_kind { API_CHAT, API_COMPLETION, API_EMBEDDING };

/* n_vocab: for ids. False: fault is set. api_params_deinit in any case. */
WARN_UNUSED bool api_params_read(struct api_params *params, const json_t *request, enum api_kind kind, int n_vocab,
                                 struct api_fault *fault);
void api_params_deinit(struct api_params *params);

#endif
