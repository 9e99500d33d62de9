#include "api/api_response.h"
#include "api/chat_request.h"
#include "api/completion_request.h"

/* The JSON of /v1/cache/warm -> a prompt that is computed and kept. It says the prefix in the words of a chat
 * ("messages") or of a completion ("prompt"), and how long it must stay: "pin" (default true), "ttl_s".
 * Nothing is sampled: a wish about the answer makes no sense and is refused. */

#define DEFAULT_TTL_S 300
#define MAX_TTL_S 86400

static bool refuse_answers(const struct api_params *params, struct api_fault *fault) {
    const char *name = params->n > 1            ? "n"
                       : params->is_stream      ? "stream"
                       : params->grammar        ? params->grammar_field
                       : params->has_logprobs   ? "logprobs"
                       : params->max_tokens > 0 ? "max_tokens"
                       : params->min_tokens > 0 ? "min_tokens"
                       : params->has_cache_off  ? "cache_prompt"
                                                : NULL;
    if (!name) return true;
    return api_fault_set(fault, 400, "unsupported_parameter", name,
                         "'%s' makes no sense here: a prefix is computed, "
                         "and no answer",
                         name);
}

static bool check(struct api_request *request, struct api_fault *fault) {
    bool is_pinned = true;
    int64_t ttl_s = DEFAULT_TTL_S;
    if (!json_read_field(request->json, "max_tokens")) request->params.max_tokens = 0;
    if (!refuse_answers(&request->params, fault) || !json_read_flag(request->json, "pin", &is_pinned, fault) ||
        !json_read_int(request->json, "ttl_s", 1, MAX_TTL_S, &ttl_s, fault))
        return false;
    if (!is_pinned && json_read_field(request->json, "ttl_s"))
        return api_fault_set(fault, 400, NULL, "ttl_s", "'ttl_s' needs 'pin' to be true");
    if (!request->api->options.has_prefix_cache)
        return api_fault_set(fault, 400, "no_prefix_cache", NULL, "the server runs without a prefix cache");
    request->params.max_tokens = 0;
    request->extras.pin_ns = is_pinned ? ttl_s * 1000000000 : 0;
    return true;
}

const struct api_ask warm_request_chat = {
    .response = &warm_response_chat, .check = check, .read_prompts = chat_request_read_prompts};
const struct api_ask warm_request_text = {
    .response = &warm_response_text, .check = check, .read_prompts = completion_request_read_prompts};
