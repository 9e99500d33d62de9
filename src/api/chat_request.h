/* chat_request: the JSON of /v1/chat/completions -> a prompt.
 *
 * Checked here: what the template does not look at. Messages, tools and contents are the template's business; what it
 * cannot take comes back as a fault with its own words. Thread: io. */
#ifndef KVICK_API_CHAT_REQUEST_H
#define KVICK_API_CHAT_REQUEST_H

#include "api/api_request.h"

/* The prompt of a chat is the request itself, as text for the template. Also for other routes that say the same. */
WARN_UNUSED bool chat_request_read_prompts(struct api_request *request, struct api_fault *fault);

#endif
