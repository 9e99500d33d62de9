/* advise: what a model needs and what one may expect of it, from sizes alone: KV memory, sessions, times, trades.
 *
 * Times are intervals, from the limits of a machine and the shares of them that serving reaches.
 * Thread: any.   Memory: plain values.   Cost: a few passes over the layers. */
#ifndef KVICK_PLANNER_ADVISE_H
#define KVICK_PLANNER_ADVISE_H

#include "kernels/dtype.h"
#include "planner/hw_rates.h"
#include "weights/model_sizes.h"

struct advise_range {
    double min, max;
};

/* ---- memory ---- */

/* Bytes that one more token adds, before any window is full; by_query_heads: the figure of those who count query heads,
 * which is wrong for grouped heads. */
double advise_token_bytes(const struct model_sizes *sizes, enum dtype kv_dtype);
double advise_token_bytes_by_query_heads(const struct model_sizes *sizes, enum dtype kv_dtype);

/* KV and states of one sequence of n_tokens, in blocks of block_tokens (1: without rounding). */
double advise_sequence_bytes(const struct model_sizes *sizes, enum dtype kv_dtype, int n_tokens, int block_tokens);

/* Sequences of n_tokens for which memory_bytes have room beside the weights; 0 also when the weights do not fit. */
long advise_n_sessions(const struct model_sizes *sizes, enum dtype kv_dtype, int n_tokens, int block_tokens,
                       double memory_bytes);

/* ---- work; needs row_macs ---- */

/* Of a prompt: 2 row_macs n for the matrices, the row of logits, and what grows with the square of n: every row's
 * scores and weighted sums over the keys it sees. */
struct advise_flops {
    double linear, logits, attention;
};
struct advise_flops advise_prompt_flops(const struct model_sizes *sizes, int n_tokens);

/* Tokens from which on attention's part grows beyond the matrices' (N*); 0: never, all layers have windows. */
double advise_crossover(const struct model_sizes *sizes);

/* Bytes of K and V that a row at this position reads, states included. */
double advise_read_bytes(const struct model_sizes *sizes, enum dtype kv_dtype, int n_tokens);

/* ---- times, in ns ---- */

struct advise_range advise_ttft_ns(const struct model_sizes *sizes, const struct hw_rates *rates, int n_tokens);

/* A step in which n_sessions, with n_tokens of context each, get one token each, and a prompt n_chunk rows at its
 * beginning. */
struct advise_range advise_step_ns(const struct model_sizes *sizes, const struct hw_rates *rates, enum dtype kv_dtype,
                                   int n_sessions, int n_tokens, int n_chunk);

#endif
