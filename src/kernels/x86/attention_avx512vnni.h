/* attention_avx512vnni: exactness rule 4 for 1 to 16 rows, keys in lanes for the scores, dims in lanes for the outputs.
 *
 * Both steps keep a block of rows x vectors in registers and read each stored K and V once per call, converting as they
 * load; a row's q and p are broadcast by the fma itself. The block's shape depends on the number of rows, so one code
 * serves one row (decode) and sixteen (prefill). Rows are padded to the block's height; padded rows are never stored.
 */
#ifndef KVICK_KERNELS_X86_ATTENTION_AVX512VNNI_H
#define KVICK_KERNELS_X86_ATTENTION_AVX512VNNI_H

#include <immintrin.h>

#include "kernels/x86/attention_float_tile.h"
#include "kernels/x86/exp_avx512vnni.h"
#include "kernels/x86/lanes_avx512vnni.h"

#define MAX_ROWS ATTENTION_MAX_ROWS
#define TILE_KEYS ATTENTION_TILE_KEYS
#define LANES 16
#define TILE_GROUPS (TILE_KEYS / LANES)
#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct attention_avx512vnni_call {
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

/* 16 elements as floats. element_bytes: 2 for f16, 4 for f32 */
ALWAYS_INLINE __m512 attention_avx512vnni_load(int element_bytes, const char *src) {
    if (element_bytes == 2) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)src));
    return _mm512_loadu_ps((const float *)src);
}

/* Blocks of a sequence lie anywhere, so the CPU cannot guess the next tile. Into L2: a tile may be as large as L1. */
ALWAYS_INLINE void attention_avx512vnni_prefetch(const char *src, uintptr_t ahead) {
    _mm_prefetch((const char *)((uintptr_t)src + ahead), _MM_HINT_T1);
}

