#include "kernels/kernel_table.h"
#include "kernels/x86/attention_i8_avx512vnni.h"

struct fold {
    struct attention_i8_avx512vnni_rows rows;
    struct attention_i8_tile tile;
    int n_rows, head_dim, block_tokens;
    float *o;                                    /* the state's */
    _Alignas(64) float s[MAX_ROWS][TILE_KEYS];   /* scores, then weights */
    _Alignas(64) uint8_t p[MAX_ROWS][TILE_KEYS]; /* weights rounded */
    _Alignas(64) float max[MAX_ROWS], denom[MAX_ROWS], factor[MAX_ROWS], step[MAX_ROWS];
};

/* Scores of height rows and all seen groups, width groups at a time. */
ALWAYS_INLINE void score(int height, int width, struct fold *fold) {
    const struct attention_i8_tile *tile = &fold->tile;
    const size_t stride = 4 * (size_t)fold->block_tokens;
    for (int g = tile->begin / LANES / width * width; g < (tile->end + LANES - 1) / LANES; g += width) {
        __m512i acc[16][4], k[4];
        const uint8_t *src[4];
#pragma GCC unroll 4
        for (int c = 0; c < width; c++) src[c] = tile->k[g + c];
#pragma GCC unroll 16
        for (int r = 0; r < height; r++)
#pragma GCC unroll 4
            for (int c = 0; c < width; c++) acc[r][c] = _mm512_set1_epi32(fold->rows.start[r]);
        for (int d = 0; d < fold->head_dim; d += 4) {
#pragma GCC unroll 4
            for (int c = 0; c < width; c++) {
                attention_i8_avx512vnni_prefetch(src[c], tile->k_ahead[g + c]);
                k[c] = _mm512_loadu_si512(src[c]);
                src[c] += stride;
            }
#pragma GCC unroll 16
            for (int r = 0; r < height; r++) {
                __m512i q = attention_i8_avx512vnni_quad(fold->rows.q[r] + d);
#pragma GCC unroll 4
                for (int c = 0; c < width; c++) attention_i8_avx512vnni_dot(&acc[r][c], k[c], q);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < height; r++)
#pragma GCC unroll 4
            for (int c = 0; c < width; c++)
                _mm512_store_ps(&fold->s[r][LANES * (g + c)],
                                _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][c]), _mm512_loadu_ps(tile->k_scales[g + c])));
    }
}

/* o = p v * step + o * factor for height rows and dims [16 * vector, 16 * (vector + width)). */
ALWAYS_INLINE void add_values(int height, int width, int vector, struct fold *fold) {
    const struct attention_i8_tile *tile = &fold->tile;
    const int head_dim = fold->head_dim;
    __m512i acc[16][4], v[4];
#pragma GCC unroll 16
    for (int r = 0; r < height; r++)
#pragma GCC unroll 4
        for (int c = 0; c < width; c++) acc[r][c] = _mm512_setzero_si512();
    for (int t = tile->begin / LANES * 4; t < (tile->end + LANES - 1) / LANES * 4; t++) {
        const int8_t *src = tile->v[t / 4] + 4 * (size_t)(t % 4 * head_dim + LANES * vector);
#pragma GCC unroll 4
        for (int c = 0; c < width; c++) {
            attention_i8_avx512vnni_prefetch(src + 4 * LANES * c, tile->v_ahead[t / 4]);
            v[c] = _mm512_loadu_si512(src + 4 * LANES * c);
        }
#pragma GCC unroll 16
        for (int r = 0; r < height; r++) {
            __m512i p = attention_i8_avx512vnni_quad(fold->p[r] + 4 * t);
#pragma GCC unroll 4
            for (int c = 0; c < width; c++) attention_i8_avx512vnni_dot(&acc[r][c], p, v[c]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < height; r++)
        if (r < fold->n_rows) {
#pragma GCC unroll 4
            for (int c = 0; c < width; c++) {
                float *to = fold->o + r * head_dim + LANES * (vector + c);
                __m512 o = _mm512_mul_ps(_mm512_loadu_ps(to), _mm512_set1_ps(fold->factor[r]));
                o = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][c]), _mm512_set1_ps(fold->step[r]), o);
                _mm512_storeu_ps(to, o);
            }
        }
}

/* 24 accumulators at most: with the vectors of K or V they fit the 32 registers. */
ALWAYS_INLINE void dots_of(int height, int width, struct fold *fold, bool is_scores) {
    if (is_scores) {
        score(height, width, fold);
        return;
    }
    int vector = 0, n_vectors = fold->head_dim / LANES;
    for (; vector + width <= n_vectors; vector += width) add_values(height, width, vector, fold);
    if (width > 1)
        for (; vector < n_vectors; vector++) add_values(height, 1, vector, fold);
}

ALWAYS_INLINE void dots(struct fold *fold, bool is_scores) {
    switch (fold->n_rows) {
    case 1: dots_of(1, 4, fold, is_scores); break;
    case 2: dots_of(2, 4, fold, is_scores); break;
    case 3: dots_of(3, 4, fold, is_scores); break;
    case 4: dots_of(4, 4, fold, is_scores); break;
    case 5:
    case 6: dots_of(6, 4, fold, is_scores); break;
    case 7:
    case 8: dots_of(8, 2, fold, is_scores); break;
    case 9:
    case 10:
    case 11:
    case 12: dots_of(12, 2, fold, is_scores); break;
    default: dots_of(16, 1, fold, is_scores); break;
    }
}

