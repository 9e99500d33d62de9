/* completion_request: the JSON of /v1/completions -> prompts.
 *
 * A prompt is a text, ids, or a list of either. Its text may hold special tokens, which become those tokens: who writes
 * a raw prompt writes turns by hand. Thread: io. */
#ifndef KVICK_API_COMPLETION_REQUEST_H
#define KVICK_API_COMPLETION_REQUEST_H

#include "api/api_request.h"

/* The prompts under name: [*out_n], mem. NULL: fault is set. */
WARN_UNUSED struct api_prompt *completion_request_prompts(const json_t *json, const char *name, int n_vocab,
                                                          int max_ids, int *out_n, struct api_fault *fault);

/* Those under "prompt", into a request. */
WARN_UNUSED bool completion_request_read_prompts(struct api_request *request, struct api_fault *fault);

/* Likewise under name. */
WARN_UNUSED bool completion_request_read(struct api_request *request, const char *name, struct api_fault *fault);

#endif
