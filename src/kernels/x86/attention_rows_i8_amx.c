/* Lanes are keys, then dims, as in attention_keys_i8_avx512vnni; tiles do the dots of all rows. What is left is the
 * softmax, some seventeen operations for sixteen scores.
 *
 * Around a product of tiles, for some 250 cycles, vectors of 512 bits have one multiplier instead of two; after a
 * thousand cycles without one, the next waits for seven hundred. So each tile of keys has two bursts of products, half
 * its time apart: the scores of the next tile after its own weights, its values at its end. What waits for a burst, or
 * for a reduction over lanes, has vector work of a neighbouring tile before it. */
#include "kernels/kernel_table.h"
#include "kernels/x86/attention_i8_avx512vnni.h"
#include "kernels/x86/tiles_amx.h"

/* A product of tiles takes this many dims of a head, or this many dims or keys. */
#define K_OF_LONG 64
#define K_OF_SHORT 16

/* Tile registers. */
#define SUMS_0 0
#define SUMS_1 1
#define SUMS_2 2
#define SUMS_3 3
#define LONG_LEFT 4   /* Q */
#define LONG_RIGHT 5  /* K */
#define SHORT_LEFT 6  /* Q, weights */
#define SHORT_RIGHT 7 /* K, V */

/* One tile of keys on its way. */
struct stage {
    struct attention_i8_tile tile;
    _Alignas(64) float s[MAX_ROWS][TILE_KEYS];           /* dots (int32), then scores, then weights */
    _Alignas(64) float factor[MAX_ROWS], step[MAX_ROWS]; /* that o gets for the tile */
};

struct fold {
    struct attention_i8_avx512vnni_rows rows;
    struct stage stages[2];
    int n_rows, head_dim, block_tokens;
    float *o;                                    /* the state's */
    _Alignas(64) int32_t start[MAX_ROWS][LANES]; /* rows.start in all lanes */
    _Alignas(64) float row_max[MAX_ROWS][LANES]; /* what is left to reduce over lanes */
    _Alignas(64) float row_sum[MAX_ROWS][LANES], row_largest[MAX_ROWS][LANES];
    _Alignas(64) uint8_t p[MAX_ROWS][TILE_KEYS]; /* weights rounded */
    _Alignas(64) int32_t pv[MAX_DIM / LANES][MAX_ROWS][LANES];
    _Alignas(64) float max[MAX_ROWS], denom[MAX_ROWS], inverse[MAX_ROWS];
};

/* ---- reductions of sixteen rows at once ---- */

ALWAYS_INLINE __m512 reduce_step(bool is_max, __m512 a, __m512 b) {
    return is_max ? _mm512_max_ps(a, b) : _mm512_add_ps(a, b);
}

