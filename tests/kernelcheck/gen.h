/* gen: test values from a seed: the same seed, the same bytes on every machine. */
#ifndef KVICK_TESTS_KERNELCHECK_GEN_H
#define KVICK_TESTS_KERNELCHECK_GEN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/act_q8.h"
#include "kernels/dtype.h"

struct gen {
    uint64_t state;
};

/* Kinds of floats and of blocks. The first is what a model holds. */
enum gen_kind {
    GEN_NORMAL,   /* around 1, blocks: scales around 0.01 of both signs */
    GEN_MAX,      /* blocks: all quants at one end, scales at the end; floats: one magnitude, signs mixed */
    GEN_ZERO,     /* zeros of both signs */
    GEN_MIXED,    /* every exponent between 2^-20 and 2^20, some zeros */
    GEN_DENORMAL, /* denormal floats, denormal f16 scales */
    GEN_SMALL,    /* down to the smallest normal numbers */
    GEN_HUGE,     /* up to the largest finite numbers: sums overflow */
    GEN_SPARSE,   /* mostly zero, a few large: dots of 0 beside extreme ones */
    GEN_N_KINDS
};

/* A stream of its own for each name, so that one test's data does not depend on which tests ran before. */
struct gen gen_start(uint64_t seed, const char *name);

uint64_t gen_u64(struct gen *gen);
int gen_below(struct gen *gen, int n);               /* 0..n-1 */
int gen_between(struct gen *gen, int low, int high); /* low..high */

float gen_float(struct gen *gen, enum gen_kind kind);
void gen_floats(struct gen *gen, enum gen_kind kind, float *out, size_t n);

/* Weights in file order of a type that pack_is_known knows; scales are finite. */
void gen_blocks(struct gen *gen, enum gen_kind kind, enum dtype dtype, uint8_t *out, size_t n_blocks);

/* Activations at the ends of their form's range: every q is 127 or -127, or q and q_low both at an end; all of one sign
 * in a row or mixed, with fitting sums. */
void gen_act_max(struct gen *gen, const struct act_q8 *out, int n_rows, int k);

#endif
