/* admission: says before any work whether a request is taken and when its first token will come.
 *
 * The estimate is a promise: policy holds the prompt's place, and who comes later and would make a promise late (by
 * more than ADMISSION_LATE_SHARE of it), or a deadline, is told a later time or refused. It comes from a forecast of
 * the queue and from what newcomers will most likely add to it (load). With POLICY_FCFS nothing is refused for its
 * time. Thread: the scheduler's.   Memory: sized at init. */
#ifndef KVICK_SCHED_ADMISSION_H
#define KVICK_SCHED_ADMISSION_H

#include "sched/forecast.h"
#include "sched/load.h"

#define ADMISSION_REASON_MAP(XX)                                                                                       \
    XX(ADMITTED, "admitted", "it is taken")                                                                            \
    XX(CONTEXT, "context", "prompt and answer are longer than the context")                                            \
    XX(POOL, "pool", "the KV cache is too small for it")                                                               \
    XX(INPUT_CAP, "input_cap", "the prompt is longer than its class allows")                                           \
    XX(QUEUE, "queue", "the queue is full")                                                                            \
    XX(TENANT_QUEUE, "tenant_queue", "the tenant's part of the queue is full")                                         \
    XX(WAIT, "wait", "it would wait longer than its class allows")                                                     \
    XX(DEADLINE, "deadline", "its first token would come after its deadline")                                          \
    XX(PROMISE, "promise", "it would make others late")

enum admission_reason {
#define XX(name, word, text) ADMISSION_##name,
    ADMISSION_REASON_MAP(XX)
#undef XX
        ADMISSION_N_REASONS
};

#define ADMISSION_LATE_SHARE 0.25
#define ADMISSION_LATE_FACTOR (1 + ADMISSION_LATE_SHARE)

struct admission_limits {
    int max_context;                          /* prompt plus answer */
    int max_prompt[TERMS_N_CLASSES];          /* tokens; 0: as the context */
    int max_waiting[TERMS_N_CLASSES];         /* prompts without a first token; 0: as many as there are sequences */
    int64_t max_estimate_ns[TERMS_N_CLASSES]; /* longest time promised; 0: any */
    /* Who would make others late in the last place too, but nobody miss a deadline, is taken: an estimate that nobody
     * has built on may slip a little, a refusal may not come for nothing. */
    bool takes_late;
    /* Once there are several, a tenant may fill half of what others leave of a queue, so that there is room for the
     * next. */
    bool has_tenants;
};

struct admission {
    struct admission_limits limits;
    struct forecast forecast;
    struct load load;
    int64_t *anyway_ns; /* [max_sequences + 1] scratch: first tokens without the candidate */
};

struct admission_candidate {
    int n_prompt, max_new;
    int n_cached;       /* tokens of the prompt whose KV is there */
    int logits_from;    /* n_prompt: none wanted */
    struct terms terms; /* promise_ns is not read */
};

struct admission_answer {
    enum admission_reason reason;
    int64_t hold_ns;        /* see terms */
    int64_t estimate_ns;    /* from now to the first token; 0 if that was not worked out */
    int64_t retry_after_ns; /* if refused: when it would be taken, as far as can be seen now; 0: never */
};

WARN_UNUSED enum status admission_init(struct admission *admission, const struct admission_limits *limits,
                                       int max_sequences);
void admission_deinit(struct admission *admission);

/* Changes nothing that anybody sees: asking is free. Deterministic. */
struct admission_answer admission_answer(struct admission *admission, const struct plan_state *state,
                                         const struct admission_candidate *candidate, int64_t now_ns);

/* An ADMITTED candidate is taken: counts it as load and returns its terms with the promise. */
struct terms admission_accept(struct admission *admission, struct plan_state *state,
                              const struct admission_candidate *candidate, const struct admission_answer *answer,
                              int64_t now_ns);

/* A candidate that was refused, and is not merely asked about, was offered all the same: counts it as load if it was
 * refused for its time. Else the more is refused the fewer newcomers are expected, and the more room a long prompt
 * seems to have. Counted up to twice of what can be done: asking again at once is no load. */
void admission_refuse(struct admission *admission, struct plan_state *state,
                      const struct admission_candidate *candidate, const struct admission_answer *answer,
                      int64_t now_ns);

/* The tenant's slot for terms, among those that the state's sequences use. */
int admission_tenant(struct plan_state *state, uint64_t id, double weight);

const char *admission_reason_name(enum admission_reason reason); /* one word */
const char *admission_reason_text(enum admission_reason reason); /* for a message */

#endif
