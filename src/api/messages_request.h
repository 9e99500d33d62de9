/* messages_request: the JSON of Anthropic's /v1/messages -> a call, by way of the chat request that says the same.
 *
 * Templates and parameters know one form, OpenAI's; the answer is written in Anthropic's (messages_response).
 * Thread: io.   Source: Anthropic's API, as its Python client speaks it. */
#ifndef KVICK_API_MESSAGES_REQUEST_H
#define KVICK_API_MESSAGES_REQUEST_H

#include "api/api_call.h"

/* Takes the exchange: the call runs, or the fault was replied. */
void messages_request_handle(struct api_server *api, struct http_exchange *exchange, int key_idx);

/* The chat request that a request for messages stands for; the caller's reference. NULL: fault is set. */
WARN_UNUSED json_t *messages_request_to_chat(const json_t *json, struct api_fault *fault);

/* The prompt of such a request, for routes that only want its ids: [1], mem. NULL: fault is set. */
WARN_UNUSED struct api_prompt *messages_request_prompt(const struct api_server *api, const json_t *chat,
                                                       struct api_fault *fault);

#endif
