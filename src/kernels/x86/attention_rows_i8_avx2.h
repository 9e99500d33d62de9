/* attention_rows_i8_avx2: exactness rules 10 and 11 with a lane for each row, from the first dot to the output, so that
 * softmax needs no sum across lanes. 16 keys of K, or 16 dims of V, are widened once; a dot's other operand is a pair
 * of theirs, broadcast. */
#ifndef KVICK_KERNELS_X86_ATTENTION_ROWS_I8_AVX2_H
#define KVICK_KERNELS_X86_ATTENTION_ROWS_I8_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/kernel_table.h"
#include "kernels/scalar/attention_i8_scalar.h"
#include "kernels/x86/attention_i8_avx2.h"
#include "kernels/x86/exp2_avx2.h"

#define MAX_ROWS ATTENTION_MAX_ROWS
#define MAX_DIM ATTENTION_MAX_HEAD_DIM
#define TILE_KEYS ATTENTION_TILE_KEYS
#define TILE_GROUPS ATTENTION_I8_TILE_GROUPS
#define GROUP ATTENTION_I8_GROUP
#define LANES 8
#define HALVES (MAX_ROWS / LANES)
#define MAX_COLUMNS 6
#define MAX_PARTS (MAX_DIM / KV_Q8_0_DIMS)
#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct fold {
    struct attention_i8_tile tile;
    int head_dim, block_tokens;
    _Alignas(32) int16_t q[MAX_DIM / 2][MAX_ROWS][2];
    _Alignas(32) int16_t wide[MAX_DIM / 2][GROUP][2]; /* of K by dims, of V by keys */
    _Alignas(32) int32_t dots[GROUP][MAX_ROWS];
    struct attention_i8_avx2_scales scales;             /* q8_0 only */
    _Alignas(32) float s[TILE_KEYS][MAX_ROWS];          /* scores, then weights: with V's scales in them for int8 */
    _Alignas(32) int16_t p[TILE_KEYS / 2][MAX_ROWS][2]; /* weights rounded */
    _Alignas(32) float o[MAX_DIM][MAX_ROWS];
    _Alignas(32) float max[MAX_ROWS], denom[MAX_ROWS], d[MAX_ROWS], log2_d[MAX_ROWS];
    _Alignas(32) float q_scales[MAX_PARTS][MAX_ROWS]; /* q8_0 only */
    _Alignas(32) int32_t start[MAX_PARTS][MAX_ROWS];  /* int8 has one part */
    _Alignas(32) int32_t first[MAX_ROWS], last[MAX_ROWS];
};

/* All bits of the rows of half h that see key t of the tile. */
ALWAYS_INLINE __m256 seen_by(const struct fold *fold, int h, int t) {
    const __m256i key = _mm256_set1_epi32(fold->tile.key + t);
    __m256i first = _mm256_load_si256((const __m256i *)(fold->first + LANES * h));
    __m256i last = _mm256_load_si256((const __m256i *)(fold->last + LANES * h));
    __m256i unseen = _mm256_or_si256(_mm256_cmpgt_epi32(first, key), _mm256_cmpgt_epi32(key, last));
    bool is_within = t >= fold->tile.begin && t < fold->tile.end;
    return _mm256_castsi256_ps(_mm256_andnot_si256(unseen, _mm256_set1_epi32(is_within ? -1 : 0)));
}

/* out[j][h] = from plus the products of n pairs of column j of wide with the rows' pairs. */
ALWAYS_INLINE void dots_of(int n_columns, int n, const int16_t (*wide)[2], const int16_t (*pairs)[MAX_ROWS][2],
                           const int32_t *from, int32_t (*out)[MAX_ROWS]) {
    __m256i acc[MAX_COLUMNS][HALVES];
#pragma GCC unroll 8
    for (int j = 0; j < n_columns; j++)
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) acc[j][h] = _mm256_load_si256((const __m256i *)(from + LANES * h));
#pragma GCC unroll 1
    for (int i = 0; i < n; i++) {
        __m256i lanes[HALVES];
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++)
            lanes[h] = _mm256_load_si256((const __m256i *)(const void *)pairs[i][LANES * h]);
