/* attention_scalar: exactness rule 4 in plain C, once with rows in lanes and once with keys in lanes.
 *
 * load(block, idx) gives element idx of a K or V block as a float. */
#ifndef KVICK_KERNELS_SCALAR_ATTENTION_SCALAR_H
#define KVICK_KERNELS_SCALAR_ATTENTION_SCALAR_H

#include "kernels/dtype.h"
#include "kernels/kernel_ops.h"
#include "kernels/scalar/exp_scalar.h"

#define TILE ATTENTION_TILE_KEYS

typedef float attention_scalar_load_fn(const void *block, size_t idx);

static inline float attention_scalar_load_f32(const void *block, size_t idx) {
    return ((const float *)block)[idx];
}

static inline float attention_scalar_load_f16(const void *block, size_t idx) {
    return dtype_f16_to_f32(((const uint16_t *)block)[idx]);
}

static inline float attention_scalar_max(float a, float b) {
    return a > b ? a : b;
}

/* The fixed tree over one tile's weights. */
static inline float attention_scalar_tree(const float p[TILE]) {
    float lane[16];
    for (int i = 0; i < 16; i++) lane[i] = (p[i] + p[16 + i]) + (p[32 + i] + p[48 + i]);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

static inline int attention_scalar_is_seen(const struct attention_rows *rows, int row, int key) {
    return key >= rows->first_key[row] && key <= rows->last_key[row];
}

static inline void attention_scalar_start(struct attention_state *state, int n_rows, int head_dim) {
    for (int r = 0; r < n_rows; r++) {
        state->max[r] = ATTENTION_MASKED;
        state->denom[r] = 0;
        for (int d = 0; d < head_dim; d++) state->o[r * head_dim + d] = 0;
    }
}

/* Scores of one row become weights in place; returns the factor for what was folded before. */
static inline float attention_scalar_softmax(const struct attention_rows *rows, int row, int key, int n_keys,
                                             float p[TILE], struct attention_state *state) {
    float max = state->max[row];
    for (int t = 0; t < n_keys; t++)
        if (attention_scalar_is_seen(rows, row, key + t)) max = attention_scalar_max(max, p[t]);
    for (int t = 0; t < TILE; t++)
        p[t] = t < n_keys && attention_scalar_is_seen(rows, row, key + t) ? exp_scalar(p[t] - max) : 0.0f;
    float factor = exp_scalar(state->max[row] - max);
    state->denom[row] = __builtin_fmaf(state->denom[row], factor, attention_scalar_tree(p));
    state->max[row] = max;
    return factor;
}

/* One row after the other; the inner loops run over keys (scores) and over dims (output). */
static inline void attention_scalar_keys(attention_scalar_load_fn *load, const struct attention_rows *rows,
                                         const struct attention_keys *keys, int key_begin, int key_end,
                                         struct attention_state *state) {
    int head_dim = keys->head_dim, block_tokens = keys->block_tokens;
    attention_scalar_start(state, rows->n_rows, head_dim);
    for (int key = key_begin; key < key_end; key += TILE) {
        int n_keys = key_end - key < TILE ? key_end - key : TILE;
        for (int r = 0; r < rows->n_rows; r++) {
            float p[TILE] = {0}, *o = state->o + r * head_dim;
            for (int d = 0; d < head_dim; d++)
                for (int t = 0; t < n_keys; t++) {
                    const void *block = keys->k_blocks[(key - key_begin + t) / block_tokens];
                    size_t idx = (size_t)d * (size_t)block_tokens + (size_t)((key + t) % block_tokens);
                    p[t] = __builtin_fmaf(rows->q[r][d], load(block, idx), p[t]);
                }
            float factor = attention_scalar_softmax(rows, r, key, n_keys, p, state);
            for (int d = 0; d < head_dim; d++) o[d] *= factor;
            for (int t = 0; t < n_keys; t++) {
                const void *block = keys->v_blocks[(key - key_begin + t) / block_tokens];
                size_t at = (size_t)((key + t) % block_tokens) * (size_t)head_dim;
                for (int d = 0; d < head_dim; d++) o[d] = __builtin_fmaf(p[t], load(block, at + (size_t)d), o[d]);
            }
        }
    }
}

/* All rows at once; the innermost loop runs over rows. */
static inline void attention_scalar_rows(attention_scalar_load_fn *load, const struct attention_rows *rows,
                                         const struct attention_keys *keys, int key_begin, int key_end,
                                         struct attention_state *state) {
    int head_dim = keys->head_dim, block_tokens = keys->block_tokens, n_rows = rows->n_rows;
    attention_scalar_start(state, n_rows, head_dim);
    for (int key = key_begin; key < key_end; key += TILE) {
        int n_keys = key_end - key < TILE ? key_end - key : TILE;
        float p[ATTENTION_MAX_ROWS][TILE] = {{0}}, factor[ATTENTION_MAX_ROWS];
        for (int t = 0; t < n_keys; t++) {
            const void *block = keys->k_blocks[(key - key_begin + t) / block_tokens];
            for (int d = 0; d < head_dim; d++) {
                float k = load(block, (size_t)d * (size_t)block_tokens + (size_t)((key + t) % block_tokens));
                for (int r = 0; r < n_rows; r++) p[r][t] = __builtin_fmaf(rows->q[r][d], k, p[r][t]);
            }
        }
        for (int r = 0; r < n_rows; r++) factor[r] = attention_scalar_softmax(rows, r, key, n_keys, p[r], state);
        for (int d = 0; d < head_dim; d++) {
            float o[ATTENTION_MAX_ROWS];
            for (int r = 0; r < n_rows; r++) o[r] = state->o[r * head_dim + d] * factor[r];
            for (int t = 0; t < n_keys; t++) {
                const void *block = keys->v_blocks[(key - key_begin + t) / block_tokens];
                float v = load(block, (size_t)((key + t) % block_tokens) * (size_t)head_dim + (size_t)d);
                for (int r = 0; r < n_rows; r++) o[r] = __builtin_fmaf(p[r][t], v, o[r]);
            }
            for (int r = 0; r < n_rows; r++) state->o[r * head_dim + d] = o[r];
        }
    }
}

#undef TILE
#endif
