/* message: everything that crosses between the engine thread and its clients.
 *
 * A request struct travels to the engine by the inbox and home by its last event (REFUSED or FINISHED); in between it
 * is the engine's, and the client may read the tokens and log-probabilities of which an event told, and touch nothing
 * else. Who made it frees it, and what it points to lives as long. */
#ifndef KVICK_ENGINE_MESSAGE_H
#define KVICK_ENGINE_MESSAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/seqlock.h"
#include "base/status.h"
#include "engine/block_map.h"
#include "engine/phase_stats.h"
#include "engine/sampler.h"
#include "kvcache/prefix_index.h"
#include "sched/admission.h"

#define REQUEST_MAX_STOP_TOKENS 32
#define REQUEST_MAX_CHOICES 128

enum finish_reason {
    FINISH_STOP,      /* a stop token was sampled, or no token was allowed; it is counted, but no event tells of it */
    FINISH_LENGTH,    /* max_new tokens, or nothing to sample */
    FINISH_CANCELLED, /* by the client, or with the engine */
    FINISH_UNREAD     /* the client did not read for max_blocked_ns */
};

/* In the order of enum terms_class. */
enum request_class { REQUEST_INTERACTIVE, REQUEST_BATCH, REQUEST_N_CLASSES };

static inline const char *message_class_name(enum request_class class_) {
    return class_ == REQUEST_BATCH ? "batch" : "interactive";
}

enum request_pooling { POOLING_NONE, POOLING_MEAN, POOLING_LAST };

/* Which ids may come next: the seam for grammars. Called on the engine's thread between forward and sampling. */
struct token_mask {
    /* Sets the bits of the allowed ids (see sampler_ask); words come as zeros. False: all are allowed. */
    bool (*fill)(void *arg, uint32_t choice, uint32_t *words);
    void (*accept)(void *arg, uint32_t choice, uint32_t token); /* the choice's next token, stop tokens too */
    void *arg;
};

struct request_choice {
    enum finish_reason reason;
    int n_new_tokens;
};

/* What of a prompt is pinned, and what of all. */
struct request_pin {
    int n_tokens;                 /* 0: nothing */
    bool is_full;                 /* more may not be pinned now */
    int n_all_blocks, max_blocks; /* of the first group */
};

struct request {
    uint64_t id; /* set by engine_client_submit */
    void *owner; /* the client's own; every event carries it */

    /* What is asked. */
    uint32_t *tokens; /* [n_choices][n_prompt + max_new], the prompt in front of each; the engine appends */
    int n_prompt, max_new;
    int n_choices; /* answers to the one prompt, computed once; 1.. */
    struct sampling sampling;
    uint32_t stop_tokens[REQUEST_MAX_STOP_TOKENS];
    int n_stop_tokens;
    int n_end_tokens;        /* of them, the first ones, which are the model's own */
    bool ignore_eos;         /* those do not end the answer */
    int min_new;             /* tokens before any stop token may come */
    struct token_mask mask;  /* fill NULL: none */
    bool has_cache;          /* may use and fill the prefix cache */
    struct prefix_salt salt; /* whose prefixes it may meet; all zero: everybody's */

    /* What comes beside the tokens; NULL: not wanted. None of the prompt's results comes from the cache. */
    float *logits; /* of prompt positions [logits_from, n_prompt): [n_prompt - logits_from][n_vocab] */
    int logits_from;
    int n_top_logprobs;
    struct token_logprob *logprobs;        /* [n_choices][max_new][1 + n_top_logprobs], as sampler_logprobs */
    struct token_logprob *prompt_logprobs; /* [n_prompt][1 + n_top_logprobs], none for the first token */
    enum request_pooling pooling;          /* of the prompt's last hidden states, after the output norm; max_new is 0 */
    bool is_normalised;                    /* to length 1 */
    float *embedding;                      /* [d_model] with a pooling */

