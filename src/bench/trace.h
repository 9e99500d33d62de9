/* trace: the requests of a workload as a file tells them (docs/formats/trace.md), and the token ids they stand for.
 *
 * Thread: any, const once read.   Memory: all of it at read; bounded by TRACE_MAX_*. */
#ifndef KVICK_BENCH_TRACE_H
#define KVICK_BENCH_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/message.h"

#define TRACE_MAX_REQUESTS 1000000
#define TRACE_MAX_TOKENS (1 << 24)     /* of one request */
#define TRACE_MAX_LINE_BYTES (1 << 26) /* a line with ids is long */
#define TRACE_MAX_NAME_BYTES 64        /* name, tenant, label: with the final NUL */

struct trace_request {
    double arrival_ms;       /* from the start, or from the end of request `after` */
    int after;               /* index of the request whose prompt and answer it continues; -1: none */
    uint32_t *ids;           /* [n_own] as given; NULL: made from the line's number */
    int n_own;               /* prompt tokens of its own; those of `after` come before */
    int shared_id, n_shared; /* its first n_shared of n_own tokens are those of a text that others have too */
    int n_prompt;            /* in all */
    int n_output;
    enum request_class class_;
    int priority, tenant_weight; /* as in struct request */
    char tenant[TRACE_MAX_NAME_BYTES], label[TRACE_MAX_NAME_BYTES];
    bool has_deadline, has_cancel;
    double deadline_ms, deadline_solo_x; /* first token due at arrival + deadline_ms + x * predicted time alone */
    double cancel_ms;                    /* after arrival */
};

struct trace {
    char name[TRACE_MAX_NAME_BYTES];
    double load; /* > 0: arrivals are scaled so that predicted work / time between arrivals is this; 0: as written */
    struct trace_request *requests; /* [n_requests], ascending arrival among those without `after` */
    int n_requests;
    int max_context; /* prompt plus answer of the longest */
};

/* Errors: STATUS_IO, STATUS_FORMAT with line number and field in note, STATUS_LIMIT, STATUS_NOMEM. */
WARN_UNUSED enum status trace_read(struct trace *trace, const char *path, struct status_note *note);
void trace_deinit(struct trace *trace);

/* The request's own tokens, those after what it continues.   out: [n_own]. Ids given in the file must be below n_vocab:
 * trace_check_ids. */
void trace_own_tokens(const struct trace *trace, int request_idx, int n_vocab, uint32_t *out);

/* A number for the tenant's name; 0 without one. */
uint64_t trace_tenant_id(const struct trace_request *request);

/* Errors: STATUS_INVALID with the line for an id that the model does not have. */
WARN_UNUSED enum status trace_check_ids(const struct trace *trace, int n_vocab, struct status_note *note);

#endif
