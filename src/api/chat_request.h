/* chat_request: the JSON of /v1/chat/completions -> a call.
 *
 * Checked here: what the template does not look at. Messages, tools and contents are the template's business; what it
 * cannot take comes back as a fault with its own words. Thread: io. */
#ifndef KVICK_API_CHAT_REQUEST_H
#define KVICK_API_CHAT_REQUEST_H

#include "api/api_call.h"

/* Takes the exchange: the call runs, or the fault was replied. */
void chat_request_handle(struct api_server *api, struct http_exchange *exchange, int key_idx);

/* The prompt of a chat, for routes that only want its ids: [1], mem. NULL: fault is set. */
WARN_UNUSED struct api_prompt *chat_request_prompt(const struct api_server *api, const json_t *json, const char *body,
                                                   size_t n_bytes, struct api_fault *fault);

#endif
