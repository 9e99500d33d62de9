/* controls: the same questions to a kvick server, with one of its ideas taken away or not, timed and with the answers'
 * ids kept: what each idea buys, and that none changes a token.
 *
 * Thread: the caller's.   Memory: fixed, and what the answers take during a run. */
#ifndef KVICK_BENCH_CONTROLS_H
#define KVICK_BENCH_CONTROLS_H

#include "bench/load_client.h"

#define CONTROLS_MAX_IDS 2048
#define CONTROLS_PROMPT_TOKENS 256
#define CONTROLS_WHALE_TOKENS 1024
#define CONTROLS_STREAMS 8
#define CONTROLS_CONTEXT 2048 /* what the server must hold */

/* All prompts, as ids: the same for every server. */
struct controls_prompts {
    uint32_t ids[4096];
    int n_ids;
};

/* What one server did. Medians where there are several. */
struct controls_run {
    double ttft_ms;                 /* of a new prompt */
    double repeat_ms;               /* first token of the same prompt again */
    double token_ms;                /* one stream */
    double again_ms;                /* a token when prompt and answer so far are sent again for each; 0: not asked */
    double gap_ms;                  /* longest wait of a stream while a long prompt comes */
    double tok_s;                   /* CONTROLS_STREAMS streams together */
    uint32_t ids[CONTROLS_MAX_IDS]; /* [n_ids] of all answers, in one order */
    int n_ids;
};

/* Has the server make them. Errors: STATUS_PEER, STATUS_NOMEM. */
WARN_UNUSED enum status controls_make_prompts(struct controls_prompts *prompts, const struct load_target *target,
                                              struct status_note *note);

/* n_at_once: requests that the server takes at a time. has_again: also each token by a request of its own; its ids must
 * be those of the stream. Errors: STATUS_PEER when a request fails, or with has_again when ids differ; STATUS_NOMEM. */
WARN_UNUSED enum status controls_measure(struct controls_run *run, const struct load_target *target,
                                         const struct controls_prompts *prompts, int n_at_once, bool has_again,
                                         struct status_note *note);

/* Where the ids of two runs differ first; -1: nowhere. */
int controls_difference(const struct controls_run *a, const struct controls_run *b);

#endif
