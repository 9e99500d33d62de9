/* text_request: what becomes of a text before the model sees it: /tokenize, /detokenize, the renders of chats and
 * completions, and Anthropic's count of tokens. Nothing is computed.
 *
 * A text is at most TEXT_REQUEST_MAX_BYTES, since this runs on the loop. Thread: io. */
#ifndef KVICK_API_TEXT_REQUEST_H
#define KVICK_API_TEXT_REQUEST_H

#include "http/http_routes.h"

#define TEXT_REQUEST_MAX_BYTES ((size_t)256 << 10)

/* http_route_fn, each of which takes the exchange. owner: the api_server. */
void text_request_tokenize(void *owner, struct http_exchange *exchange, const char *parameter);
void text_request_detokenize(void *owner, struct http_exchange *exchange, const char *parameter);
void text_request_render(void *owner, struct http_exchange *exchange, const char *parameter);
void text_request_render_chat(void *owner, struct http_exchange *exchange, const char *parameter);
void text_request_count(void *owner, struct http_exchange *exchange, const char *parameter);

#endif
