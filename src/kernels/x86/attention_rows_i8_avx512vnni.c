#include "kernels/kernel_table.h"
#include "kernels/x86/attention_i8_avx512vnni.h"

/* Everything of a call that has a lane for each row. */
struct fold {
    struct attention_i8_avx512vnni_rows rows;
    struct attention_i8_tile tile;
    int head_dim, block_tokens;
    _Alignas(64) int8_t q[MAX_DIM / 4][MAX_ROWS][4];
    _Alignas(64) float s[TILE_KEYS][MAX_ROWS];          /* scores, then weights */
    _Alignas(64) uint8_t p[TILE_KEYS / 4][MAX_ROWS][4]; /* weights rounded */
    _Alignas(64) float o[MAX_DIM][MAX_ROWS];
    _Alignas(64) float max[MAX_ROWS], denom[MAX_ROWS];
};

/* The rows that see key t of the tile. */
ALWAYS_INLINE __mmask16 seen_by(const struct fold *fold, int t) {
    __m512i key = _mm512_set1_epi32(fold->tile.key + t);
    __mmask16 is_begun = _mm512_cmple_epi32_mask(_mm512_load_si512(fold->rows.first), key);
    return _mm512_mask_cmpge_epi32_mask(is_begun, _mm512_load_si512(fold->rows.last), key);
}

/* Scores of the 16 keys of group g; returns the larger of max and those that the rows see. */
ALWAYS_INLINE __m512 score_group(struct fold *fold, int g, bool is_whole, __m512 max) {
    const size_t stride = 4 * (size_t)fold->block_tokens;
    const uint8_t *k = fold->tile.k[g];
    __m512i acc[LANES];
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++) acc[j] = _mm512_load_si512(fold->rows.start);
    for (int d = 0; d < fold->head_dim / 4; d++, k += stride) {
        __m512i q = _mm512_load_si512(fold->q[d]);
        attention_i8_avx512vnni_prefetch(k, fold->tile.k_ahead[g]);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            attention_i8_avx512vnni_dot(&acc[j], attention_i8_avx512vnni_quad(k + 4 * j), q);
    }
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++) {
        __m512 s =
            _mm512_mul_ps(_mm512_cvtepi32_ps(acc[j]), _mm512_set1_ps(((const float *)fold->tile.k_scales[g])[j]));
        __mmask16 mask = is_whole ? 0xffff : seen_by(fold, LANES * g + j);
        max = _mm512_mask_max_ps(max, mask, max, s);
        _mm512_store_ps(fold->s[LANES * g + j], s);
    }
    return max;
}

/* Scores become weights with V's scales in them; denom moves on. Returns the largest weight of each row. */
ALWAYS_INLINE __m512 weigh(struct fold *fold, bool is_whole, __m512 max, __m512 factor) {
    const struct attention_i8_tile *tile = &fold->tile;
    const __m512 log2_d = _mm512_load_ps(fold->rows.log2_d);
    __m512 lane[LANES], largest = _mm512_setzero_ps();
    for (int i = 0; i < LANES; i++) {
        __m512 p[TILE_GROUPS];
#pragma GCC unroll 4
        for (int g = 0; g < TILE_GROUPS; g++) {
            float *s = fold->s[LANES * g + i];
            __mmask16 mask = is_whole ? 0xffff : seen_by(fold, LANES * g + i);
            if (!is_whole && (LANES * g >= tile->end || LANES * g + LANES <= tile->begin)) mask = 0;
            __m512 x = _mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(s), max), log2_d);
            p[g] = _mm512_maskz_mov_ps(mask, exp2_avx512vnni(x));
            __m512 w = _mm512_maskz_mul_ps(mask, p[g], _mm512_set1_ps(((const float *)tile->v_scales[g])[i]));
            largest = _mm512_max_ps(largest, w);
            _mm512_store_ps(s, w);
        }
        lane[i] = _mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3]));
    }
#pragma GCC unroll 4
    for (int half = LANES / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++) lane[i] = _mm512_add_ps(lane[i], lane[i + half]);
    _mm512_store_ps(fold->denom, _mm512_fmadd_ps(_mm512_load_ps(fold->denom), factor, lane[0]));
    return largest;
}

