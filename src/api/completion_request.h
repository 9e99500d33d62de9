/* completion_request: the JSON of /v1/completions -> a call.
 *
 * A prompt is a text, ids, or a list of either. Its text may hold special tokens, which become those tokens: who writes
 * a raw prompt writes turns by hand. Thread: io. */
#ifndef KVICK_API_COMPLETION_REQUEST_H
#define KVICK_API_COMPLETION_REQUEST_H

#include "api/api_call.h"

/* Takes the exchange: the call runs, or the fault was replied. */
void completion_request_handle(struct api_server *api, struct http_exchange *exchange, int key_idx);

/* The prompts under name: [*out_n], mem. NULL: fault is set. */
WARN_UNUSED struct api_prompt *completion_request_prompts(const json_t *json, const char *name, int n_vocab,
                                                          int max_ids, int *out_n, struct api_fault *fault);

void completion_request_free_prompts(struct api_prompt *prompts, int n_prompts);

#endif
