/* embedding_request: the JSON of /v1/embeddings -> a call.
 *
 * A vector is the mean of the prompt's last hidden states, of length 1. An input is a text, ids, or a list of either;
 * special tokens in a text stay text. Thread: io.   Source: OpenAI's API. */
#ifndef KVICK_API_EMBEDDING_REQUEST_H
#define KVICK_API_EMBEDDING_REQUEST_H

#include "api/api_call.h"

/* Takes the exchange: the call runs, or the fault was replied. */
void embedding_request_handle(struct api_server *api, struct http_exchange *exchange, int key_idx);

#endif
