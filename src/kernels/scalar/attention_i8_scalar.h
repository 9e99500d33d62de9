/* attention_i8_scalar: exactness rules 10 and 11 in plain C; integer sums have no order, so one code serves rows and
 * keys in lanes. A head is one part with one scale per token, or parts of KV_Q8_0_DIMS with one each. */
#ifndef KVICK_KERNELS_SCALAR_ATTENTION_I8_SCALAR_H
#define KVICK_KERNELS_SCALAR_ATTENTION_I8_SCALAR_H

#include "kernels/kv_i8.h"
#include "kernels/kv_q8_0.h"
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
    int part_dims; /* that share a scale */
    bool is_q8_0;
    int key_begin, key, n_keys;
    float q_scales[ATTENTION_MAX_HEAD_DIM / KV_Q8_0_DIMS]; /* of the row's parts */
};

static inline const void *attention_i8_scalar_block(const struct attention_i8_scalar_tile *tile,
                                                    const void *const *blocks, int t) {
    return blocks[(tile->key - tile->key_begin + t) / tile->keys->block_tokens];
}

static inline float attention_i8_scalar_scale(const struct attention_i8_scalar_tile *tile, const void *block, int t,
                                              int part) {
    int tokens = tile->keys->block_tokens, slot = (tile->key + t) % tokens, head_dim = tile->keys->head_dim;
    uint16_t half;
    float scale;
    if (tile->is_q8_0) {
        memcpy(&half, (const char *)block + kv_q8_0_scale_off(slot, part, tokens, head_dim), sizeof half);
        return dtype_f16_to_f32(half);
    }
    memcpy(&scale, (const char *)block + kv_i8_scales_off(tokens, head_dim) + (size_t)slot * sizeof scale,
           sizeof scale);
    return scale;
}

/* Quantizes the row's parts. Returns d: a score times d is q . k. */
static inline float attention_i8_scalar_take_row(struct attention_i8_scalar_tile *tile, const float *x, int8_t *out) {
    if (!tile->is_q8_0) {
        tile->q_scales[0] = 1;
        return quantize_i8_scalar(x, out, tile->keys->head_dim);
    }
    for (int part = 0; part * KV_Q8_0_DIMS < tile->keys->head_dim; part++, x += KV_Q8_0_DIMS, out += KV_Q8_0_DIMS)
        tile->q_scales[part] = quantize_i8_scalar(x, out, KV_Q8_0_DIMS);
    return 1;
}

/* q . k over d: each part's dot times the scales there, parts ascending. */
static inline float attention_i8_scalar_score(const struct attention_i8_scalar_tile *tile, const int8_t *q, int t) {
    int tokens = tile->keys->block_tokens, slot = (tile->key + t) % tokens, dims = tile->part_dims;
    const uint8_t *block = attention_i8_scalar_block(tile, tile->keys->k_blocks, t);
    float sum = 0;
    for (int part = 0; part * dims < tile->keys->head_dim; part++) {
        float scale = tile->q_scales[part] * attention_i8_scalar_scale(tile, block, t, part);
        int32_t dot = 0;
        for (int d = part * dims; d < (part + 1) * dims; d++)
            dot += q[d] * (block[kv_i8_k_off(slot, d, tokens)] - KV_I8_K_OFFSET);
        sum = part ? __builtin_fmaf((float)dot, scale, sum) : (float)dot * scale;
    }
    return sum;
}

/* Weights of one row become bytes times *step, for one part of V. */
static inline void attention_i8_scalar_round(const struct attention_i8_scalar_tile *tile, int part,
                                             const float p[ATTENTION_TILE_KEYS], uint8_t out[ATTENTION_TILE_KEYS],
                                             float *step) {
    float w[ATTENTION_TILE_KEYS], max = 0;
    for (int t = 0; t < ATTENTION_TILE_KEYS; t++) {
        w[t] = 0;
        if (p[t] > 0) {
            const void *block = attention_i8_scalar_block(tile, tile->keys->v_blocks, t);
            w[t] = p[t] * attention_i8_scalar_scale(tile, block, t, part);
        }
        max = attention_scalar_max(max, w[t]);
    }
    float inverse = max >= ATTENTION_I8_W_MIN ? ATTENTION_I8_P_MAX / max : 0.0f;
    *step = max >= ATTENTION_I8_W_MIN ? max * ATTENTION_I8_P_STEP : 0.0f;
    for (int t = 0; t < ATTENTION_TILE_KEYS; t++)
        out[t] = (uint8_t)(int)(__builtin_fmaf(w[t], inverse, ATTENTION_I8_P_ROUND) - ATTENTION_I8_P_ROUND);
}

static inline void attention_i8_scalar_values(const struct attention_i8_scalar_tile *tile, int part,
                                              const float p[ATTENTION_TILE_KEYS], float factor, float *o) {
    int head_dim = tile->keys->head_dim;
    uint8_t rounded[ATTENTION_TILE_KEYS];
    float step;
    attention_i8_scalar_round(tile, part, p, rounded, &step);
    for (int d = part * tile->part_dims; d < (part + 1) * tile->part_dims; d++) {
        int32_t sum = 0;
        for (int t = 0; t < tile->n_keys; t++) {
            const int8_t *block = attention_i8_scalar_block(tile, tile->keys->v_blocks, t);
            int slot = (tile->key + t) % tile->keys->block_tokens;
            sum += rounded[t] * block[kv_i8_v_off(slot, d, head_dim)];
        }
        o[d] = __builtin_fmaf((float)sum, step, o[d] * factor);
    }
}

static inline void attention_i8_scalar_row(const struct attention_rows *rows, int row, int key_end,
                                           struct attention_i8_scalar_tile tile, struct attention_state *state) {
    int head_dim = tile.keys->head_dim;
    int8_t q[ATTENTION_MAX_HEAD_DIM];
    float max = ATTENTION_MASKED, denom = 0, d = attention_i8_scalar_take_row(&tile, rows->q[row], q);
    float *o = state->o + row * head_dim, log2_d = d * EXP2_LOG2E;
    for (int i = 0; i < head_dim; i++) o[i] = 0;
    for (tile.key = tile.key_begin; tile.key < key_end; tile.key += ATTENTION_TILE_KEYS) {
        tile.n_keys = key_end - tile.key < ATTENTION_TILE_KEYS ? key_end - tile.key : ATTENTION_TILE_KEYS;
        float p[ATTENTION_TILE_KEYS] = {0}, new_max = max;
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
        for (int part = 0; part * tile.part_dims < head_dim; part++)
            attention_i8_scalar_values(&tile, part, p, factor, o);
    }
    state->max[row] = max == ATTENTION_MASKED ? ATTENTION_MASKED : max * d;
    state->denom[row] = denom;
}

static inline void attention_i8_scalar(bool is_q8_0, const struct attention_rows *rows,
                                       const struct attention_keys *keys, int key_begin, int key_end,
                                       struct attention_state *state) {
    struct attention_i8_scalar_tile tile = {
        .keys = keys, .part_dims = is_q8_0 ? KV_Q8_0_DIMS : keys->head_dim, .is_q8_0 = is_q8_0, .key_begin = key_begin};
    for (int row = 0; row < rows->n_rows; row++) attention_i8_scalar_row(rows, row, key_end, tile, state);
}

#endif
