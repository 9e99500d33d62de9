/* attention_avx2: exactness rule 4 for 1 to 16 rows, keys in lanes for the scores, dims in lanes for the outputs.
 *
 * Both steps keep a block of rows x vectors in registers and convert K and V as they load them; more than 6 rows take
 * several passes, which find K and V in L1. The block's shape depends on the number of rows, so one code serves one row
 * (decode) and sixteen (prefill). Rows are padded to the block's height; padded rows are never stored.
 */
#ifndef KVICK_KERNELS_X86_ATTENTION_AVX2_H
#define KVICK_KERNELS_X86_ATTENTION_AVX2_H

#include <immintrin.h>
#include <math.h>

#include "kernels/x86/attention_float_tile.h"
#include "kernels/x86/exp_avx2.h"
#include "kernels/x86/lanes_avx2.h"

#define MAX_ROWS ATTENTION_MAX_ROWS
#define TILE_KEYS ATTENTION_TILE_KEYS
#define LANES 8
#define TILE_GROUPS (TILE_KEYS / LANES)
#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct attention_avx2_call {
    const struct attention_rows *rows;
    const struct attention_keys *keys;
    struct attention_state *state;
    _Alignas(64) float q[ATTENTION_MAX_HEAD_DIM][MAX_ROWS];
    _Alignas(64) float p[MAX_ROWS][TILE_KEYS]; /* scores, then weights */
    _Alignas(64) float max[MAX_ROWS];
    _Alignas(64) float denom[MAX_ROWS];
    _Alignas(64) float factor[MAX_ROWS];
    struct attention_float_tile tile;
};

/* 8 elements as floats. element_bytes: 2 for f16, 4 for f32 */
ALWAYS_INLINE __m256 attention_avx2_load(int element_bytes, const char *src) {
    if (element_bytes == 2) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src));
    return _mm256_loadu_ps((const float *)src);
}

/* Blocks of a sequence lie anywhere, so the CPU cannot guess the next tile. Into L2: a tile may be as large as L1. */
ALWAYS_INLINE void attention_avx2_prefetch(const char *src, uintptr_t ahead) {
    _mm_prefetch((const char *)((uintptr_t)src + ahead), _MM_HINT_T1);
}

