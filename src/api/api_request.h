/* api_request: a request while it is read, the same for every route that makes tokens: parse, check, prompts, call.
 *
 * What differs between routes stands in a row of theirs (struct api_ask), beside the answer's form (api_response).
 * Thread: io.   Memory: the call takes all of it; without one api_request_deinit frees it. */
#ifndef KVICK_API_API_REQUEST_H
#define KVICK_API_API_REQUEST_H

#include "api/api_call.h"

struct api_request {
    struct api_server *api;
    const char *body; /* [n_bytes] that json was read from; NULL: json is a translation of it */
    size_t n_bytes;
    json_t *json; /* in OpenAI's form; params and prompts may point into it */
    struct api_params params;
    struct api_prompt *prompts; /* [n_prompts] */
    int n_prompts;
    int max_ids; /* of a prompt that is given as ids */
    struct api_extras extras;
};

/* One route's own part. */
struct api_ask {
    const struct api_response *response;
    /* The request in OpenAI's form, the caller's reference; NULL: fault is set. No function: it is in that form. */
    json_t *(*translate)(const json_t *body, struct api_fault *fault);
    /* Fields that api_params does not know. No function: there are none. */
    bool (*check)(struct api_request *request, struct api_fault *fault);
    /* Fills prompts and n_prompts. */
    bool (*read_prompts)(struct api_request *request, struct api_fault *fault);
};

/* A field of a translation: what the answer repeats of the request as it came. */
#define API_REQUEST_ECHO "kvick_echo"

extern const struct api_ask chat_request, completion_request, embedding_request, messages_request, responses_request;
/* Prefixes to be kept warm: a chat's, a text's. */
extern const struct api_ask warm_request_chat, warm_request_text;

/* Reads the body as far as its JSON. False: fault is set. api_request_deinit in any case. */
WARN_UNUSED bool api_request_parse(struct api_request *request, struct api_server *api, const struct api_ask *ask,
                                   const char *body, size_t n_bytes, struct api_fault *fault);
void api_request_deinit(struct api_request *request);

/* Reads and starts a call for origin. False: fault is set and nothing runs. */
WARN_UNUSED bool api_request_start(struct api_server *api, const struct api_origin *origin, const struct api_ask *ask,
                                   const char *body, size_t n_bytes, struct api_fault *fault);

/* Takes the exchange: a call runs, or the fault was replied. */
void api_request_handle(struct api_server *api, struct http_exchange *exchange, const struct api_ask *ask);

/* Of the route at this path; NULL: none that makes tokens or vectors. */
const struct api_ask *api_request_ask_of(const char *path);

/* Whether a body, which need not be sound, is that of a chat: what routes for both kinds go by. */
bool api_request_is_chat(const char *body, size_t n_bytes);

#endif