/* Weights times inverse as bytes, four keys of a row to a lane. */
ALWAYS_INLINE void round_weights(struct fold *fold, __m512 inverse) {
    const __m512 shift = _mm512_set1_ps(ATTENTION_I8_P_ROUND);
    const __m512i high = _mm512_castps_si512(shift);
    for (int t = 0; t < TILE_KEYS / 4; t++) {
        __m512i w[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            w[i] = _mm512_castps_si512(_mm512_fmadd_ps(_mm512_load_ps(fold->s[4 * t + i]), inverse, shift));
        /* Each is 2^23's bits and a byte; of the shifted ones only the byte lies within reach of another. */
        __m512i low = _mm512_ternarylogic_epi32(w[0], _mm512_slli_epi32(w[1], 8), _mm512_slli_epi32(w[2], 16), 0x96);
        low = _mm512_ternarylogic_epi32(low, _mm512_slli_epi32(w[3], 24), high, 0x96);
        _mm512_store_si512(fold->p[t], low);
    }
}

/* o = p v * step + o * factor for 16 dims from d on. */
ALWAYS_INLINE void add_values(struct fold *fold, int d, __m512 step, __m512 factor) {
    const struct attention_i8_tile *tile = &fold->tile;
    const size_t stride = 4 * (size_t)fold->head_dim;
    __m512i acc[LANES];
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++) acc[j] = _mm512_setzero_si512();
    for (int t = tile->begin / LANES * 4; t < (tile->end + LANES - 1) / LANES * 4; t++) {
        const int8_t *v = tile->v[t / 4] + (size_t)(t % 4) * stride + 4 * (size_t)d;
        __m512i p = _mm512_load_si512(fold->p[t]);
        attention_i8_avx512vnni_prefetch(v, tile->v_ahead[t / 4]);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            attention_i8_avx512vnni_dot(&acc[j], p, attention_i8_avx512vnni_quad(v + 4 * j));
    }
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++) {
        __m512 o = _mm512_mul_ps(_mm512_load_ps(fold->o[d + j]), factor);
        _mm512_store_ps(fold->o[d + j], _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[j]), step, o));
    }
}

ALWAYS_INLINE void fold_tile(struct fold *fold, bool is_whole) {
    const struct attention_i8_tile *tile = &fold->tile;
    __m512 old_max = _mm512_load_ps(fold->max), max = old_max, inverse, step;
    for (int g = tile->begin / LANES; g < (tile->end + LANES - 1) / LANES; g++)
        max = score_group(fold, g, is_whole, max);
    __m512 log2_d = _mm512_load_ps(fold->rows.log2_d);
    __m512 factor = exp2_avx512vnni(_mm512_mul_ps(_mm512_sub_ps(old_max, max), log2_d));
    attention_i8_avx512vnni_steps(weigh(fold, is_whole, max, factor), &inverse, &step);
    round_weights(fold, inverse);
    for (int d = 0; d < fold->head_dim; d += LANES) add_values(fold, d, step, factor);
    _mm512_store_ps(fold->max, max);
}

static void start(struct fold *fold, const struct attention_rows *rows, const struct attention_keys *keys) {
    fold->head_dim = keys->head_dim, fold->block_tokens = keys->block_tokens;
    attention_i8_avx512vnni_take_rows(rows, keys->head_dim, &fold->rows);
    memset(fold->q, 0, sizeof fold->q[0] * (size_t)(keys->head_dim / 4));
    for (int r = 0; r < rows->n_rows; r++)
        for (int d = 0; d < keys->head_dim / 4; d++) memcpy(fold->q[d][r], fold->rows.q[r] + 4 * d, 4);
    for (int d = 0; d < keys->head_dim; d++) _mm512_store_ps(fold->o[d], _mm512_setzero_ps());
    for (int t = 0; t < TILE_KEYS; t++) _mm512_store_ps(fold->s[t], _mm512_setzero_ps());
    _mm512_store_ps(fold->max, _mm512_set1_ps(ATTENTION_MASKED));
    _mm512_store_ps(fold->denom, _mm512_setzero_ps());
}

static void finish(const struct fold *fold, int n_rows, struct attention_state *state) {
    const int head_dim = fold->head_dim;
    const __m512i column = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                              _mm512_set1_epi32(MAX_ROWS));
    for (int r = 0; r < n_rows; r++) {
        state->max[r] = fold->max[r] == ATTENTION_MASKED ? ATTENTION_MASKED : fold->max[r] * fold->rows.d[r];
        state->denom[r] = fold->denom[r];
        for (int d = 0; d < head_dim; d += LANES)
            _mm512_storeu_ps(state->o + r * head_dim + d, _mm512_i32gather_ps(column, &fold->o[d][r], 4));
    }
}

void attention_rows_i8_avx512vnni(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                                  int key_end, struct attention_state *state) {
    struct fold fold;
    int first, last;
    start(&fold, rows, keys);
    attention_tile_range(rows, key_end, &first, &last);
    for (int key = key_begin; key <= last; key += TILE_KEYS) {
        if (!attention_i8_tile_at(false, rows, keys, key_begin, key, first, last, &fold.tile)) continue;
        if (fold.tile.is_whole)
            fold_tile(&fold, true);
        else
            fold_tile(&fold, false);
    }
    finish(&fold, rows->n_rows, state);
}
