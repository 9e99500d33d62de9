/* load_replay: the requests of a trace, sent to a server over HTTP, at their times (open loop) or as soon as one of a
 * fixed number of clients is free (closed loop).
 *
 * Prompts without ids are made of words, since made-up ids are not everybody's. What continues another request sends
 * that one's turns and answer before its own. Clients leave at cancel_ms. Tenants, priorities and deadlines are not
 * sent: they are a matter of keys and headers, which every server has its own of.
 *
 * Thread: the caller's.   Memory: texts, until the end. */
#ifndef KVICK_BENCH_LOAD_REPLAY_H
#define KVICK_BENCH_LOAD_REPLAY_H

#include "bench/load_client.h"
#include "bench/outcomes.h"

#define LOAD_REPLAY_MAX_CLIENTS 256

struct load_replay_options {
    double scale;           /* of arrivals and pauses; 1: as written */
    int n_clients;          /* > 0: closed loop, arrivals are not looked at; 0: open loop */
    double tokens_per_word; /* of the server's vocabulary */
    uint64_t seed;          /* other texts for another seed: the server may remember */
    int timeout_ms;         /* of a request */
};

/* outcomes: initialised for the trace. A request that fails otherwise than by a refusal counts as cancelled too, with
 * its note. *out_n_failed: how many did. Errors: STATUS_NOMEM, STATUS_IO, STATUS_INVALID for ids where
 * they cannot be sent. */
WARN_UNUSED enum status load_replay_run(const struct load_target *target, const struct load_replay_options *options,
                                        struct outcomes *outcomes, int *out_n_failed, struct status_note *note);

#endif
