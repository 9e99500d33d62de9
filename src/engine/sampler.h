/* sampler: from logits to a token, as a function of (logits, parameters, tokens so far, seed, choice): no state.
 *
 * Order: mask, banned ids, bias, penalties, temperature, min_p, top_k, top_p; each share is of what the filters before
 * left. What is left is drawn from in order of ids, or with top_k likeliest first. Log-probabilities are those of the
 * logits as the model gave them. Thread: any, each worker with its own number.   Memory: scratch sized at init. Source:
 * the order and the penalties are vLLM's, so that equal parameters mean the same there and here. */
#ifndef KVICK_ENGINE_SAMPLER_H
#define KVICK_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/kernel_table.h"

#define SAMPLER_NONE UINT32_MAX /* no id is allowed */
#define SAMPLER_MAX_TOP_LOGPROBS 20
#define SAMPLER_MAX_BIASES 1024

struct logit_bias {
    uint32_t id;
    float bias; /* -100..100, added to the logit */
};

struct sampling {
    float temperature;                         /* 0, or below 0.001: the likeliest token, of equals the lowest id */
    int top_k;                                 /* 0: all */
    float top_p;                               /* 1: all */
    float min_p;                               /* 0: all; share of the likeliest token's probability */
    float presence_penalty, frequency_penalty; /* of generated tokens: once, per occurrence; 0: none */
    float repetition_penalty;                  /* of prompt and generated tokens; 1 and 0: none */
    const struct logit_bias *biases;           /* [n_biases] borrowed as long as the request runs */
    int n_biases;
    uint64_t seed;
    uint32_t choice; /* which of n answers */
};

struct token_logprob {
    uint32_t id;
    float logprob; /* natural */
};

/* What decides about one token. */
struct sampler_ask {
    const struct sampling *sampling;
    const float *logits;    /* [n_vocab] */
    const uint32_t *tokens; /* [n_tokens] so far, the prompt in front */
    int n_prompt, n_tokens;
    uint32_t choice;        /* added to the sampling's */
    const uint32_t *banned; /* [n_banned] ids that may not come now */
    int n_banned;
    const uint32_t *mask; /* [SAMPLER_MASK_WORDS(n_vocab)] bit id % 32 of word id / 32: allowed; NULL: all are */
};

#define SAMPLER_MASK_WORDS(n_vocab) (((size_t)(n_vocab) + 31) / 32)

/* What one worker writes on. */
struct sampler_scratch {
    float *logits;    /* [n_vocab] after mask, bias and penalties */
    float *weights;   /* [n_vocab] */
    uint32_t *ids;    /* [2 * n_vocab] candidates, and some of them once more */
    uint32_t *counts; /* [n_vocab] all 0 between calls */
    double *sums;     /* of weights, block by block */
    double *bins;     /* of weights, by their size */
};

struct sampler {
    int n_vocab; /* ids below it may be picked; logits and scratch may go on */
    int n_workers;
    softmax_weights_fn *softmax_weights;
    struct sampler_scratch *scratch; /* [n_workers] */
};

/* Errors: STATUS_INVALID with the parameter's name in note, for values that make no sense; STATUS_LIMIT. */
WARN_UNUSED enum status sampler_check(const struct sampling *sampling, struct status_note *note);

/* Whether the ids that it names are in the vocabulary. Errors: STATUS_INVALID. */
WARN_UNUSED enum status sampler_check_ids(const struct sampling *sampling, int n_vocab, struct status_note *note);

/* n_rows: logits, the rest of them padding; ids of a request may be any of these. */
WARN_UNUSED enum status sampler_init(struct sampler *sampler, int n_vocab, int n_rows, int n_workers,
                                     const struct kernel_table *kernels);
void sampler_deinit(struct sampler *sampler);

/* The next token, or SAMPLER_NONE. */
uint32_t sampler_pick(const struct sampler *sampler, int worker_idx, const struct sampler_ask *ask);

/* out[0]: the chosen id; then the n_top likeliest ids, likeliest first. logits: [n_vocab]; n_top at most
 * SAMPLER_MAX_TOP_LOGPROBS and n_vocab. An id whose logit is no number has probability 0. */
void sampler_logprobs(const struct sampler *sampler, int worker_idx, const float *logits, uint32_t chosen, int n_top,
                      struct token_logprob *out);

/* Index of the largest of n values, the first of equals. NaN never wins. */
uint32_t sampler_argmax(const float *values, int n);

#endif