/* p[row][key] = q . k for height rows and all seen groups, width groups at a time. */
ALWAYS_INLINE void attention_avx512vnni_scores_of(int element_bytes, int height, int width,
                                                  struct attention_avx512vnni_call *call) {
    const size_t stride = (size_t)call->keys->block_tokens * (size_t)element_bytes;
    const int head_dim = call->keys->head_dim, end = (call->tile.end + LANES - 1) / LANES;
    for (int g = call->tile.begin / LANES / width * width; g < end; g += width) {
        __m512 acc[16][4], k[4];
        const char *src[4];
#pragma GCC unroll 4
        for (int c = 0; c < width; c++) src[c] = call->tile.k[g + c];
#pragma GCC unroll 16
        for (int r = 0; r < height; r++)
#pragma GCC unroll 4
            for (int c = 0; c < width; c++) acc[r][c] = _mm512_setzero_ps();
        for (int d = 0; d < head_dim; d++) {
#pragma GCC unroll 4
            for (int c = 0; c < width; c++) {
                attention_avx512vnni_prefetch(src[c], call->tile.k_ahead[g + c]);
                k[c] = attention_avx512vnni_load(element_bytes, src[c]);
                src[c] += stride;
            }
#pragma GCC unroll 16
            for (int r = 0; r < height; r++) {
                __m512 q = _mm512_set1_ps(call->q[d][r]);
#pragma GCC unroll 4
                for (int c = 0; c < width; c++) acc[r][c] = _mm512_fmadd_ps(q, k[c], acc[r][c]);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < height; r++)
#pragma GCC unroll 4
            for (int c = 0; c < width; c++) _mm512_store_ps(&call->p[r][LANES * (g + c)], acc[r][c]);
    }
}

/* o = o * factor, then + p * v over the seen keys, for height rows and dims [16 * vector, 16 * (vector + width)). */
ALWAYS_INLINE void attention_avx512vnni_values_of(int element_bytes, int height, int width, int vector,
                                                  struct attention_avx512vnni_call *call) {
    const int head_dim = call->keys->head_dim, n_rows = call->rows->n_rows;
    const size_t stride = (size_t)head_dim * (size_t)element_bytes;
    float *o = call->state->o + LANES * vector;
    __m512 acc[16][4], v[4];
#pragma GCC unroll 16
    for (int r = 0; r < height; r++)
#pragma GCC unroll 4
        for (int c = 0; c < width; c++) {
            const float *src = o + (r < n_rows ? r : 0) * head_dim + LANES * c;
            acc[r][c] = _mm512_mul_ps(_mm512_loadu_ps(src), _mm512_set1_ps(call->factor[r]));
        }
    for (int t = call->tile.begin; t < call->tile.end;) {
        const char *src = call->tile.v[t / LANES] + (size_t)(t % LANES) * stride;
        src += (size_t)(LANES * vector) * (size_t)element_bytes;
        const uintptr_t ahead = call->tile.v_ahead[t / LANES];
        int stop = t / LANES * LANES + LANES < call->tile.end ? t / LANES * LANES + LANES : call->tile.end;
        for (; t < stop; t++, src += stride) {
#pragma GCC unroll 4
            for (int c = 0; c < width; c++) {
                if (LANES * c * element_bytes % 64 == 0)
                    attention_avx512vnni_prefetch(src + LANES * c * element_bytes, ahead);
                v[c] = attention_avx512vnni_load(element_bytes, src + LANES * c * element_bytes);
            }
#pragma GCC unroll 16
            for (int r = 0; r < height; r++) {
                __m512 p = _mm512_set1_ps(call->p[r][t]);
#pragma GCC unroll 4
                for (int c = 0; c < width; c++) acc[r][c] = _mm512_fmadd_ps(p, v[c], acc[r][c]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < height; r++)
        if (r < n_rows) {
#pragma GCC unroll 4
            for (int c = 0; c < width; c++) _mm512_storeu_ps(o + r * head_dim + LANES * c, acc[r][c]);
        }
}

/* 24 accumulators at most: with the vectors of K or V they fit the 32 registers. */
ALWAYS_INLINE void attention_avx512vnni_step_of(int element_bytes, int height, int width,
                                                struct attention_avx512vnni_call *call, bool is_scores) {
    if (is_scores) {
        attention_avx512vnni_scores_of(element_bytes, height, width, call);
        return;
    }
    int vector = 0, n_vectors = call->keys->head_dim / LANES;
    for (; vector + width <= n_vectors; vector += width)
        attention_avx512vnni_values_of(element_bytes, height, width, vector, call);
    if (width > 1)
        for (; vector < n_vectors; vector++) attention_avx512vnni_values_of(element_bytes, height, 1, vector, call);
}

ALWAYS_INLINE void attention_avx512vnni_step(int element_bytes, struct attention_avx512vnni_call *call,
                                             bool is_scores) {
    switch (call->rows->n_rows) {
    case 1: attention_avx512vnni_step_of(element_bytes, 1, 4, call, is_scores); break;
    case 2: attention_avx512vnni_step_of(element_bytes, 2, 4, call, is_scores); break;
    case 3: attention_avx512vnni_step_of(element_bytes, 3, 4, call, is_scores); break;
    case 4: attention_avx512vnni_step_of(element_bytes, 4, 4, call, is_scores); break;
    case 5:
    case 6: attention_avx512vnni_step_of(element_bytes, 6, 4, call, is_scores); break;
    case 7:
    case 8: attention_avx512vnni_step_of(element_bytes, 8, 2, call, is_scores); break;
    case 9:
    case 10:
    case 11:
    case 12: attention_avx512vnni_step_of(element_bytes, 12, 2, call, is_scores); break;
    default: attention_avx512vnni_step_of(element_bytes, 16, 1, call, is_scores); break;
    }
}

/* The keys of the tile that this row sees, one bit each. */
static inline uint64_t attention_avx512vnni_seen(const struct attention_avx512vnni_call *call, int row) {
    int first, last;
    attention_float_tile_seen(&call->tile, call->rows, row, &first, &last);
    return first > last ? 0 : ~UINT64_C(0) >> (63 - last) & ~UINT64_C(0) << first;
}

/* Scores become weights; max and denom move on; factor is set. */
static inline void attention_avx512vnni_softmax(struct attention_avx512vnni_call *call) {
    const int n_rows = call->rows->n_rows;
    _Alignas(64) float max[MAX_ROWS] = {0}, sum[MAX_ROWS] = {0};
    uint64_t seen[MAX_ROWS];
    for (int r = 0; r < n_rows; r++) {
        const float *s = call->p[r];
        __m512 m = _mm512_set1_ps(call->max[r]);
        seen[r] = attention_avx512vnni_seen(call, r);
        for (int g = 0; g < TILE_GROUPS; g++)
            m = _mm512_mask_max_ps(m, (__mmask16)(seen[r] >> LANES * g), m, _mm512_load_ps(s + LANES * g));
        max[r] = _mm512_reduce_max_ps(m);
    }
    for (int r = 0; r < n_rows; r++) {
        __m512 m = _mm512_set1_ps(max[r]), p[TILE_GROUPS];
        for (int g = 0; g < TILE_GROUPS; g++) {
            float *s = call->p[r] + LANES * g;
            p[g] = exp_avx512vnni_masked((__mmask16)(seen[r] >> LANES * g), _mm512_sub_ps(_mm512_load_ps(s), m));
            _mm512_store_ps(s, p[g]);
        }
        sum[r] = lanes_avx512vnni_tree(_mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3])));
    }
    __m512 new_max = _mm512_load_ps(max);
    __m512 factor = exp_avx512vnni(_mm512_sub_ps(_mm512_load_ps(call->max), new_max));
    _mm512_store_ps(call->factor, factor);
    _mm512_store_ps(call->denom, _mm512_fmadd_ps(_mm512_load_ps(call->denom), factor, _mm512_load_ps(sum)));
    _mm512_store_ps(call->max, new_max);
}

static inline void attention_avx512vnni_start(struct attention_avx512vnni_call *call) {
    const int n_rows = call->rows->n_rows, head_dim = call->keys->head_dim;
    for (int d = 0; d < head_dim; d++) _mm512_store_ps(call->q[d], _mm512_setzero_ps());
    for (int r = 0; r < MAX_ROWS; r++) {
        call->max[r] = ATTENTION_MASKED;
        call->denom[r] = 0;
        for (int t = 0; t < TILE_KEYS; t++) call->p[r][t] = 0;
    }
    for (int r = 0; r < n_rows; r++)
        for (int d = 0; d < head_dim; d++) call->q[d][r] = call->rows->q[r][d];
    for (int i = 0; i < n_rows * head_dim; i += LANES) _mm512_storeu_ps(call->state->o + i, _mm512_setzero_ps());
}

ALWAYS_INLINE void attention_avx512vnni_fold(int element_bytes, const struct attention_rows *rows,
                                             const struct attention_keys *keys, int key_begin, int key_end,
                                             struct attention_state *state) {
    struct attention_avx512vnni_call call;
    call.rows = rows;
    call.keys = keys;
    call.state = state;
    attention_avx512vnni_start(&call);
    int first, last;
    attention_tile_range(rows, key_end, &first, &last);
    for (int key = key_begin; key <= last; key += TILE_KEYS) {
        if (!attention_float_tile_at(LANES, element_bytes, keys, key_begin, key, first, last, &call.tile)) continue;
        attention_avx512vnni_step(element_bytes, &call, true);
        attention_avx512vnni_softmax(&call);
        attention_avx512vnni_step(element_bytes, &call, false);
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