    /* What the scheduler goes by. */
    enum request_class class_;
    uint64_t tenant_id;  /* 0: no tenant */
    int tenant_weight;   /* share of the tenant beside others; 0 counts as 1 */
    int priority;        /* within class and tenant, the lower the earlier */
    int64_t deadline_ns; /* of the first token, by clock_now_ns; 0: none */

    int64_t pin_ns;      /* its prompt's blocks stay for so long when it is through (kv_pins); 0: like any */
    bool tells_progress; /* an event for each step that computes a part of its prompt */

    /* Back-pressure: it is not planned while max_unread of its tokens have not been acknowledged. */
    int max_unread;         /* 0: never */
    int64_t max_blocked_ns; /* it is cut after so long; 0: never */
    atomic_int n_read;      /* by engine_client_acknowledge; relaxed: only a count */

    /* Filled on the way home; a copy of the stats as of the last step can be read meanwhile (engine_client_look). */
    struct phase_stats stats;
    struct seqlock shown_lock;
    _Atomic uint64_t shown[SEQLOCK_WORDS(struct phase_stats)];
    struct request_choice choices[REQUEST_MAX_CHOICES]; /* [n_choices] */
    struct request_pin pin;
    struct status_note note; /* why it was refused or cut */

    /* The engine's own. */
    int n_unfinished;  /* choices */
    int n_told;        /* tokens of all choices */
    bool is_forked;    /* the choices beside the first have sequences of their own */
    int64_t last_step; /* that had rows of it */
};

/* Makes the stats readable for others. Thread: whose they are. */
static inline void message_show(struct request *request) {
    seqlock_write(&request->shown_lock, request->shown, &request->stats, sizeof request->stats);
}

/* The tokens of a choice, the prompt in front. */
static inline uint32_t *message_tokens(const struct request *request, uint32_t choice) {
    return request->tokens + (size_t)choice * ((size_t)request->n_prompt + (size_t)request->max_new);
}

/* The first prompt position whose logits are wanted; n_prompt if none. */
static inline int message_logits_from(const struct request *request) {
    if (request->prompt_logprobs) return 0;
    return request->logits ? request->logits_from : request->n_prompt;
}

/* ASK: what would be told if the request were submitted now; it comes home with ESTIMATED or REFUSED. */
enum command_kind { COMMAND_SUBMIT, COMMAND_ASK, COMMAND_CANCEL, COMMAND_MAP, COMMAND_CHUNK, COMMAND_STOP_ENGINE };

struct command_message {
    enum command_kind kind;
    struct request *request; /* SUBMIT, ASK */
    uint64_t request_id;     /* CANCEL */
    struct block_map *map;   /* MAP: to be filled */
    bool is_chunked;         /* CHUNK: how prompts are run from now on */
};

enum event_kind {
    EVENT_ADMITTED,
    EVENT_REFUSED,
    EVENT_ESTIMATED,
    EVENT_PROGRESS, /* of the prompt, while it is computed */
    EVENT_TOKEN,
    EVENT_CHOICE_FINISHED,
    EVENT_FINISHED
};

struct event {
    enum event_kind kind;
    uint64_t request_id;
    void *owner;               /* the request's */
    uint32_t choice;           /* TOKEN, CHOICE_FINISHED */
    uint32_t token;            /* TOKEN */
    int token_idx;             /* TOKEN: its number in the answer of the choice */
    int n_done, n_cached;      /* PROGRESS: tokens of the prompt that are computed or found, and of them the latter */
    enum finish_reason reason; /* CHOICE_FINISHED; FINISHED: of the choice that was last */
    enum status status;        /* REFUSED */
    /* REFUSED: by admission, or ADMISSION_ADMITTED if the request itself makes no sense. */
    enum admission_reason refusal;
    int64_t retry_after_ns;  /* REFUSED: when it would be taken, as far as can be seen; 0: never */
    int64_t told_ns;         /* ADMITTED, ESTIMATED, REFUSED: when that was decided; TOKEN: when it was sampled */
    int64_t estimate_ns;     /* likewise: from then to its first token; 0: not worked out */
    struct request *request; /* REFUSED, ESTIMATED, FINISHED: it comes home */
};

#endif