#pragma GCC unroll 8
        for (int j = 0; j < n_columns; j++) {
            __m256i column = attention_i8_avx2_pair(wide[GROUP * i + j]);
#pragma GCC unroll 2
            for (int h = 0; h < HALVES; h++) attention_i8_avx2_dot(&acc[j][h], column, lanes[h]);
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < n_columns; j++)
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) _mm256_store_si256((__m256i *)(out[j] + LANES * h), acc[j][h]);
}

/* Dots of all 16 columns. Not inlined: whatever else is alive would cost the sums their registers, 12 at most of 16. */
static __attribute__((noinline)) void dots(int n, const int16_t (*wide)[2], const int16_t (*pairs)[MAX_ROWS][2],
                                           const int32_t *from, int32_t (*out)[MAX_ROWS]) {
    dots_of(6, n, wide, pairs, from, out);
    dots_of(5, n, wide + 6, pairs, from, out + 6);
    dots_of(5, n, wide + 11, pairs, from, out + 11);
}

/* Dots j of half h as floats. */
ALWAYS_INLINE __m256 dot_at(const struct fold *fold, int j, int h) {
    return _mm256_cvtepi32_ps(_mm256_load_si256((const __m256i *)(fold->dots[j] + LANES * h)));
}

/* The dots of one part of group g become scores, or are added to them. */
ALWAYS_INLINE void add_scores(struct fold *fold, int g, int part) {
    for (int j = 0; j < GROUP; j++)
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            float *s = fold->s[GROUP * g + j] + LANES * h;
            __m256 scale = _mm256_mul_ps(_mm256_load_ps(fold->q_scales[part] + LANES * h),
                                         _mm256_set1_ps(fold->scales.k[part][GROUP * g + j]));
            __m256 dot = dot_at(fold, j, h);
            _mm256_store_ps(s, part ? _mm256_fmadd_ps(dot, scale, _mm256_load_ps(s)) : _mm256_mul_ps(dot, scale));
        }
}

/* Scores of the 16 keys of group g; max becomes the larger of max and those that the rows see. */
ALWAYS_INLINE void score_group(bool is_q8_0, struct fold *fold, int g, bool is_whole, __m256 max[HALVES]) {
    if (!is_q8_0) {
        attention_i8_avx2_prefetch(fold->tile.k_scales[g], fold->tile.k_ahead[g]);
        attention_i8_avx2_prefetch(fold->tile.v_scales[g], fold->tile.v_ahead[g]);
    }
    attention_i8_avx2_widen_all(fold->tile.k[g], 4 * (size_t)fold->block_tokens, fold->tile.k_ahead[g],
                                fold->head_dim / 4, false, fold->wide);
    if (!is_q8_0) dots(fold->head_dim / 2, fold->wide[0], fold->q, fold->start[0], fold->dots);
    for (int part = 0; is_q8_0 && part < fold->head_dim / KV_Q8_0_DIMS; part++) {
        const int pair = part * KV_Q8_0_DIMS / 2;
        dots(KV_Q8_0_DIMS / 2, fold->wide[pair], fold->q + pair, fold->start[part], fold->dots);
        add_scores(fold, g, part);
    }
    for (int j = 0; j < GROUP; j++)
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            const int t = GROUP * g + j;
            __m256 s = _mm256_load_ps(fold->s[t] + LANES * h);
            if (!is_q8_0) {
                s = _mm256_mul_ps(dot_at(fold, j, h), _mm256_set1_ps(((const float *)fold->tile.k_scales[g])[j]));
                _mm256_store_ps(fold->s[t] + LANES * h, s);
            }
            __m256 larger = _mm256_max_ps(max[h], s);
            max[h] = is_whole ? larger : _mm256_blendv_ps(max[h], larger, seen_by(fold, h, t));
        }
}

