/* forecast: when will each prompt that is known now have its first token, if nobody else comes? Plays the steps to come
 * with the same order (policy), bound (step_bound) and costs as plan, on copies. Deterministic.
 *
 * What it does not know it assumes: answers end after answer_tokens more tokens, or at their limit if that is nearer.
 * Far ahead it plays several like steps at a time, so that its own cost stays bounded.
 * Thread: the scheduler's.   Memory: sized at init. */
#ifndef KVICK_SCHED_FORECAST_H
#define KVICK_SCHED_FORECAST_H

#include "sched/plan.h"

enum forecast_phase { FORECAST_WAITING, FORECAST_PREFILL, FORECAST_DECODE, FORECAST_DONE };

struct forecast_sequence {
    const struct terms *terms; /* borrowed */
    enum forecast_phase phase;
    bool is_resumed;
    bool is_yielding;  /* at the beginning: see policy_prompt */
    int pos, n_prompt; /* [pos, n_prompt) is to be run before the next token */
    int logits_from;
    int n_answer;                       /* tokens expected yet, the first one included */
    int n_blocks[KV_LAYERS_MAX_GROUPS]; /* needed in all */
    int64_t first_token_ns;             /* predicted; 0: not reached. Of a sequence that decodes already: 0 */
};

struct forecast {
    struct forecast_sequence *sequences; /* [max_sequences + 1] */
    int n_sequences;
    int n_free_blocks[KV_LAYERS_MAX_GROUPS];
    int64_t begin_ns, now_ns;
    /* Scratch. */
    struct policy policy;
    struct policy_prompt *prompts; /* [max_sequences + 1] */
    int *indices, *order, *n_rows; /* [max_sequences + 1] */
    int n_prompts;
};

WARN_UNUSED enum status forecast_init(struct forecast *forecast, int max_sequences);
void forecast_deinit(struct forecast *forecast);

/* Takes over what is known now. The terms of the sequences are borrowed until forecast_run returns. */
void forecast_load(struct forecast *forecast, const struct plan_state *state, int64_t now_ns);

/* One more prompt; n_cached: of its tokens, those whose KV is there. */
void forecast_add(struct forecast *forecast, const struct plan_state *state, const struct terms *terms, int n_prompt,
                  int n_cached, int logits_from, int max_new);

/* Fills first_token_ns of all prompts; exact for interactive ones with a promise and for the last one added. */
void forecast_run(struct forecast *forecast, const struct plan_state *state);

#endif