/* Scores of one row become weights with V's scales in them. Returns the largest; *out_sum is what denom gets. */
ALWAYS_INLINE float weigh(struct fold *fold, int row, uint64_t seen, float max, float *out_sum) {
    const __m512 m = _mm512_set1_ps(max), log2_d = _mm512_set1_ps(fold->rows.log2_d[row]);
    __m512 p[TILE_GROUPS], largest = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int g = 0; g < TILE_GROUPS; g++) {
        float *s = fold->s[row] + LANES * g;
        __mmask16 mask = (__mmask16)(seen >> LANES * g);
        __m512 x = _mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(s), m), log2_d);
        p[g] = _mm512_maskz_mov_ps(mask, exp2_avx512vnni(x));
        __m512 w = _mm512_maskz_mul_ps(mask, p[g], _mm512_loadu_ps(fold->tile.v_scales[g]));
        largest = _mm512_max_ps(largest, w);
        _mm512_store_ps(s, w);
    }
    *out_sum = lanes_avx512vnni_tree(_mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3])));
    return _mm512_reduce_max_ps(largest);
}

static inline void softmax(struct fold *fold) {
    _Alignas(64) float max[MAX_ROWS] = {0}, sum[MAX_ROWS] = {0}, largest[MAX_ROWS] = {0}, inverse[MAX_ROWS];
    uint64_t seen[MAX_ROWS];
    __m512 inverses, steps;
    for (int r = 0; r < fold->n_rows; r++) {
        __m512 m = _mm512_set1_ps(fold->max[r]);
        seen[r] = attention_i8_avx512vnni_seen(&fold->rows, &fold->tile, r);
#pragma GCC unroll 4
        for (int g = 0; g < TILE_GROUPS; g++)
            m = _mm512_mask_max_ps(m, (__mmask16)(seen[r] >> LANES * g), m, _mm512_load_ps(fold->s[r] + LANES * g));
        max[r] = _mm512_reduce_max_ps(m);
    }
    for (int r = 0; r < fold->n_rows; r++) largest[r] = weigh(fold, r, seen[r], max[r], &sum[r]);
    attention_i8_avx512vnni_steps(_mm512_load_ps(largest), &inverses, &steps);
    _mm512_store_ps(inverse, inverses);
    _mm512_store_ps(fold->step, steps);
    for (int r = 0; r < fold->n_rows; r++)
#pragma GCC unroll 4
        for (int t = 0; t < TILE_KEYS; t += LANES) {
            __m512 p = _mm512_fmadd_ps(_mm512_load_ps(fold->s[r] + t), _mm512_set1_ps(inverse[r]),
                                       _mm512_set1_ps(ATTENTION_I8_P_ROUND));
            _mm_store_si128((__m128i *)(fold->p[r] + t), _mm512_cvtepi32_epi8(_mm512_castps_si512(p)));
        }
    __m512 new_max = _mm512_load_ps(max);
    __m512 moved = _mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(fold->max), new_max), _mm512_load_ps(fold->rows.log2_d));
    __m512 factor = exp2_avx512vnni(moved);
    _mm512_store_ps(fold->factor, factor);
    _mm512_store_ps(fold->denom, _mm512_fmadd_ps(_mm512_load_ps(fold->denom), factor, _mm512_load_ps(sum)));
    _mm512_store_ps(fold->max, new_max);
}

static void start(struct fold *fold, const struct attention_rows *rows, const struct attention_keys *keys,
                  struct attention_state *state) {
    fold->n_rows = rows->n_rows, fold->head_dim = keys->head_dim, fold->block_tokens = keys->block_tokens;
    fold->o = state->o;
    attention_i8_avx512vnni_take_rows(rows, keys->head_dim, &fold->rows);
    for (int r = rows->n_rows; r < MAX_ROWS; r++) { /* rows that pad a block of dots */
        memset(fold->rows.q[r], 0, (size_t)keys->head_dim);
        memset(fold->p[r], 0, TILE_KEYS);
    }
    for (int r = 0; r < rows->n_rows; r++)
        for (int t = 0; t < TILE_KEYS; t += LANES) _mm512_store_ps(fold->s[r] + t, _mm512_setzero_ps());
    for (int i = 0; i < rows->n_rows * keys->head_dim; i += LANES) _mm512_storeu_ps(state->o + i, _mm512_setzero_ps());
    _mm512_store_ps(fold->max, _mm512_set1_ps(ATTENTION_MASKED));
    _mm512_store_ps(fold->denom, _mm512_setzero_ps());
}

void attention_keys_i8_avx512vnni(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                                  int key_end, struct attention_state *state) {
    struct fold fold;
    int first, last;
    start(&fold, rows, keys, state);
    attention_tile_range(rows, key_end, &first, &last);
    for (int key = key_begin; key <= last; key += TILE_KEYS) {
        if (!attention_i8_tile_at(false, rows, keys, key_begin, key, first, last, &fold.tile)) continue;
        dots(&fold, true);
        softmax(&fold);
        dots(&fold, false);
    }
    for (int r = 0; r < rows->n_rows; r++) {
        state->max[r] = fold.max[r] == ATTENTION_MASKED ? ATTENTION_MASKED : fold.max[r] * fold.rows.d[r];
        state->denom[r] = fold.denom[r];
    }
}