/* Scores of half h become weights, for int8 with V's scales in them; denom moves on. Returns each row's largest. */
ALWAYS_INLINE __m256 weigh(bool is_q8_0, struct fold *fold, int h, bool is_whole, __m256 max, __m256 factor) {
    const struct attention_i8_tile *tile = &fold->tile;
    const __m256 log2_d = _mm256_load_ps(fold->log2_d + LANES * h);
    __m256 lane[GROUP], largest = _mm256_setzero_ps();
    for (int i = 0; i < GROUP; i++) {
        __m256 p[TILE_GROUPS];
#pragma GCC unroll 4
        for (int g = 0; g < TILE_GROUPS; g++) {
            const int t = GROUP * g + i;
            float *s = fold->s[t] + LANES * h;
            p[g] = exp2_avx2(_mm256_mul_ps(_mm256_sub_ps(_mm256_load_ps(s), max), log2_d));
            __m256 w = p[g];
            if (!is_q8_0) w = _mm256_mul_ps(w, _mm256_set1_ps(((const float *)tile->v_scales[g])[i]));
            if (!is_whole) {
                __m256 seen = seen_by(fold, h, t);
                p[g] = _mm256_and_ps(p[g], seen), w = _mm256_and_ps(w, seen);
            }
            largest = _mm256_max_ps(largest, w);
            _mm256_store_ps(s, w);
        }
        lane[i] = _mm256_add_ps(_mm256_add_ps(p[0], p[1]), _mm256_add_ps(p[2], p[3]));
    }
#pragma GCC unroll 4
    for (int half = GROUP / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++) lane[i] = _mm256_add_ps(lane[i], lane[i + half]);
    __m256 denom = _mm256_load_ps(fold->denom + LANES * h);
    _mm256_store_ps(fold->denom + LANES * h, _mm256_fmadd_ps(denom, factor, lane[0]));
    return largest;
}

/* Weights of half h, whose largest are given, as pairs of int16. v_scales: not yet in the weights, or NULL. Returns
 * what a step of theirs is worth. */
ALWAYS_INLINE __m256 round_weights(struct fold *fold, int h, __m256 largest, const float *v_scales) {
    const __m256 is_kept = _mm256_cmp_ps(largest, _mm256_set1_ps(ATTENTION_I8_W_MIN), _CMP_GE_OQ);
    const __m256 inverse = _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(ATTENTION_I8_P_MAX), largest), is_kept);
    const __m256 shift = _mm256_set1_ps(ATTENTION_I8_P_ROUND);
    for (int t = 0; t < TILE_KEYS; t += 4) {
        __m256i w[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m256 weight = _mm256_load_ps(fold->s[t + i] + LANES * h);
            if (v_scales) weight = _mm256_mul_ps(weight, _mm256_set1_ps(v_scales[t + i]));
            w[i] = _mm256_castps_si256(_mm256_fmadd_ps(weight, inverse, shift));
        }
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            __m256i pair = _mm256_blend_epi16(w[i], _mm256_slli_epi32(w[i + 2], 16), 0xaa);
            _mm256_store_si256((__m256i *)(void *)fold->p[t / 2 + i][LANES * h], pair);
        }
    }
    return _mm256_and_ps(_mm256_mul_ps(largest, _mm256_set1_ps(ATTENTION_I8_P_STEP)), is_kept);
}

/* q8_0: the weights of half h become bytes for one part of V. Returns what a step of theirs is worth. */
ALWAYS_INLINE __m256 weigh_part(struct fold *fold, int h, int part) {
    const float *v_scales = fold->scales.v[part];
    __m256 largest = _mm256_setzero_ps();
    for (int t = 0; t < TILE_KEYS; t++)
        largest =
            _mm256_max_ps(largest, _mm256_mul_ps(_mm256_load_ps(fold->s[t] + LANES * h), _mm256_set1_ps(v_scales[t])));
    return round_weights(fold, h, largest, v_scales);
}