/* Rows i and i + 4, each half as wide. */
ALWAYS_INLINE __m512 reduce_halves(bool is_max, const float rows[MAX_ROWS][LANES], int i) {
    __m512 a = _mm512_load_ps(rows[i]), b = _mm512_load_ps(rows[i + 4]);
    return reduce_step(is_max, _mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
}

/* Rows i, i + 4, i + 8, i + 12, four lanes each. */
ALWAYS_INLINE __m512 reduce_quarters(bool is_max, const float rows[MAX_ROWS][LANES], int i) {
    __m512 a = reduce_halves(is_max, rows, i), b = reduce_halves(is_max, rows, i + 8);
    return reduce_step(is_max, _mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

ALWAYS_INLINE __m512 reduce_eighths(bool is_max, const float rows[MAX_ROWS][LANES], int i) {
    __m512 a = reduce_quarters(is_max, rows, i), b = reduce_quarters(is_max, rows, i + 1);
    return reduce_step(is_max, _mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, 0x4e));
}

/* Lane r: lanes_avx512vnni_tree of row r, or the largest of its lanes. */
ALWAYS_INLINE __m512 reduce(bool is_max, const float rows[MAX_ROWS][LANES]) {
    __m512 a = reduce_eighths(is_max, rows, 0), b = reduce_eighths(is_max, rows, 2);
    return reduce_step(is_max, _mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* ---- scores ---- */

static void shape(int n_rows) {
    struct tiles_amx tiles = {0};
    for (int i = SUMS_0; i <= SUMS_3; i++) tiles_amx_shape(&tiles, i, n_rows, 64);
    tiles_amx_shape(&tiles, LONG_LEFT, n_rows, K_OF_LONG);
    tiles_amx_shape(&tiles, LONG_RIGHT, K_OF_LONG / 4, 64);
    tiles_amx_shape(&tiles, SHORT_LEFT, n_rows, K_OF_SHORT);
    tiles_amx_shape(&tiles, SHORT_RIGHT, K_OF_SHORT / 4, 64);
    tiles_amx_load(&tiles);
}

/* The lines of a tile of K or V, one tile of keys ahead. */
ALWAYS_INLINE void prefetch(const void *src, size_t stride, int n_lines, uintptr_t ahead) {
#pragma GCC unroll 16
    for (int i = 0; i < n_lines; i++) attention_i8_avx512vnni_prefetch((const char *)src + (size_t)i * stride, ahead);
}

#define ADD_KEYS(size, sums, g)                                                                                        \
    do {                                                                                                               \
        const uint8_t *k = tile->k[g] + (size_t)(d / 4) * stride;                                                      \
        _tile_loadd(size##_RIGHT, k, stride);                                                                          \
        _tile_dpbsud(sums, size##_LEFT, size##_RIGHT);                                                                 \
        prefetch(k, stride, K_OF_##size / 4, tile->k_ahead[g]);                                                        \
    } while (0)

/* The dots of dims from d on. */
#define ADD_DIMS(size)                                                                                                 \
    do {                                                                                                               \
        _tile_loadd(size##_LEFT, fold->rows.q[0] + d, MAX_DIM);                                                        \
        ADD_KEYS(size, SUMS_0, 0);                                                                                     \
        ADD_KEYS(size, SUMS_1, 1);                                                                                     \
        ADD_KEYS(size, SUMS_2, 2);                                                                                     \
        ADD_KEYS(size, SUMS_3, 3);                                                                                     \
    } while (0)

/* Dots of the tile's keys. */
ALWAYS_INLINE void score(struct fold *fold, struct stage *stage) {
    const struct attention_i8_tile *tile = &stage->tile;
    const size_t stride = 4 * (size_t)fold->block_tokens;
    int d = 0;
    TILES_AMX_WRITTEN();
    _tile_loadd(SUMS_0, fold->start, 64);
    _tile_loadd(SUMS_1, fold->start, 64);
    _tile_loadd(SUMS_2, fold->start, 64);
    _tile_loadd(SUMS_3, fold->start, 64);
    for (; d + K_OF_LONG <= fold->head_dim; d += K_OF_LONG) ADD_DIMS(LONG);
    for (; d < fold->head_dim; d += K_OF_SHORT) ADD_DIMS(SHORT);
    _tile_stored(SUMS_0, stage->s[0], sizeof stage->s[0]);
    _tile_stored(SUMS_1, stage->s[0] + LANES, sizeof stage->s[0]);
    _tile_stored(SUMS_2, stage->s[0] + 2 * LANES, sizeof stage->s[0]);
    _tile_stored(SUMS_3, stage->s[0] + 3 * LANES, sizeof stage->s[0]);
}

/* Dots become scores; row_max gets the largest that each row sees, not yet over lanes. */
ALWAYS_INLINE void scale(struct fold *fold, struct stage *stage, bool is_whole) {
    __m512 k_scales[TILE_GROUPS];
#pragma GCC unroll 4
    for (int g = 0; g < TILE_GROUPS; g++) k_scales[g] = _mm512_loadu_ps(stage->tile.k_scales[g]);
    for (int r = 0; r < fold->n_rows; r++) {
        uint64_t seen = is_whole ? 0 : attention_i8_avx512vnni_seen(&fold->rows, &stage->tile, r);
        __m512 max = _mm512_set1_ps(ATTENTION_MASKED);
#pragma GCC unroll 4
        for (int g = 0; g < TILE_GROUPS; g++) {
            float *s = stage->s[r] + LANES * g;
            __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(s)), k_scales[g]);
            _mm512_store_ps(s, x);
            if (!is_whole)
                max = _mm512_mask_max_ps(max, (__mmask16)(seen >> LANES * g), max, x);
            else
                max = g ? _mm512_max_ps(max, x) : x;
        }
        _mm512_store_ps(fold->row_max[r], max);
    }
}

/* The rows' maxima move on. */
ALWAYS_INLINE void raise(struct fold *fold, struct stage *stage) {
    __m512 old_max = _mm512_load_ps(fold->max), max = _mm512_max_ps(old_max, reduce(true, fold->row_max));
    __m512 moved = _mm512_mul_ps(_mm512_sub_ps(old_max, max), _mm512_load_ps(fold->rows.log2_d));
    _mm512_store_ps(fold->max, max);
    _mm512_store_ps(stage->factor, exp2_avx512vnni(moved));
}

/* ---- weights ---- */

/* Scores become weights with V's scales in them; row_sum and row_largest get what is to be reduced over lanes. */
ALWAYS_INLINE void weigh(struct fold *fold, struct stage *stage, bool is_whole) {
    __m512 v_scales[TILE_GROUPS];
#pragma GCC unroll 4
    for (int g = 0; g < TILE_GROUPS; g++) v_scales[g] = _mm512_loadu_ps(stage->tile.v_scales[g]);
    for (int r = 0; r < fold->n_rows; r++) {
        uint64_t seen = is_whole ? ~UINT64_C(0) : attention_i8_avx512vnni_seen(&fold->rows, &stage->tile, r);
        const __m512 max = _mm512_set1_ps(fold->max[r]), log2_d = _mm512_set1_ps(fold->rows.log2_d[r]);
        __m512 p[TILE_GROUPS], w[TILE_GROUPS];
#pragma GCC unroll 4
        for (int g = 0; g < TILE_GROUPS; g++) {
            float *s = stage->s[r] + LANES * g;
            __mmask16 mask = is_whole ? 0xffff : (__mmask16)(seen >> LANES * g);
            __m512 x = exp2_avx512vnni(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(s), max), log2_d));
            p[g] = is_whole ? x : _mm512_maskz_mov_ps(mask, x);
            w[g] = is_whole ? _mm512_mul_ps(x, v_scales[g]) : _mm512_maskz_mul_ps(mask, x, v_scales[g]);
            _mm512_store_ps(s, w[g]);
        }
        _mm512_store_ps(fold->row_sum[r], _mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3])));
        _mm512_store_ps(fold->row_largest[r], _mm512_max_ps(_mm512_max_ps(w[0], w[1]), _mm512_max_ps(w[2], w[3])));
    }
}

/* denom moves on; the steps of the tile's weights. */
ALWAYS_INLINE void sum_up(struct fold *fold, struct stage *stage) {
    __m512 inverse, step;
    attention_i8_avx512vnni_steps(reduce(true, fold->row_largest), &inverse, &step);
    _mm512_store_ps(fold->inverse, inverse);
    _mm512_store_ps(stage->step, step);
    _mm512_store_ps(fold->denom, _mm512_fmadd_ps(_mm512_load_ps(fold->denom), _mm512_load_ps(stage->factor),
                                                 reduce(false, fold->row_sum)));
}

/* Weights times inverse as bytes. Each sum's lowest byte is the weight's: four of 128 bits go to one lane of 32. */
ALWAYS_INLINE void round_weights(struct fold *fold, const struct stage *stage) {
    const __m512 shift = _mm512_set1_ps(ATTENTION_I8_P_ROUND);
    const __m512i low = _mm512_set1_epi32(0x0c080400);
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    for (int r = 0; r < fold->n_rows; r++) {
        const __m512 inverse = _mm512_set1_ps(fold->inverse[r]);
        __m512i p = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int g = 0; g < TILE_GROUPS; g++) {
            __m512 x = _mm512_fmadd_ps(_mm512_load_ps(stage->s[r] + LANES * g), inverse, shift);
            p = _mm512_mask_shuffle_epi8(p, UINT64_C(0x000f000f000f000f) << 4 * g, _mm512_castps_si512(x), low);
        }
        _mm512_store_si512(fold->p[r], _mm512_permutexvar_epi32(order, p));
    }
}

