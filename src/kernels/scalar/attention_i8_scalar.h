/* attention_i8_scalar: exactness rule 10 in plain C; integer sums have no order, so one code serves both forms. */
#ifndef KVICK_KERNELS_SCALAR_ATTENTION_I8_SCALAR_H
#define KVICK_KERNELS_SCALAR_ATTENTION_I8_SCALAR_H

#include "kernels/kv_i8.h"
#include "kernels/scalar/attention_scalar.h"
#include "kernels/scalar/exp2_scalar.h"
#include "kernels/scalar/quantize_i8_scalar.h"

#define ATTENTION_I8_P_MAX 255.0f
#define ATTENTION_I8_P_STEP (1.0f / 255.0f)
#define ATTENTION_I8_P_ROUND 8388608.0f /* 2^23: adding it rounds to a whole number, held in the low bits */
#define ATTENTION_I8_W_MIN 0x1p-100f    /* weights below it are zeros: 255 / w stays finite */

/* One row's tile: keys key..key + n_keys - 1; block_idx(t) counts from the call's key_begin. */
struct attention_i8_scalar_tile {
    const struct attention_keys *keys;
    int key_begin, key, n_keys;
};

static inline const void *attention_i8_scalar_block(const struct attention_i8_scalar_tile *tile,
                                                    const void *const *blocks, int t) {
    return blocks[(tile->key - tile->key_begin + t) / tile->keys->block_tokens];
}

static inline float attention_i8_scalar_scale(const struct attention_i8_scalar_tile *tile, const void *block, int t) {
    int tokens = tile->keys->block_tokens;
    float scale;
    memcpy(&scale,
           (const char *)block + kv_i8_scales_off(tokens, tile->keys->head_dim) +
               (size_t)((tile->key + t) % tokens) * sizeof scale,
           sizeof scale);
    return scale;
}

/* q . k, times k's scale. */
static inline float attention_i8_scalar_score(const struct attention_i8_scalar_tile *tile, const int8_t *q, int t) {
    int tokens = tile->keys->block_tokens, slot = (tile->key + t) % tokens;
    const uint8_t *block = attention_i8_scalar_block(tile, tile->keys->k_blocks, t);
    int32_t dot = 0;
    for (int d = 0; d < tile->keys->head_dim; d++) dot += q[d] * (block[kv_i8_k_off(slot, d, tokens)] - KV_I8_K_OFFSET);
    return (float)dot * attention_i8_scalar_scale(tile, block, t);
}

/* Weights of one row become bytes times *step. */
static inline void attention_i8_scalar_round(const struct attention_i8_scalar_tile *tile,
                                             const float p[ATTENTION_TILE_KEYS], uint8_t out[ATTENTION_TILE_KEYS],
                                             float *step) {
    float w[ATTENTION_TILE_KEYS], max = 0;
    for (int t = 0; t < ATTENTION_TILE_KEYS; t++) {
        w[t] = p[t] > 0
                   ? p[t] * attention_i8_scalar_scale(tile, attention_i8_scalar_block(tile, tile->keys->v_blocks, t), t)
                   : 0.0f;
        max = attention_scalar_max(max, w[t]);
    }
    float inverse = max >= ATTENTION_I8_W_MIN ? ATTENTION_I8_P_MAX / max : 0.0f;
    *step = max >= ATTENTION_I8_W_MIN ? max * ATTENTION_I8_P_STEP : 0.0f;
    for (int t = 0; t < ATTENTION_TILE_KEYS; t++)
        out[t] = (uint8_t)(int)(__builtin_fmaf(w[t], inverse, ATTENTION_I8_P_ROUND) - ATTENTION_I8_P_ROUND);
}

static inline void attention_i8_scalar_values(const struct attention_i8_scalar_tile *tile,
                                              const uint8_t p[ATTENTION_TILE_KEYS], float step, float factor,
                                              float *o) {
    int head_dim = tile->keys->head_dim;
    for (int d = 0; d < head_dim; d++) {
        int32_t sum = 0;
        for (int t = 0; t < tile->n_keys; t++) {
            const int8_t *block = attention_i8_scalar_block(tile, tile->keys->v_blocks, t);
            int slot = (tile->key + t) % tile->keys->block_tokens;
            sum += p[t] * block[kv_i8_v_off(slot, d, head_dim)];
        }
        o[d] = __builtin_fmaf((float)sum, step, o[d] * factor);
    }
}

static inline void attention_i8_scalar_row(const struct attention_rows *rows, int row, int key_end,
                                           struct attention_i8_scalar_tile tile, struct attention_state *state) {
    int head_dim = tile.keys->head_dim;
    int8_t q[ATTENTION_MAX_HEAD_DIM];
    float max = ATTENTION_MASKED, denom = 0, d = quantize_i8_scalar(rows->q[row], q, head_dim);
    float *o = state->o + row * head_dim, log2_d = d * EXP2_LOG2E;
    for (int i = 0; i < head_dim; i++) o[i] = 0;
    for (tile.key = tile.key_begin; tile.key < key_end; tile.key += ATTENTION_TILE_KEYS) {
        tile.n_keys = key_end - tile.key < ATTENTION_TILE_KEYS ? key_end - tile.key : ATTENTION_TILE_KEYS;
        float p[ATTENTION_TILE_KEYS] = {0}, step, new_max = max;
        uint8_t rounded[ATTENTION_TILE_KEYS];
        for (int t = 0; t < tile.n_keys; t++) {
            if (!attention_scalar_is_seen(rows, row, tile.key + t)) continue;
            p[t] = attention_i8_scalar_score(&tile, q, t);
            new_max = attention_scalar_max(new_max, p[t]);
        }
        float factor = exp2_scalar((max - new_max) * log2_d);
        for (int t = 0; t < ATTENTION_TILE_KEYS; t++) {
            bool is_seen = t < tile.n_keys && attention_scalar_is_seen(rows, row, tile.key + t);
            p[t] = is_seen ? exp2_scalar((p[t] - new_max) * log2_d) : 0.0f;
        }
        denom = __builtin_fmaf(denom, factor, attention_scalar_tree(p));
        max = new_max;
        attention_i8_scalar_round(&tile, p, rounded, &step);
        attention_i8_scalar_values(&tile, rounded, step, factor, o);
    }
    state->max[row] = max == ATTENTION_MASKED ? ATTENTION_MASKED : max * d;
    state->denom[row] = denom;
}

static inline void attention_i8_scalar(const struct attention_rows *rows, const struct attention_keys *keys,
                                       int key_begin, int key_end, struct attention_state *state) {
    struct attention_i8_scalar_tile tile = {keys, key_begin, key_begin, 0};
    for (int row = 0; row < rows->n_rows; row++) attention_i8_scalar_row(rows, row, key_end, tile, state);
}

#endif
