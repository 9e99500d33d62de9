/* sampler: from logits to a token, as a function of (logits, parameters, seed, choice, position): no state.
 *
 * Thread: engine.   Memory: scratch sized at init. */
#ifndef KVICK_ENGINE_SAMPLER_H
#define KVICK_ENGINE_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

struct sampling {
    float temperature; /* 0, or below 0.001: the likeliest token, of equals the lowest id */
    int top_k;         /* 0: all */
    float top_p;       /* 1: all */
    float min_p;       /* 0: all; share of the likeliest token's probability */
    uint64_t seed;
    uint32_t choice; /* which of n answers */
};

struct sampler {
    int n_vocab;
    float *weights;       /* [n_vocab] */
    uint32_t *candidates; /* [n_vocab] heap of ids, likeliest first */
};

/* Errors: STATUS_INVALID with the parameter's name in note, for values that make no sense. */
WARN_UNUSED enum status sampler_check(const struct sampling *sampling, struct status_note *note);

WARN_UNUSED enum status sampler_init(struct sampler *sampler, int n_vocab);
void sampler_deinit(struct sampler *sampler);

/* logits: [n_vocab]; position: of the token to be chosen, in its sequence. */
uint32_t sampler_pick(struct sampler *sampler, const struct sampling *sampling, const float *logits, uint32_t position);

/* Index of the largest of n values, the first of equals. NaN never wins. */
uint32_t sampler_argmax(const float *values, int n);

#endif
