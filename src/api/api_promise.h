/* api_promise: what the engine promised or refused, as clients read it: headers, faults, and the reply of /v1/estimate.
 *
 * Thread: io. */
#ifndef KVICK_API_API_PROMISE_H
#define KVICK_API_API_PROMISE_H

#include "api/api_call.h"

/* The header x-kvick-deadline-ms: how long after its arrival the first token is worth something. 0: not given.
 * False: fault is set. */
WARN_UNUSED bool api_promise_read_deadline(const struct http_exchange *exchange, int64_t *out_deadline_ms,
                                           struct api_fault *fault);

/* X-Kvick-Ttft-Estimate-Ms, from the request's arrival, and Server-Timing: the parts that are known by now. */
void api_promise_set_headers(const struct api_call *call);

/* A REFUSED event: whose fault it is, and when to come again. */
void api_promise_refuse(struct api_fault *fault, const struct event *event);

/* The body of /v1/estimate. Errors: those of json_write. */
WARN_UNUSED enum status api_promise_write_estimate(const struct api_call *call, struct str *out);

#endif