/* o = p v * step + o * factor for 16 dims from d on. */
ALWAYS_INLINE void add_values(struct fold *fold, int d, const __m256 step[HALVES], const __m256 factor[HALVES]) {
    static const _Alignas(32) int32_t zeros[MAX_ROWS];
    const int begin = fold->tile.begin / GROUP, end = (fold->tile.end + GROUP - 1) / GROUP;
    for (int g = begin; g < end; g++)
        attention_i8_avx2_widen_all(fold->tile.v[g] + 4 * (size_t)d, 4 * (size_t)fold->head_dim, fold->tile.v_ahead[g],
                                    GROUP / 4, true, fold->wide + GROUP / 2 * g);
    dots(GROUP / 2 * (end - begin), fold->wide[GROUP / 2 * begin], fold->p + GROUP / 2 * begin, zeros, fold->dots);
    for (int j = 0; j < GROUP; j++)
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            float *to = fold->o[d + j] + LANES * h;
            __m256 o = _mm256_mul_ps(_mm256_load_ps(to), factor[h]);
            _mm256_store_ps(to, _mm256_fmadd_ps(dot_at(fold, j, h), step[h], o));
        }
}

ALWAYS_INLINE void fold_tile(bool is_q8_0, struct fold *fold, const struct attention_keys *keys, bool is_whole) {
    const struct attention_i8_tile *tile = &fold->tile;
    __m256 max[HALVES], step[HALVES], factor[HALVES];
    if (is_q8_0) attention_i8_avx2_take_scales(keys, tile, &fold->scales);
#pragma GCC unroll 2
    for (int h = 0; h < HALVES; h++) max[h] = _mm256_load_ps(fold->max + LANES * h);
    for (int g = tile->begin / GROUP; g < (tile->end + GROUP - 1) / GROUP; g++)
        score_group(is_q8_0, fold, g, is_whole, max);
    for (int h = 0; h < HALVES; h++) {
        __m256 moved = _mm256_sub_ps(_mm256_load_ps(fold->max + LANES * h), max[h]);
        factor[h] = exp2_avx2(_mm256_mul_ps(moved, _mm256_load_ps(fold->log2_d + LANES * h)));
        __m256 largest = weigh(is_q8_0, fold, h, is_whole, max[h], factor[h]);
        if (!is_q8_0) step[h] = round_weights(fold, h, largest, NULL);
        _mm256_store_ps(fold->max + LANES * h, max[h]);
    }
    for (int d = 0; d < fold->head_dim; d += GROUP) {
        if (is_q8_0 && d % KV_Q8_0_DIMS == 0)
            for (int h = 0; h < HALVES; h++) step[h] = weigh_part(fold, h, d / KV_Q8_0_DIMS);
        add_values(fold, d, step, factor);
    }
}

/* 8 x 8 numbers of 32 bits; strides in numbers. */
ALWAYS_INLINE void transpose(const void *from, int from_stride, void *to, int to_stride) {
    __m256 x[8], y[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) x[i] = _mm256_loadu_ps((const float *)from + i * from_stride);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2)
        y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]), y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm256_shuffle_ps(y[i + j], y[i + j + 2], 0x44);
            x[i + 2 * j + 1] = _mm256_shuffle_ps(y[i + j], y[i + j + 2], 0xee);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps((float *)to + i * to_stride, _mm256_permute2f128_ps(x[i], x[i + 4], 0x20));
        _mm256_storeu_ps((float *)to + (i + 4) * to_stride, _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));
    }
}

