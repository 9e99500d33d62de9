/* grammar_request: what form of answer a request demands: response_format, structured_outputs, or a forced tool call.
 *
 * Here only the wish is read; grammar says on the tokenize thread whether it can be honoured. Thread: io.
 * Source: OpenAI's API with vLLM's additions. */
#ifndef KVICK_API_GRAMMAR_REQUEST_H
#define KVICK_API_GRAMMAR_REQUEST_H

#include "api/api_params.h"

/* Sets params->grammar, grammar_kind, grammar_field and is_call_forced. False: fault is set. */
WARN_UNUSED bool grammar_request_read(struct api_params *params, const json_t *json, enum api_kind kind,
                                      struct api_fault *fault);

/* The wish as the text that grammar_create takes; mem. NULL: no memory. */
WARN_UNUSED char *grammar_request_text(const struct api_params *params, size_t *out_n_bytes);

#endif
