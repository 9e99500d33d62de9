/* api_call: one request to the API from its bytes to the last byte of its answer.
 *
 * A chat has one prompt, a completion may have several; every prompt is a request of its own to the engine, with n
 * choices. Life: opened by io; owned by the tokenize worker until each prompt has come back as a failure or by an event
 * of the engine; freed by io when all prompts are home. When the client leaves, exchange becomes NULL and whatever
 * still runs is cancelled; is_gone tells the worker. Thread: io, except what is said above. */
#ifndef KVICK_API_API_CALL_H
#define KVICK_API_API_CALL_H

#include <stdatomic.h>

#include "api/api_params.h"
#include "api/api_server.h"
#include "chat/answer_parse.h"
#include "tokenizer/detokenizer.h"

#define API_MAX_PROMPTS 64
#define API_ESTIMATE_PATH "/v1/estimate"

/* One answer while it grows. */
struct api_choice {
    struct detokenizer detokenizer;
    struct stop_match stop;
    struct answer_parse parse;
    struct answer answer; /* what is certain */
    int n_reasoning_tokens;
    int n_blocks; /* of a stream of blocks: parts of the answer that have begun there; the last is open (answer_blocks)
                   */
    int n_events; /* of a stream that numbers them */
    bool is_complete; /* no more is wanted */
    int n_tokens;     /* until its end */
    bool is_over;
    const char *finish_reason; /* "stop", "length", "tool_calls"; NULL while it runs */
    bool has_started;          /* a stream's first chunk was sent */
    int64_t last_token_ns;     /* when its last token came, on this thread */
};

enum api_prompt_state { PROMPT_PENDING, PROMPT_ADMITTED, PROMPT_HOME };

struct api_prompt {
    struct api_call *call;
    enum api_prompt_state state;
    /* What was asked: text, or ids when text is NULL. Text lies in the call's json unless own_text. */
    const char *text;
    size_t n_bytes;
    char *own_text; /* mem; NULL: text is borrowed */
    uint32_t *ids;  /* mem */
    int n_ids;
    struct request *request;    /* NULL until the worker has its ids */
    struct grammar *grammar;    /* NULL: any text */
    struct api_choice *choices; /* [n] */
    int n_unacknowledged;
    int64_t tokenize_begin_ns;
    struct phase_stats before; /* its parts before the engine, for as long as the request is there */
    struct event told;         /* ADMITTED, REFUSED or ESTIMATED, when it has come */
};

struct api_response; /* how answers of this kind are written */
struct api_request;

/* Fields of single routes. */
struct api_extras {
    bool has_echo;  /* of a completion */
    bool is_plain;  /* of a completion: no BOS in front */
    bool is_base64; /* of an embedding */
    int64_t pin_ns; /* of a prefix that is kept warm; 0: it is not pinned */
};

/* Gets a whole answer in place of an exchange. body: borrowed for the call. */
typedef void api_take_fn(void *owner, const struct api_call *call, const char *body, size_t n_bytes);

/* Whose request it is, and where its answer goes. */
struct api_origin {
    struct http_exchange *exchange; /* NULL: take */
    api_take_fn *take;
    void *owner; /* take's */
    const char *path;
    int key_idx; /* -1: no key */
    int64_t received_ns;
    int64_t read_ns; /* its last byte; 0: nobody sent it */
    bool is_batch;   /* of that class, whatever it says */
};

struct api_call {
    struct api_server *api;
    struct api_call *next, *prev;
    const struct api_response *response;
    struct http_exchange *exchange; /* NULL: the client is gone, or has its answer, or there is take */
    api_take_fn *take;              /* NULL: it has its answer, or there is an exchange */
    void *taker;
    atomic_bool is_gone;
    json_t *json; /* params and prompts point into it */
    struct api_params params;
    enum api_kind kind;
    struct api_extras extras;
    struct api_prompt *prompts; /* [n_prompts] */
    int n_prompts, n_home;
    int http_code; /* replied; 0: the client left before */
    bool was_left; /* the client left before its answer was whole */
    char path[64], traceparent[64];
    struct api_fault fault; /* the first one */
    int key_idx;
    struct api_key_terms terms; /* of its key, as they were when it started */
    char id[API_MAX_ID_BYTES];
    int64_t created_s;
    int64_t received_ns, read_ns, parsed_ns;
    int64_t ready_ns; /* its prompts had ids, and it stopped at the gate; 0: it did not */
    /* At the gate (api_gate). */
    bool is_cleared; /* the guardrail need not be asked again */
    char *question;  /* mem; what it is asked; NULL: nothing */
    size_t n_question;
    struct http_ask *ask;       /* while it is asked */
    struct app_redis_get *look; /* while the app cache is */
    bool is_recorded;           /* the answer will be kept */
    struct str record;          /* of it */
    uint8_t cache_key[HASH_SHA256_BYTES];
    int64_t deadline_ns;   /* of the first token, by clock_now_ns; 0: none */
    bool has_slo_deadline; /* it is that of its class */
    bool is_estimate;      /* it is only asked when the first token would come */
};

/* Takes the exchange and what request holds. NULL: no memory, or too many calls; fault is set, and both are still the
 * caller's. */
WARN_UNUSED struct api_call *api_call_open(const struct api_origin *origin, struct api_request *request,
                                           const struct api_response *response, struct api_fault *fault);

/* To the worker. */
void api_call_start(struct api_call *call);

/* What came back. */
void api_call_on_failure(struct api_call *call, int prompt_idx);
void api_call_on_event(const struct event *event);

/* Prompts of all calls that the engine has not answered yet. */
int api_call_n_pending(const struct api_server *api);

/* Every 100 ms: readers that were slow may have caught up. */
void api_call_tick(struct api_call *call);

/* The server ends: whatever runs is cancelled. */
void api_call_cancel(struct api_call *call);

/* Frees it; nothing of it may run any more. */
void api_call_close(struct api_call *call);

/* What was made of the prompt's text is freed: it will have another. */
void api_call_reset_prompt(struct api_prompt *prompt);

/* prompts: [n_prompts] of a call, or of a request that became none; mem. NULL is nothing. */
void api_call_free_prompts(struct api_prompt *prompts, int n_prompts, int n_choices);

/* Index of an answer among all of the call. */
int api_call_choice_idx(const struct api_prompt *prompt, int choice);

/* Prompt plus answer that a key may have. Thread: any. */
int api_call_max_context(const struct api_server *api, const struct api_key_terms *terms);

/* Sums over the prompts that the engine has or had. */
struct api_usage {
    int n_prompt, n_cached, n_completion, n_reasoning; /* reasoning: of the completion */
};
struct api_usage api_call_usage(const struct api_call *call);

#endif