/* p[row][key] = q . k for height rows from row on and all seen groups, width groups at a time. */
ALWAYS_INLINE void attention_avx2_scores_of(int element_bytes, int row, int height, int width,
                                            struct attention_avx2_call *call) {
    const size_t stride = (size_t)call->keys->block_tokens * (size_t)element_bytes;
    const int head_dim = call->keys->head_dim, end = (call->tile.end + LANES - 1) / LANES;
    for (int g = call->tile.begin / LANES / width * width; g < end; g += width) {
        __m256 acc[6][8], k[8];
        const char *src[8];
#pragma GCC unroll 8
        for (int c = 0; c < width; c++) src[c] = call->tile.k[g + c];
#pragma GCC unroll 8
        for (int r = 0; r < height; r++)
#pragma GCC unroll 8
            for (int c = 0; c < width; c++) acc[r][c] = _mm256_setzero_ps();
        for (int d = 0; d < head_dim; d++) {
#pragma GCC unroll 8
            for (int c = 0; c < width; c++) {
                if (c % 2 == 0) attention_avx2_prefetch(src[c], call->tile.k_ahead[g + c]);
                k[c] = attention_avx2_load(element_bytes, src[c]);
                src[c] += stride;
            }
#pragma GCC unroll 8
            for (int r = 0; r < height; r++) {
                __m256 q = _mm256_set1_ps(call->q[d][row + r]);
#pragma GCC unroll 8
                for (int c = 0; c < width; c++) acc[r][c] = _mm256_fmadd_ps(q, k[c], acc[r][c]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < height; r++)
#pragma GCC unroll 8
            for (int c = 0; c < width; c++) _mm256_store_ps(&call->p[row + r][LANES * (g + c)], acc[r][c]);
    }
}

/* o = o * factor, then + p * v over the seen keys, for height rows from row on and dims [16 * vector, 16 * (vector +
 * width)). */
ALWAYS_INLINE void attention_avx2_values_of(int element_bytes, int row, int height, int width, int vector,
                                            struct attention_avx2_call *call) {
    const int head_dim = call->keys->head_dim, n_rows = call->rows->n_rows;
    const size_t stride = (size_t)head_dim * (size_t)element_bytes;
    float *o = call->state->o + LANES * vector;
    __m256 acc[6][8], v[8];
#pragma GCC unroll 8
    for (int r = 0; r < height; r++)
#pragma GCC unroll 8
        for (int c = 0; c < width; c++) {
            const float *src = o + (row + r < n_rows ? row + r : 0) * head_dim + LANES * c;
            acc[r][c] = _mm256_mul_ps(_mm256_loadu_ps(src), _mm256_set1_ps(call->factor[row + r]));
        }
    for (int t = call->tile.begin; t < call->tile.end;) {
        const char *src = call->tile.v[t / LANES] + (size_t)(t % LANES) * stride;
        src += (size_t)(LANES * vector) * (size_t)element_bytes;
        const uintptr_t ahead = call->tile.v_ahead[t / LANES];
        int stop = t / LANES * LANES + LANES < call->tile.end ? t / LANES * LANES + LANES : call->tile.end;
        for (; t < stop; t++, src += stride) {
#pragma GCC unroll 8
            for (int c = 0; c < width; c++) {
                if (LANES * c * element_bytes % 64 == 0)
                    attention_avx2_prefetch(src + LANES * c * element_bytes, ahead);
                v[c] = attention_avx2_load(element_bytes, src + LANES * c * element_bytes);
            }
#pragma GCC unroll 8
            for (int r = 0; r < height; r++) {
                __m256 p = _mm256_set1_ps(call->p[row + r][t]);
#pragma GCC unroll 8
                for (int c = 0; c < width; c++) acc[r][c] = _mm256_fmadd_ps(p, v[c], acc[r][c]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < height; r++)
        if (row + r < n_rows) {
#pragma GCC unroll 8
            for (int c = 0; c < width; c++) _mm256_storeu_ps(o + (row + r) * head_dim + LANES * c, acc[r][c]);
        }
}

/* 12 accumulators at most: with a vector of K or V and a broadcast they fit the 16 registers. */
ALWAYS_INLINE void attention_avx2_step_of(int element_bytes, int row, int height, int width,
                                          struct attention_avx2_call *call, bool is_scores) {
    if (is_scores) {
        attention_avx2_scores_of(element_bytes, row, height, width, call);
        return;
    }
    int vector = 0, n_vectors = call->keys->head_dim / LANES;
    for (; vector + width <= n_vectors; vector += width)
        attention_avx2_values_of(element_bytes, row, height, width, vector, call);
    if (width > 2) /* head_dim is a multiple of two vectors */
        for (; vector < n_vectors; vector += 2) attention_avx2_values_of(element_bytes, row, height, 2, vector, call);
}

ALWAYS_INLINE void attention_avx2_step(int element_bytes, struct attention_avx2_call *call, bool is_scores) {
    for (int row = 0, n = call->rows->n_rows; row < n;) {
        switch (n - row) {
        case 1:
            attention_avx2_step_of(element_bytes, row, 1, 8, call, is_scores);
            row += 1;
            break;
        case 2:
            attention_avx2_step_of(element_bytes, row, 2, 4, call, is_scores);
            row += 2;
            break;
        case 3:
            attention_avx2_step_of(element_bytes, row, 3, element_bytes == 2 ? 2 : 4, call, is_scores);
            row += 3;
            break;
        case 4:
        case 7:
        case 8:
            attention_avx2_step_of(element_bytes, row, 4, 2, call, is_scores);
            row += 4;
            break;
        default:
            attention_avx2_step_of(element_bytes, row, 6, 2, call, is_scores);
            row += 6;
            break;
        }
    }
}

/* Scores of keys that the row does not see become -inf: no maximum, and exp gives +0. */
static inline void attention_avx2_hide(struct attention_avx2_call *call, int row) {
    int first, last;
    attention_float_tile_seen(&call->tile, call->rows, row, &first, &last);
    for (int t = 0; t < TILE_KEYS; t++)
        if (t < first || t > last) call->p[row][t] = -INFINITY;
}

/* Scores of one row become weights; returns their sum. */
static inline float attention_avx2_weights(float *s, float max) {
    __m256 p[TILE_GROUPS];
    for (int g = 0; g < TILE_GROUPS; g++) {
        p[g] = exp_avx2(_mm256_sub_ps(_mm256_load_ps(s + LANES * g), _mm256_set1_ps(max)));
        _mm256_store_ps(s + LANES * g, p[g]);
    }
    return lanes_avx2_tree(_mm256_add_ps(_mm256_add_ps(p[0], p[2]), _mm256_add_ps(p[4], p[6])),
                           _mm256_add_ps(_mm256_add_ps(p[1], p[3]), _mm256_add_ps(p[5], p[7])));
}

/* Scores become weights; max and denom move on; factor is set. */
static inline void attention_avx2_softmax(struct attention_avx2_call *call) {
    const int n_rows = call->rows->n_rows;
    _Alignas(32) float max[MAX_ROWS] = {0}, sum[MAX_ROWS] = {0};
    for (int r = 0; r < n_rows; r++) {
        __m256 m = _mm256_set1_ps(call->max[r]);
        attention_avx2_hide(call, r);
        for (int g = 0; g < TILE_GROUPS; g++) m = _mm256_max_ps(m, _mm256_load_ps(call->p[r] + LANES * g));
        max[r] = lanes_avx2_max(m);
    }
    for (int r = 0; r < n_rows; r++) sum[r] = attention_avx2_weights(call->p[r], max[r]);
    for (int r = 0; r < MAX_ROWS; r += LANES) {
        __m256 new_max = _mm256_load_ps(max + r);
        __m256 factor = exp_avx2(_mm256_sub_ps(_mm256_load_ps(call->max + r), new_max));
        __m256 denom = _mm256_fmadd_ps(_mm256_load_ps(call->denom + r), factor, _mm256_load_ps(sum + r));
        _mm256_store_ps(call->factor + r, factor);
        _mm256_store_ps(call->denom + r, denom);
        _mm256_store_ps(call->max + r, new_max);
    }
}

static inline void attention_avx2_start(struct attention_avx2_call *call) {
    const int n_rows = call->rows->n_rows, head_dim = call->keys->head_dim;
    for (int d = 0; d < head_dim; d++)
        for (int r = 0; r < MAX_ROWS; r++) call->q[d][r] = 0;
    for (int r = 0; r < MAX_ROWS; r++) {
        call->max[r] = ATTENTION_MASKED;
        call->denom[r] = 0;
        for (int t = 0; t < TILE_KEYS; t++) call->p[r][t] = 0;
    }
    for (int r = 0; r < n_rows; r++)
        for (int d = 0; d < head_dim; d++) call->q[d][r] = call->rows->q[r][d];
    for (int i = 0; i < n_rows * head_dim; i += LANES) _mm256_storeu_ps(call->state->o + i, _mm256_setzero_ps());
}

ALWAYS_INLINE void attention_avx2_fold(int element_bytes, const struct attention_rows *rows,
                                       const struct attention_keys *keys, int key_begin, int key_end,
                                       struct attention_state *state) {
    struct attention_avx2_call call;
    call.rows = rows;
    call.keys = keys;
    call.state = state;
    attention_avx2_start(&call);
    int first, last;
    attention_tile_range(rows, key_end, &first, &last);
    for (int key = key_begin; key <= last; key += TILE_KEYS) {
        if (!attention_float_tile_at(LANES, element_bytes, keys, key_begin, key, first, last, &call.tile)) continue;
        attention_avx2_step(element_bytes, &call, true);
        attention_avx2_softmax(&call);
        attention_avx2_step(element_bytes, &call, false);
    }
    for (int r = 0; r < rows->n_rows; r++) {
        state->max[r] = call.max[r];
        state->denom[r] = call.denom[r];
    }
}

#undef MAX_ROWS
#undef TILE_KEYS
#undef LANES
#undef TILE_GROUPS
#undef ALWAYS_INLINE
#endif