/* ---- values ---- */

/* Sums of sixteen dims from d on get the keys of group g. The groups lie in several blocks, hence a short product each:
 * to copy them together takes longer. */
#define ADD_VALUES(sums, g, d)                                                                                         \
    do {                                                                                                               \
        const int8_t *v = tile->v[g] + 4 * (size_t)(d);                                                                \
        _tile_loadd(SHORT_RIGHT, v, stride);                                                                           \
        _tile_dpbusd(sums, SHORT_LEFT, SHORT_RIGHT);                                                                   \
        prefetch(v, stride, K_OF_SHORT / 4, tile->v_ahead[g]);                                                         \
    } while (0)

/* pv of four times sixteen dims from d on. */
ALWAYS_INLINE void multiply_four(struct fold *fold, const struct attention_i8_tile *tile, int d) {
    const size_t stride = 4 * (size_t)fold->head_dim;
    int32_t(*to)[MAX_ROWS][LANES] = fold->pv + d / LANES;
    _tile_zero(SUMS_0);
    _tile_zero(SUMS_1);
    _tile_zero(SUMS_2);
    _tile_zero(SUMS_3);
    for (int g = 0; g < TILE_GROUPS; g++) {
        _tile_loadd(SHORT_LEFT, fold->p[0] + K_OF_SHORT * g, TILE_KEYS);
        ADD_VALUES(SUMS_0, g, d);
        ADD_VALUES(SUMS_1, g, d + LANES);
        ADD_VALUES(SUMS_2, g, d + 2 * LANES);
        ADD_VALUES(SUMS_3, g, d + 3 * LANES);
    }
    _tile_stored(SUMS_0, to[0], 64);
    _tile_stored(SUMS_1, to[1], 64);
    _tile_stored(SUMS_2, to[2], 64);
    _tile_stored(SUMS_3, to[3], 64);
}

