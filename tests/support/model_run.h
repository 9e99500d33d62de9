/* model_run: a model without an engine, for tests of forward: one sequence, or several in one batch. */
#ifndef KVICK_TESTS_SUPPORT_MODEL_RUN_H
#define KVICK_TESTS_SUPPORT_MODEL_RUN_H

#include "model/forward.h"

struct model_run_options {
    enum dtype kv_dtype;
    int n_threads, block_tokens, max_tokens; /* max_tokens: cache slots in all */
    int max_rows, max_logit_rows;
    unsigned tiers;
    enum activation_form activations;
    bool has_bf16_tables;
};

struct model_run {
    struct gguf *gguf;
    struct thread_pool *pool;
    struct kernel_table kernels;
    struct group_store store;
    struct forward *forward;
    int n_vocab;
};

/* Fails the running test with the note on error. */
void model_run_open(struct model_run *run, const char *path, const struct model_run_options *options);
void model_run_close(struct model_run *run);

struct model_run_sequence {
    const uint32_t *tokens;
    int n_tokens;
    uint32_t first_block; /* its blocks are first_block, first_block + stride, ... */
    int block_stride;
};

/* Runs tokens [from, to) of each sequence as one step; logits of all these rows go to out, sequence after sequence. */
struct model_run_piece {
    const struct model_run_sequence *sequence;
    int from, to;
};
void model_run_step(struct model_run *run, const struct model_run_piece *pieces, int n_pieces, float *out_logits);

/* The same, but only the logits of the step's rows wanted, ascending, are computed: [n_wanted][n_vocab]. */
void model_run_step_at(struct model_run *run, const struct model_run_piece *pieces, int n_pieces, const int32_t *wanted,
                       int n_wanted, float *out_logits);

/* All logits [n_tokens][n_vocab] of one sequence, in steps of chunk tokens (0 = all at once). */
void model_run_logits(struct model_run *run, const uint32_t *tokens, int n_tokens, int chunk, float *out_logits);

#endif
