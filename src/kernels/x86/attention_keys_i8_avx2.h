/* attention_keys_i8_avx2: exactness rules 10 and 11 with keys in lanes for the scores and dims in lanes for the
 * outputs: a quad is widened in registers, once for ROW_BLOCK rows. */
#ifndef KVICK_KERNELS_X86_ATTENTION_KEYS_I8_AVX2_H
#define KVICK_KERNELS_X86_ATTENTION_KEYS_I8_AVX2_H

#include <immintrin.h>

#include "kernels/kernel_table.h"
#include "kernels/scalar/attention_i8_scalar.h"
#include "kernels/x86/attention_i8_avx2.h"
#include "kernels/x86/exp2_avx2.h"
#include "kernels/x86/lanes_avx2.h"

#define MAX_ROWS ATTENTION_MAX_ROWS
#define TILE_KEYS ATTENTION_TILE_KEYS
#define TILE_GROUPS ATTENTION_I8_TILE_GROUPS
#define GROUP ATTENTION_I8_GROUP
#define LANES 8
#define ROW_BLOCK 4
#define MAX_VECTORS 8
#define MAX_PARTS (ATTENTION_MAX_HEAD_DIM / KV_Q8_0_DIMS)
#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct fold {
    const struct attention_rows *rows;
    const struct attention_keys *keys;
    struct attention_i8_tile tile;
    float *o; /* the state's */
    _Alignas(32) int16_t q[MAX_ROWS][ATTENTION_MAX_HEAD_DIM];
    struct attention_i8_avx2_scales scales;      /* q8_0 only */
    _Alignas(32) float s[MAX_ROWS][TILE_KEYS];   /* scores, then weights: with V's scales in them for int8 */
    _Alignas(32) int16_t p[MAX_ROWS][TILE_KEYS]; /* weights rounded */
    int32_t start[MAX_ROWS][MAX_PARTS];          /* of a dot; int8 has one part */
    float q_scales[MAX_ROWS][MAX_PARTS];         /* q8_0 only */
    float d[MAX_ROWS], log2_d[MAX_ROWS], max[MAX_ROWS], denom[MAX_ROWS], factor[MAX_ROWS], step[MAX_ROWS];
};

/* acc[r][c] += products of the quads at src with row r's four numbers at b + r * b_stride; two vectors c. */
ALWAYS_INLINE void dot_quads(int height, bool is_signed, const void *src, uintptr_t ahead, const int16_t *b,
                             int b_stride, __m256i acc[ROW_BLOCK][MAX_VECTORS], int c0) {
    attention_i8_avx2_prefetch(src, ahead);
#pragma GCC unroll 2
    for (int c = 0; c < 2; c++) {
        __m256i pairs[2];
        attention_i8_avx2_widen((const char *)src + 32 * c, is_signed, pairs);
#pragma GCC unroll 4
        for (int r = 0; r < height; r++)
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++)
                attention_i8_avx2_dot(&acc[r][c0 + c], pairs[half],
                                      attention_i8_avx2_pair(b + r * b_stride + 2 * half));
    }
}

/* Sums of a part of group g and those after it become scores, or are added to them. */
ALWAYS_INLINE void put_scores(bool is_q8_0, int height, int width, int row, int g, int part, struct fold *fold,
                              __m256i acc[ROW_BLOCK][MAX_VECTORS]) {
#pragma GCC unroll 4
    for (int r = 0; r < height; r++)
#pragma GCC unroll 8
        for (int c = 0; c < 2 * width; c++) {
            float *to = fold->s[row + r] + GROUP * g + LANES * c;
            const __m256 dot = _mm256_cvtepi32_ps(acc[r][c]);
            if (!is_q8_0) {
                const float *scales = (const float *)fold->tile.k_scales[g + c / 2] + c % 2 * LANES;
                _mm256_store_ps(to, _mm256_mul_ps(dot, _mm256_loadu_ps(scales)));
                continue;
            }
            __m256 scale = _mm256_mul_ps(_mm256_load_ps(fold->scales.k[part] + GROUP * g + LANES * c),
                                         _mm256_set1_ps(fold->q_scales[row + r][part]));
            _mm256_store_ps(to, part ? _mm256_fmadd_ps(dot, scale, _mm256_load_ps(to)) : _mm256_mul_ps(dot, scale));
        }
}