ALWAYS_INLINE void multiply_one(struct fold *fold, const struct attention_i8_tile *tile, int d) {
    const size_t stride = 4 * (size_t)fold->head_dim;
    _tile_zero(SUMS_0);
    for (int g = 0; g < TILE_GROUPS; g++) {
        _tile_loadd(SHORT_LEFT, fold->p[0] + K_OF_SHORT * g, TILE_KEYS);
        ADD_VALUES(SUMS_0, g, d);
    }
    _tile_stored(SUMS_0, fold->pv[d / LANES], 64);
}

/* pv = p v. */
ALWAYS_INLINE void multiply(struct fold *fold, const struct stage *stage) {
    int d = 0;
    TILES_AMX_WRITTEN();
    for (; d + 4 * LANES <= fold->head_dim; d += 4 * LANES) multiply_four(fold, &stage->tile, d);
    for (; d < fold->head_dim; d += LANES) multiply_one(fold, &stage->tile, d);
}

/* o = pv * step + o * factor. */
ALWAYS_INLINE void add_values(struct fold *fold, const float factor[MAX_ROWS], const float step[MAX_ROWS]) {
    for (int r = 0; r < fold->n_rows; r++) {
        const __m512 f = _mm512_set1_ps(factor[r]), by = _mm512_set1_ps(step[r]);
        float *o = fold->o + r * fold->head_dim;
        for (int d = 0; d < fold->head_dim; d += LANES) {
            __m512 dots = _mm512_cvtepi32_ps(_mm512_load_si512(fold->pv[d / LANES][r]));
            _mm512_storeu_ps(o + d, _mm512_fmadd_ps(dots, by, _mm512_mul_ps(_mm512_loadu_ps(o + d), f)));
        }
    }
}

