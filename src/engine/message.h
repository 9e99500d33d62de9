/* message: everything that crosses between the engine thread and its clients.
 *
 * A request struct travels to the engine by the inbox and home by its last event (REFUSED or FINISHED); in between it
 * is the engine's and the client may touch nothing in it. Who made it frees it. */
#ifndef KVICK_ENGINE_MESSAGE_H
#define KVICK_ENGINE_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/phase_stats.h"
#include "engine/sampler.h"
#include "kvcache/prefix_index.h"

#define REQUEST_MAX_STOP_TOKENS 16

enum finish_reason {
    FINISH_STOP,   /* a stop token was sampled; it is counted, but no event tells of it */
    FINISH_LENGTH, /* max_new tokens, or nothing to sample */
    FINISH_CANCELLED
};

enum request_class { REQUEST_INTERACTIVE, REQUEST_BATCH, REQUEST_N_CLASSES };

struct request {
    uint64_t id;      /* set by engine_client_submit */
    uint32_t *tokens; /* [n_prompt + max_new], the prompt in front; the engine appends */
    int n_prompt, max_new;
    struct sampling sampling;
    uint32_t stop_tokens[REQUEST_MAX_STOP_TOKENS];
    int n_stop_tokens;
    bool has_cache;          /* may use and fill the prefix cache */
    struct prefix_salt salt; /* whose prefixes it may meet; all zero: everybody's */
    /* What the scheduler goes by. */
    enum request_class class_;
    uint64_t tenant_id;  /* 0: no tenant */
    int tenant_weight;   /* share of the tenant beside others; 0 counts as 1 */
    int priority;        /* within class and tenant, the lower the earlier */
    int64_t deadline_ns; /* of the first token, by clock_now_ns; 0: none */
    /* Logits of prompt positions [logits_from, n_prompt): [n_prompt - logits_from][n_vocab]; NULL: none wanted */
    float *logits;
    int logits_from;
    /* Filled on the way home. */
    struct phase_stats stats;
    struct status_note note; /* why it was refused */
};

enum command_kind { COMMAND_SUBMIT, COMMAND_CANCEL, COMMAND_STOP_ENGINE };

struct command_message {
    enum command_kind kind;
    struct request *request; /* SUBMIT */
    uint64_t request_id;     /* CANCEL */
};

enum event_kind { EVENT_ADMITTED, EVENT_REFUSED, EVENT_TOKEN, EVENT_FINISHED };

struct event {
    enum event_kind kind;
    uint64_t request_id;
    uint32_t token;            /* TOKEN */
    enum finish_reason reason; /* FINISHED */
    enum status status;        /* REFUSED */
    struct request *request;   /* REFUSED, FINISHED: it comes home */
};

#endif