/* Scores of height rows from row on, all seen groups, width groups at a time. */
ALWAYS_INLINE void score(bool is_q8_0, int height, int width, int row, struct fold *fold) {
    const struct attention_i8_tile *tile = &fold->tile;
    const size_t stride = 4 * (size_t)fold->keys->block_tokens;
    const int head_dim = fold->keys->head_dim, part_dims = is_q8_0 ? KV_Q8_0_DIMS : head_dim;
    for (int g = tile->begin / GROUP / width * width; g < (tile->end + GROUP - 1) / GROUP; g += width) {
        const uint8_t *k[TILE_GROUPS];
#pragma GCC unroll 4
        for (int c = 0; c < width; c++) k[c] = tile->k[g + c];
        for (int begin = 0, part = 0; begin < head_dim; begin += part_dims, part++) {
            __m256i acc[ROW_BLOCK][MAX_VECTORS];
#pragma GCC unroll 4
            for (int r = 0; r < height; r++)
#pragma GCC unroll 8
                for (int c = 0; c < 2 * width; c++) acc[r][c] = _mm256_set1_epi32(fold->start[row + r][part]);
            for (int d = begin; d < begin + part_dims; d += 4)
#pragma GCC unroll 4
                for (int c = 0; c < width; c++) {
                    dot_quads(height, false, k[c], tile->k_ahead[g + c], fold->q[row] + d, ATTENTION_MAX_HEAD_DIM, acc,
                              2 * c);
                    k[c] += stride;
                }
            put_scores(is_q8_0, height, width, row, g, part, fold, acc);
        }
    }
}

/* o = p v * step + o * factor for height rows from row on and 16 * width dims from d on. */
ALWAYS_INLINE void add_values(int height, int width, int row, int d, struct fold *fold) {
    const struct attention_i8_tile *tile = &fold->tile;
    const int head_dim = fold->keys->head_dim;
    __m256i acc[ROW_BLOCK][MAX_VECTORS];
#pragma GCC unroll 4
    for (int r = 0; r < height; r++)
#pragma GCC unroll 8
        for (int c = 0; c < 2 * width; c++) acc[r][c] = _mm256_setzero_si256();
    for (int t = tile->begin / GROUP * GROUP; t < (tile->end + GROUP - 1) / GROUP * GROUP; t += 4) {
        const int8_t *v = tile->v[t / GROUP] + (size_t)(t % GROUP * head_dim + 4 * d);
#pragma GCC unroll 4
        for (int c = 0; c < width; c++)
            dot_quads(height, true, v + 64 * c, tile->v_ahead[t / GROUP], fold->p[row] + t, TILE_KEYS, acc, 2 * c);
    }
#pragma GCC unroll 4
    for (int r = 0; r < height; r++)
#pragma GCC unroll 8
        for (int c = 0; c < 2 * width; c++) {
            float *to = fold->o + (row + r) * head_dim + d + LANES * c;
            __m256 o = _mm256_mul_ps(_mm256_loadu_ps(to), _mm256_set1_ps(fold->factor[row + r]));
            o = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][c]), _mm256_set1_ps(fold->step[row + r]), o);
            _mm256_storeu_ps(to, o);
        }
}

/* What dots are for: all scores, or the outputs of dims [begin, end). */
struct span {
    bool is_scores;
    int begin, end;
};

/* 12 sums at most: with two pairs of K or V and one of a row they fit the 16 registers. */
ALWAYS_INLINE void dots_of(bool is_q8_0, int height, int width, int row, struct fold *fold, struct span span) {
    int d = span.begin;
    if (span.is_scores) {
        score(is_q8_0, height, width, row, fold);
        return;
    }
    for (; d + GROUP * width <= span.end; d += GROUP * width) add_values(height, width, row, d, fold);
    if (width > 1)
        for (; d < span.end; d += GROUP) add_values(height, 1, row, d, fold);
}

ALWAYS_INLINE void dots(bool is_q8_0, struct fold *fold, struct span span) {
    int row = 0, n_rows = fold->rows->n_rows;
    for (; row + ROW_BLOCK <= n_rows; row += ROW_BLOCK) dots_of(is_q8_0, ROW_BLOCK, 1, row, fold, span);
    switch (n_rows - row) {
    case 1: dots_of(is_q8_0, 1, is_q8_0 && !span.is_scores ? 2 : 4, row, fold, span); break;
    case 2: dots_of(is_q8_0, 2, 2, row, fold, span); break;
    case 3: dots_of(is_q8_0, 3, 2, row, fold, span); break;
    default: break;
    }
}