/* ---- a call ---- */

static void start(struct fold *fold, const struct attention_rows *rows, const struct attention_keys *keys,
                  struct attention_state *state) {
    fold->n_rows = rows->n_rows, fold->head_dim = keys->head_dim, fold->block_tokens = keys->block_tokens;
    fold->o = state->o;
    attention_i8_avx512vnni_take_rows(rows, keys->head_dim, &fold->rows);
    for (int r = 0; r < rows->n_rows; r++) _mm512_store_si512(fold->start[r], _mm512_set1_epi32(fold->rows.start[r]));
    for (int r = rows->n_rows; r < MAX_ROWS; r++) { /* what reductions find in place of rows */
        _mm512_store_ps(fold->row_max[r], _mm512_setzero_ps());
        _mm512_store_ps(fold->row_sum[r], _mm512_setzero_ps());
        _mm512_store_ps(fold->row_largest[r], _mm512_setzero_ps());
    }
    for (int i = 0; i < rows->n_rows * keys->head_dim; i += LANES) _mm512_storeu_ps(state->o + i, _mm512_setzero_ps());
    _mm512_store_ps(fold->max, _mm512_set1_ps(ATTENTION_MASKED));
    _mm512_store_ps(fold->denom, _mm512_setzero_ps());
    shape(rows->n_rows);
}

ALWAYS_INLINE void begin_tile(struct fold *fold, struct stage *stage) {
    if (stage->tile.is_whole)
        scale(fold, stage, true);
    else
        scale(fold, stage, false);
    raise(fold, stage);
}

ALWAYS_INLINE void weigh_tile(struct fold *fold, struct stage *stage) {
    if (stage->tile.is_whole)
        weigh(fold, stage, true);
    else
        weigh(fold, stage, false);
    sum_up(fold, stage);
}

/* attention_i8_tile_at; blocks of sixteen tokens, the usual ones, need no division. */
static bool find_tile(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin, int key,
                      int first, int last, struct attention_i8_tile *tile) {
    struct attention_keys small = {keys->k_blocks, keys->v_blocks, ATTENTION_I8_GROUP, keys->head_dim};
    if (keys->block_tokens == ATTENTION_I8_GROUP)
        return attention_i8_tile_at(false, rows, &small, key_begin, key, first, last, tile);
    return attention_i8_tile_at(false, rows, keys, key_begin, key, first, last, tile);
}

void attention_rows_i8_amx(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                           int key_end, struct attention_state *state) {
    struct fold fold;
    struct stage *now = &fold.stages[0], *next = &fold.stages[1], *swap;
    int first, last, key = key_begin;
    start(&fold, rows, keys, state);
    attention_tile_range(rows, key_end, &first, &last);
    while (key + TILE_KEYS <= first) key += TILE_KEYS;
    bool has_next = find_tile(rows, keys, key_begin, key, first, last, &now->tile), is_first = true;
    if (has_next) {
        score(&fold, now);
        begin_tile(&fold, now);
    }
    for (; has_next; swap = now, now = next, next = swap, is_first = false) {
        key += TILE_KEYS;
        has_next = key <= last && find_tile(rows, keys, key_begin, key, first, last, &next->tile);
        weigh_tile(&fold, now);
        if (has_next) score(&fold, next);
        if (!is_first) add_values(&fold, next->factor, next->step);
        if (has_next) begin_tile(&fold, next);
        round_weights(&fold, now);
        multiply(&fold, now);
    }
    if (!is_first) add_values(&fold, next->factor, next->step);
    _tile_release();
    for (int r = 0; r < rows->n_rows; r++) {
        state->max[r] = fold.max[r] == ATTENTION_MASKED ? ATTENTION_MASKED : fold.max[r] * fold.rows.d[r];
        state->denom[r] = fold.denom[r];
    }
}
