/* phase_stats: where the time of one request went. Every part is a sum of spans with two stamps of their own; none is
 * what the others leave.
 *
 * The caller adds the parts before the engine, with the spans that it measured; from submit to the end the engine
 * closes one part where it opens the next. A request with several choices has one account: it decodes while one of them
 * does.
 * Thread: written by the engine until the request goes home, read by its owner afterwards. */
#ifndef KVICK_ENGINE_PHASE_STATS_H
#define KVICK_ENGINE_PHASE_STATS_H

#include <stdint.h>

#define PHASE_MAP(XX)                                                                                                  \
    XX(READ, "read")             /* bytes of the request, until whole */                                               \
    XX(PREPROCESS, "preprocess") /* parsed, checked, at the gate */                                                    \
    XX(TEXT_QUEUE, "text_queue") /* behind the texts of others, until it is rendered */                                \
    XX(TEMPLATE, "template")     /* the conversation rendered */                                                       \
    XX(TOKENIZE, "tokenize")                                                                                           \
    XX(QUEUE, "queue")               /* until the first step with a part of it */                                      \
    XX(PREFILL_OWN, "prefill_own")   /* steps that computed rows of its prompt */                                      \
    XX(PREFILL_LOST, "prefill_lost") /* steps for others while its begun prompt waited */                              \
    XX(PREEMPTED, "preempted")       /* without blocks, and what was lost computed again */                            \
    XX(TRANSFER, "transfer")         /* KV on its way between machines */                                              \
    XX(FIRST_SAMPLE, "first_sample") /* from the prompt's last layer to its first token */                             \
    XX(DECODE, "decode")             /* from the first token on */                                                     \
    XX(BLOCKED, "blocked")           /* its client did not read */

enum phase {
#define XX(name, text) PHASE_##name,
    PHASE_MAP(XX)
#undef XX
        N_PHASES
};

/* What its rows cost, counted from shapes: of weights read in a step a request has the share of its rows. */
struct phase_work {
    double flops, bytes_read, kv_bytes_written;
};

struct phase_stats {
    int64_t received_ns;  /* by the caller, its first byte; 0: same as submitted */
    int64_t submitted_ns; /* by the client, before the inbox */
    int64_t admitted_ns;
    int64_t predicted_ns;                     /* of the first token, as told at admission; 0: nothing was told */
    int64_t prefill_start_ns, prefill_end_ns; /* first and last step with a part of the prompt */
    int64_t first_token_ns;                   /* told */
    int64_t last_token_ns;
    int64_t finished_ns;
    int64_t part_ns[N_PHASES];
    enum phase open; /* the part that runs, since open_ns */
    int64_t open_ns;
    struct phase_work prefill, decode;
    int n_prompt_tokens, n_cached_tokens, n_new_tokens; /* new: of all choices */
    int n_done_tokens;                                  /* of the prompt, computed or found */
    int n_prefill_steps, n_preemptions;
};

/* The part's name as printed. */
const char *phase_stats_name(enum phase phase);

/* A span that the caller measured. */
void phase_stats_add(struct phase_stats *stats, enum phase phase, int64_t from_ns, int64_t to_ns);

/* The open part ends and phase begins, unless it is the open one. A now_ns before the open part's start is taken as
 * that start: a step may have begun before a request came. */
void phase_stats_switch(struct phase_stats *stats, enum phase phase, int64_t now_ns);

/* The last part ends with the request. */
void phase_stats_finish(struct phase_stats *stats, int64_t now_ns);

/* From received to finished, less all parts: what nobody measured. */
int64_t phase_stats_unaccounted_ns(const struct phase_stats *stats);

static inline void phase_stats_add_work(struct phase_work *to, const struct phase_work *work) {
    to->flops += work->flops;
    to->bytes_read += work->bytes_read;
    to->kv_bytes_written += work->kv_bytes_written;
}

static inline double phase_stats_ms(int64_t from_ns, int64_t to_ns) {
    return (double)(to_ns - from_ns) / 1e6;
}

#endif