/* All bits of the lanes whose keys t, t + 1, ... of the tile the row sees. */
ALWAYS_INLINE __m256 seen_lanes(int first, int last, int t) {
    __m256i before = lanes_avx2_first(first - t), until = lanes_avx2_first(last + 1 - t);
    return _mm256_castsi256_ps(_mm256_andnot_si256(before, until));
}

/* The row's weights, whose largest is w_max, as int16, paired; v_scales: not yet in the weights, or NULL. */
ALWAYS_INLINE void round_weights(struct fold *fold, int row, float w_max, const float *v_scales) {
    const bool is_kept = w_max >= ATTENTION_I8_W_MIN;
    const __m256 factor = _mm256_set1_ps(is_kept ? ATTENTION_I8_P_MAX / w_max : 0.0f);
    const __m256 shift = _mm256_set1_ps(ATTENTION_I8_P_ROUND);
    for (int t = 0; t < TILE_KEYS; t += GROUP) {
        __m256 w[2] = {_mm256_load_ps(fold->s[row] + t), _mm256_load_ps(fold->s[row] + t + LANES)};
        if (v_scales) {
            w[0] = _mm256_mul_ps(w[0], _mm256_load_ps(v_scales + t));
            w[1] = _mm256_mul_ps(w[1], _mm256_load_ps(v_scales + t + LANES));
        }
        __m256i low = _mm256_castps_si256(_mm256_fmadd_ps(w[0], factor, shift));
        __m256i high = _mm256_castps_si256(_mm256_fmadd_ps(w[1], factor, shift));
        low = _mm256_xor_si256(low, _mm256_castps_si256(shift));
        high = _mm256_xor_si256(high, _mm256_castps_si256(shift));
        __m256i p = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
        _mm256_store_si256((__m256i *)(fold->p[row] + t), attention_i8_avx2_paired(p));
    }
    fold->step[row] = is_kept ? w_max * ATTENTION_I8_P_STEP : 0.0f;
}

/* q8_0: the row's weights become bytes for one part of V. */
ALWAYS_INLINE void weigh_part(struct fold *fold, int row, int part) {
    const float *v_scales = fold->scales.v[part];
    __m256 largest = _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int t = 0; t < TILE_KEYS; t += LANES)
        largest = _mm256_max_ps(largest, _mm256_mul_ps(_mm256_load_ps(fold->s[row] + t), _mm256_load_ps(v_scales + t)));
    round_weights(fold, row, lanes_avx2_max(largest), v_scales);
}

/* Scores of one row become weights, for int8 with V's scale in them, and then bytes; max, denom, factor and step move
 * on. */
ALWAYS_INLINE void softmax(bool is_q8_0, struct fold *fold, int row, bool is_whole) {
    const struct attention_i8_tile *tile = &fold->tile;
    int first = fold->rows->first_key[row] - tile->key, last = fold->rows->last_key[row] - tile->key;
    if (first < tile->begin) first = tile->begin;
    if (last > tile->end - 1) last = tile->end - 1;
    float *s = fold->s[row];
    __m256 m = _mm256_set1_ps(fold->max[row]), sums[2][TILE_GROUPS], largest = _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int t = 0; t < TILE_KEYS; t += LANES) {
        __m256 score = _mm256_load_ps(s + t);
        m = _mm256_max_ps(m, is_whole ? score : _mm256_blendv_ps(m, score, seen_lanes(first, last, t)));
    }
    float max = lanes_avx2_max(m), log2_d = fold->log2_d[row];
    m = _mm256_set1_ps(max);
#pragma GCC unroll 8
    for (int i = 0; i < TILE_KEYS / LANES; i++) {
        __m256 x = _mm256_mul_ps(_mm256_sub_ps(_mm256_load_ps(s + LANES * i), m), _mm256_set1_ps(log2_d));
        __m256 p = exp2_avx2(x), w = p;
        if (!is_q8_0) w = _mm256_mul_ps(p, _mm256_loadu_ps((const float *)tile->v_scales[i / 2] + i % 2 * LANES));
        if (!is_whole) {
            __m256 seen = seen_lanes(first, last, LANES * i);
            p = _mm256_and_ps(p, seen), w = _mm256_and_ps(w, seen);
        }
        largest = _mm256_max_ps(largest, w);
        _mm256_store_ps(s + LANES * i, w);
        sums[i % 2][i / 2] = p;
    }
    __m256 low = _mm256_add_ps(_mm256_add_ps(sums[0][0], sums[0][1]), _mm256_add_ps(sums[0][2], sums[0][3]));
    __m256 high = _mm256_add_ps(_mm256_add_ps(sums[1][0], sums[1][1]), _mm256_add_ps(sums[1][2], sums[1][3]));
    float factor = exp2_scalar((fold->max[row] - max) * log2_d);
    if (!is_q8_0) round_weights(fold, row, lanes_avx2_max(largest), NULL);
    fold->factor[row] = factor;
    fold->denom[row] = __builtin_fmaf(fold->denom[row], factor, lanes_avx2_tree(low, high));
    fold->max[row] = max;
}