/* One row's q, paired. Returns d: its scores times d are q . k. */
static float take_row(bool is_q8_0, struct fold *fold, const float *x, int r, int16_t *out) {
    if (!is_q8_0) return attention_i8_avx2_take_row(x, out, fold->head_dim, &fold->start[0][r]);
    for (int part = 0, d = 0; d < fold->head_dim; part++, d += KV_Q8_0_DIMS)
        fold->q_scales[part][r] = attention_i8_avx2_take_row(x + d, out + d, KV_Q8_0_DIMS, &fold->start[part][r]);
    return 1;
}

/* Lanes from n_rows on: q and all scales are 0. */
static void start(bool is_q8_0, struct fold *fold, const struct attention_rows *rows,
                  const struct attention_keys *keys) {
    const int head_dim = keys->head_dim, n_pairs = head_dim / 2;
    _Alignas(32) int16_t q[MAX_ROWS][MAX_DIM];
    fold->head_dim = head_dim, fold->block_tokens = keys->block_tokens;
    memset(fold->s, 0, sizeof fold->s);
    memset(fold->o, 0, sizeof fold->o[0] * (size_t)head_dim);
    memset(fold->start, 0, sizeof fold->start);
    if (is_q8_0) {
        memset(fold->q_scales, 0, sizeof fold->q_scales);
        memset(fold->scales.v, 0, sizeof fold->scales.v);
    }
    for (int r = 0; r < MAX_ROWS; r++) {
        fold->max[r] = ATTENTION_MASKED, fold->denom[r] = 0;
        fold->d[r] = 0, fold->log2_d[r] = 0, fold->first[r] = INT32_MAX, fold->last[r] = -1;
        if (r >= rows->n_rows) {
            memset(q[r], 0, sizeof q[r][0] * (size_t)head_dim);
            continue;
        }
        fold->d[r] = take_row(is_q8_0, fold, rows->q[r], r, q[r]);
        fold->log2_d[r] = fold->d[r] * EXP2_LOG2E;
        fold->first[r] = rows->first_key[r], fold->last[r] = rows->last_key[r];
    }
    for (int r = 0; r < MAX_ROWS; r += LANES)
        for (int i = 0; i < n_pairs; i += LANES) transpose(q[r] + 2 * i, MAX_DIM / 2, fold->q[i][r], MAX_ROWS);
}

static void finish(const struct fold *fold, int n_rows, struct attention_state *state) {
    const int head_dim = fold->head_dim;
    _Alignas(32) float o[MAX_ROWS][MAX_DIM];
    for (int r = 0; r < n_rows; r += LANES)
        for (int d = 0; d < head_dim; d += LANES) transpose(&fold->o[d][r], MAX_ROWS, o[r] + d, MAX_DIM);
    for (int r = 0; r < n_rows; r++) {
        state->max[r] = fold->max[r] == ATTENTION_MASKED ? ATTENTION_MASKED : fold->max[r] * fold->d[r];
        state->denom[r] = fold->denom[r];
        memcpy(state->o + r * head_dim, o[r], sizeof o[r][0] * (size_t)head_dim);
    }
}

ALWAYS_INLINE void attention_rows_i8_avx2_fold(bool is_q8_0, const struct attention_rows *rows,
                                               const struct attention_keys *keys, int key_begin, int key_end,
                                               struct attention_state *state) {
    struct fold fold;
    int first, last;
    attention_tile_range(rows, key_end, &first, &last);
    attention_i8_avx2_fetch(is_q8_0, rows, keys, key_begin, first, last);
    start(is_q8_0, &fold, rows, keys);
    for (int key = key_begin; key <= last; key += TILE_KEYS) {
        if (!attention_i8_tile_at(is_q8_0, rows, keys, key_begin, key, first, last, &fold.tile)) continue;
        if (fold.tile.is_whole)
            fold_tile(is_q8_0, &fold, keys, true);
        else
            fold_tile(is_q8_0, &fold, keys, false);
    }
    finish(&fold, rows->n_rows, state);
}

#endif
