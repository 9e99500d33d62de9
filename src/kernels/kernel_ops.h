/* kernel_ops: the contract of every kernel. Kernels have no threads, allocation, log, state or model.
 *
 * Rounding and order of additions: docs/decisions/exactness.md. Every tier gives the bits of the scalar file, which is
 * the specification. Inputs do not overlap outputs unless said. Pointers to floats need natural alignment only.
 * Kernels read and write exactly the bytes named here, never more. */
#ifndef KVICK_KERNELS_KERNEL_OPS_H
#define KVICK_KERNELS_KERNEL_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/act_q8.h"

/* ---- matrix products: out[i][j] = sum over k of x[i][k] * w[j][k] ----
 * Weights are packed (pack.h) in tiles of GEMM_TILE_COLS output columns; a call takes whole tiles from w_packed on, of
 * which the first n_cols columns are written. out: row i at out + i * out_stride.
 * Quantized products take both forms of activations (x->q_low tells).
 * constraints: n_rows >= 1, n_cols >= 1, k >= 1 and a multiple of the weight type's block. */
#define GEMM_TILE_COLS 16

typedef void gemm_q8_fn(const void *w_packed, const struct act_q8 *x, float *out, int out_stride, int n_rows,
                        int n_cols, int k);
/* x: row i at x + i * x_stride. */
typedef void gemm_float_fn(const void *w_packed, const float *x, int x_stride, float *out, int out_stride, int n_rows,
                           int n_cols, int k);

/* ---- rows of floats: [n_rows][n], contiguous ---- */

/* Fills rows 0..n_rows-1 of out, in the int8 form (quantize_q8) or the int16 form (quantize_q16). x: [n_rows][k], k a
 * multiple of 32. Finite inputs only. */
typedef void quantize_q8_fn(const float *x, struct act_q8 *out, int n_rows, int k);

/* out = x / sqrt(mean(x^2) + eps) * weight; weight [n], out may be x. */
typedef void rms_norm_fn(const float *x, const float *weight, float eps, float *out, int n_rows, int n);

/* gate[i] = act(gate[i]) * up[i]; silu(x) = x / (1 + exp(-x)); gelu is the tanh form. n elements in all. */
typedef void gate_fn(float *gate, const float *up, int64_t n);

/* x += y; n elements. */
typedef void add_fn(float *x, const float *y, int64_t n);

/* out[i] = exp((x[i] - shift) / divisor), +0 for NaN; divisor > 0. n elements. */
typedef void softmax_weights_fn(const float *x, float shift, float divisor, float *out, int64_t n);

/* Rotates the first 2 * n_pairs values of each head in place. angles: [n_pairs][2] = cosine, sine of this row.
 * x: [n_heads] heads, head_stride floats apart. Pairs are (2i, 2i+1) for pairs, (i, i + n_pairs) for halves. */
typedef void rope_fn(float *x, const float *angles, int n_heads, int head_stride, int n_pairs);

/* ---- attention ---- */
#define ATTENTION_TILE_KEYS 64
#define ATTENTION_PARTITION_KEYS 512
#define ATTENTION_MASKED (-1e30f)
#define ATTENTION_MAX_ROWS 16      /* rows of one call */
#define ATTENTION_MAX_HEAD_DIM 256 /* a multiple of 16 */

/* Query rows of one call: they share a sequence and a kv head. */
struct attention_rows {
    int n_rows;            /* 1..ATTENTION_MAX_ROWS */
    const float *const *q; /* [n_rows] pointers to [head_dim], already scaled */
    const int *first_key;  /* [n_rows] row sees keys first_key..last_key; first_key 0 without a window */
    const int *last_key;   /* [n_rows] the row's own position */
};

/* Keys and values of one layer and kv head, from a call's key_begin on: block b holds positions
 * key_begin + b * block_tokens and up, K as [head_dim][block_tokens], V as [block_tokens][head_dim]; int8 as kv_i8.h
 * says. block_tokens divides ATTENTION_TILE_KEYS and is a multiple of 16. */
struct attention_keys {
    const void *const *k_blocks;
    const void *const *v_blocks;
    int block_tokens, head_dim;
};

/* The fold of one partition, or of several merged. */
struct attention_state {
    float *max;   /* [n_rows] */
    float *denom; /* [n_rows] */
    float *o;     /* [n_rows][head_dim] */
};

/* Folds keys key_begin..key_end-1 into a fresh state. The range lies in one partition and consists of whole tiles of 64
 * keys, but for the last one, which may end with the largest last_key. Two forms with equal bits: rows in lanes (many
 * rows), keys in lanes. */
typedef void attention_fold_fn(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                               int key_end, struct attention_state *state);

/* into = into merged with part, the next partition; [n_rows] rows. An into that is empty has max = ATTENTION_MASKED,
 * denom = 0, o = 0. */
typedef void attention_merge_fn(struct attention_state *into, const struct attention_state *part, int n_rows,
                                int head_dim);

/* out[i] = o[i] / denom + 0.0f for one row. */
typedef void attention_finish_fn(const float *o, float denom, float *out, int head_dim);

/* out = factor times the Hadamard transform of every piece of x; twice with factors whose product is 1 / piece gives x
 * back. x, out: [head_dim], a multiple of 16; out may be x. A large value becomes many of middling size, which int8
 * rounds better. */
typedef void hadamard_fn(const float *x, float *out, float factor, int head_dim);

/* The largest power of two that divides head_dim. */
static inline int hadamard_piece(int head_dim) {
    return head_dim & -head_dim;
}

/* One token's K and V of one kv head into slot slot_idx of a block. k, v: [head_dim], for int8 finite */
typedef void kv_store_fn(const float *k, const float *v, void *k_block, void *v_block, int slot_idx, int block_tokens,
                         int head_dim);

/* ---- the machine's integer rate ---- */
#define PEAK_DOTS_MACS 3072 /* multiply-adds of an iteration: 12 chains of 256 */

/* n iterations of PEAK_DOTS_MACS products w * x, multiplied and summed by the best dot instructions of vectors in 12
 * chains that do not wait for one another, from registers alone: no product of bytes in vectors can go faster. Tiles of
 * AMX can (docs/decisions/amx.md). Each product is computed. Returns the sum modulo 2^32.
 * constraints: n >= 0, w in 0..15, x in -127..127: tiers may sum 16 products in int16, as those of 4-bit weights. */
typedef uint32_t peak_dots_fn(int64_t n, uint8_t w, int8_t x);

#endif