static void start(bool is_q8_0, struct fold *fold) {
    const int head_dim = fold->keys->head_dim;
    for (int r = 0; r < fold->rows->n_rows; r++) {
        const float *q = fold->rows->q[r];
        if (is_q8_0) {
            for (int part = 0, d = 0; d < head_dim; part++, d += KV_Q8_0_DIMS)
                fold->q_scales[r][part] =
                    attention_i8_avx2_take_row(q + d, fold->q[r] + d, KV_Q8_0_DIMS, &fold->start[r][part]);
            fold->d[r] = 1;
        } else {
            fold->d[r] = attention_i8_avx2_take_row(q, fold->q[r], head_dim, &fold->start[r][0]);
        }
        fold->log2_d[r] = fold->d[r] * EXP2_LOG2E;
        fold->max[r] = ATTENTION_MASKED, fold->denom[r] = 0;
        for (int t = 0; t < TILE_KEYS; t++) fold->s[r][t] = 0;
    }
    /* Groups that no row sees are computed too where they share registers with others. */
    for (int part = 0; is_q8_0 && part < head_dim / KV_Q8_0_DIMS; part++)
        for (int t = 0; t < TILE_KEYS; t += LANES) {
            _mm256_store_ps(fold->scales.k[part] + t, _mm256_setzero_ps());
            _mm256_store_ps(fold->scales.v[part] + t, _mm256_setzero_ps());
        }
    for (int i = 0; i < fold->rows->n_rows * head_dim; i += LANES) _mm256_storeu_ps(fold->o + i, _mm256_setzero_ps());
}

ALWAYS_INLINE void fold_tile(bool is_q8_0, struct fold *fold) {
    const int head_dim = fold->keys->head_dim, n_rows = fold->rows->n_rows;
    if (is_q8_0) attention_i8_avx2_take_scales(fold->keys, &fold->tile, &fold->scales);
    dots(is_q8_0, fold, (struct span){.is_scores = true});
    for (int r = 0; r < n_rows; r++) {
        if (fold->tile.is_whole)
            softmax(is_q8_0, fold, r, true);
        else
            softmax(is_q8_0, fold, r, false);
    }
    if (!is_q8_0) dots(false, fold, (struct span){.end = head_dim});
    for (int part = 0; is_q8_0 && part < head_dim / KV_Q8_0_DIMS; part++) {
        for (int r = 0; r < n_rows; r++) weigh_part(fold, r, part);
        dots(true, fold, (struct span){.begin = part * KV_Q8_0_DIMS, .end = (part + 1) * KV_Q8_0_DIMS});
    }
}

ALWAYS_INLINE void attention_keys_i8_avx2_fold(bool is_q8_0, const struct attention_rows *rows,
                                               const struct attention_keys *keys, int key_begin, int key_end,
                                               struct attention_state *state) {
    struct fold fold;
    int first, last;
    fold.rows = rows, fold.keys = keys, fold.o = state->o;
    attention_tile_range(rows, key_end, &first, &last);
    attention_i8_avx2_fetch(is_q8_0, rows, keys, key_begin, first, last);
    start(is_q8_0, &fold);
    for (int key = key_begin; key <= last; key += TILE_KEYS)
        if (attention_i8_tile_at(is_q8_0, rows, keys, key_begin, key, first, last, &fold.tile))
            fold_tile(is_q8_0, &fold);
    for (int r = 0; r < rows->n_rows; r++) {
        state->max[r] = fold.max[r] == ATTENTION_MASKED ? ATTENTION_MASKED : fold.max[r] * fold.d[r];
        state->denom[r] = fold.denom[r];
    }
}

#endif
