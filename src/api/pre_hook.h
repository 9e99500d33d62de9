/* pre_hook: a guardrail that is asked about every prompt before anything is computed.
 *
 * It is a service of its own (http_peer), asked once for each request with a JSON object:
 *   {"id", "route", "model", "key": its name or null, "stream", "texts": [what the model would read, one for each
 * prompt], "messages" | "prompt" | "input": as they were asked} and answers {"action": "pass"}, {"action": "refuse",
 * "reason": TEXT} or {"action": "replace", "messages" | "prompt" | "input": instead}. What it replaces is read as if
 * the client had sent it: a text of its own can forge no turn. Its time is a part of preprocess. When it does not
 * answer as it should, the request passes or fails, as was chosen. Thread: io, except pre_hook_question.   Memory:
 * max_asks questions. */
#ifndef KVICK_API_PRE_HOOK_H
#define KVICK_API_PRE_HOOK_H

#include "api/api_call.h"

struct pre_hook;

struct pre_hook_options {
    const char *address;
    int timeout_ms;
    bool lets_pass; /* when it fails */
    int max_asks;
};

/* Errors: those of http_peer_open. */
WARN_UNUSED enum status pre_hook_create(struct pre_hook **out_hook, struct http_server *server,
                                        const struct pre_hook_options *options, struct status_note *note);
void pre_hook_destroy(struct pre_hook **hook);

/* The question about a call with ids; mem. NULL: no memory. Thread: the worker, while the call is its own. */
WARN_UNUSED char *pre_hook_question(const struct api_call *call, size_t *out_n_bytes);

/* Ends in api_gate: on, anew with another text, or out. */
void pre_hook_ask(struct pre_hook *hook, struct api_call *call);

/* The client is gone: nothing is waited for. */
void pre_hook_drop(struct api_call *call);

/* How long it takes as a rule: nineteen of twenty of the last answers came sooner. */
int64_t pre_hook_expected_ns(const struct pre_hook *hook);

/* Appends kvick_pre_hook_*. Errors: those of str_append. */
WARN_UNUSED enum status pre_hook_write_metrics(const struct pre_hook *hook, const char *model_name, struct str *out);

#endif
