#include <immintrin.h>
#include <string.h>

#include "kernels/kernel_table.h"
#include "kernels/kv_i8.h"
#include "kernels/scalar/attention_i8_scalar.h"
#include "kernels/x86/exp2_avx2.h"
#include "kernels/x86/lanes_avx2.h"
#include "kernels/x86/quantize_i8_avx2.h"

/* Exactness rule 10 with keys in lanes for the scores and dims in lanes for the outputs. Without a dot of bytes that
 * cannot saturate, products are of int16: a quad of bytes is widened to two pairs, once for ROW_BLOCK rows. */
#define MAX_ROWS ATTENTION_MAX_ROWS
#define TILE_KEYS ATTENTION_TILE_KEYS
#define LANES 8
#define GROUP 16 /* keys that surely lie in one block */
#define TILE_GROUPS (TILE_KEYS / GROUP)
#define ROW_BLOCK 4
#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct fold {
    const struct attention_rows *rows;
    const struct attention_keys *keys;
    float *o; /* the state's */
    _Alignas(32) int16_t q[MAX_ROWS][ATTENTION_MAX_HEAD_DIM];
    _Alignas(32) float s[MAX_ROWS][TILE_KEYS];   /* scores, then weights */
    _Alignas(32) int16_t p[MAX_ROWS][TILE_KEYS]; /* weights rounded */
    int32_t start[MAX_ROWS];                     /* of a dot: -KV_I8_K_OFFSET * sum of q */
    float d[MAX_ROWS], log2_d[MAX_ROWS], max[MAX_ROWS], denom[MAX_ROWS], factor[MAX_ROWS], step[MAX_ROWS];
    /* The tile: keys [begin, end) of those from key on are seen by some row; the pointers are to groups of 16 keys,
     * groups that nobody sees to a neighbour that somebody does. */
    int key, begin, end;
    const uint8_t *k[TILE_GROUPS];
    const int8_t *v[TILE_GROUPS];
    const float *k_scales[TILE_GROUPS], *v_scales[TILE_GROUPS];
};

/* Eight quads of bytes as pairs of int16: the first two of each quad, and the last two. K is unsigned, V signed. */
ALWAYS_INLINE void widen(const void *src, bool is_signed, __m256i pairs[2]) {
    const __m256i bytes = _mm256_loadu_si256(src);
    const int8_t z = -1; /* gives 0 */
    if (is_signed) {     /* into the high bytes, then an arithmetic shift */
        pairs[0] = _mm256_shuffle_epi8(bytes, _mm256_setr_epi8(z, 0, z, 1, z, 4, z, 5, z, 8, z, 9, z, 12, z, 13, z, 0,
                                                               z, 1, z, 4, z, 5, z, 8, z, 9, z, 12, z, 13));
        pairs[1] = _mm256_shuffle_epi8(bytes, _mm256_setr_epi8(z, 2, z, 3, z, 6, z, 7, z, 10, z, 11, z, 14, z, 15, z, 2,
                                                               z, 3, z, 6, z, 7, z, 10, z, 11, z, 14, z, 15));
        pairs[0] = _mm256_srai_epi16(pairs[0], 8), pairs[1] = _mm256_srai_epi16(pairs[1], 8);
        return;
    }
    pairs[0] = _mm256_shuffle_epi8(bytes, _mm256_setr_epi8(0, z, 1, z, 4, z, 5, z, 8, z, 9, z, 12, z, 13, z, 0, z, 1, z,
                                                           4, z, 5, z, 8, z, 9, z, 12, z, 13, z));
    pairs[1] = _mm256_shuffle_epi8(bytes, _mm256_setr_epi8(2, z, 3, z, 6, z, 7, z, 10, z, 11, z, 14, z, 15, z, 2, z, 3,
                                                           z, 6, z, 7, z, 10, z, 11, z, 14, z, 15, z));
}

ALWAYS_INLINE __m256i pair_of(const int16_t *src) {
    int32_t pair;
    memcpy(&pair, src, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* acc[r][c] += products of the quads at src + 32 * c with row r's four numbers at b + r * b_stride. */
ALWAYS_INLINE void dot_quads(int height, int width, bool is_signed, const void *src, const int16_t *b, int b_stride,
                             __m256i acc[ROW_BLOCK][2]) {
    __m256i pairs[2][2];
#pragma GCC unroll 2
    for (int c = 0; c < width; c++) widen((const char *)src + 32 * c, is_signed, pairs[c]);
#pragma GCC unroll 4
    for (int r = 0; r < height; r++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i factor = pair_of(b + r * b_stride + 2 * half);
#pragma GCC unroll 2
            for (int c = 0; c < width; c++)
                acc[r][c] = _mm256_add_epi32(acc[r][c], _mm256_madd_epi16(pairs[c][half], factor));
        }
}

/* Scores of height rows from row on, all seen groups. */
ALWAYS_INLINE void score(int height, int row, struct fold *fold) {
    const size_t stride = 4 * (size_t)fold->keys->block_tokens;
    const int head_dim = fold->keys->head_dim;
    for (int g = fold->begin / GROUP; g < (fold->end + GROUP - 1) / GROUP; g++) {
        const uint8_t *k = fold->k[g];
        __m256i acc[ROW_BLOCK][2];
#pragma GCC unroll 4
        for (int r = 0; r < height; r++) acc[r][0] = acc[r][1] = _mm256_set1_epi32(fold->start[row + r]);
        for (int d = 0; d < head_dim; d += 4, k += stride)
            dot_quads(height, 2, false, k, fold->q[row] + d, ATTENTION_MAX_HEAD_DIM, acc);
#pragma GCC unroll 4
        for (int r = 0; r < height; r++)
#pragma GCC unroll 2
            for (int c = 0; c < 2; c++)
                _mm256_store_ps(
                    fold->s[row + r] + GROUP * g + LANES * c,
                    _mm256_mul_ps(_mm256_cvtepi32_ps(acc[r][c]), _mm256_loadu_ps(fold->k_scales[g] + LANES * c)));
    }
}

/* o = p v * step + o * factor for height rows from row on. */
ALWAYS_INLINE void add_values(int height, int row, struct fold *fold) {
    const int head_dim = fold->keys->head_dim;
    for (int d = 0; d < head_dim; d += 2 * LANES) {
        __m256i acc[ROW_BLOCK][2];
#pragma GCC unroll 4
        for (int r = 0; r < height; r++) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
        for (int t = fold->begin / GROUP * GROUP; t < (fold->end + GROUP - 1) / GROUP * GROUP; t += 4)
            dot_quads(height, 2, true, fold->v[t / GROUP] + (size_t)(t % GROUP * head_dim + 4 * d), fold->p[row] + t,
                      TILE_KEYS, acc);
#pragma GCC unroll 4
        for (int r = 0; r < height; r++)
#pragma GCC unroll 2
            for (int c = 0; c < 2; c++) {
                float *to = fold->o + (row + r) * head_dim + d + LANES * c;
                __m256 o = _mm256_mul_ps(_mm256_loadu_ps(to), _mm256_set1_ps(fold->factor[row + r]));
                o = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][c]), _mm256_set1_ps(fold->step[row + r]), o);
                _mm256_storeu_ps(to, o);
            }
    }
}

ALWAYS_INLINE void dots_of(int height, int row, struct fold *fold, bool is_scores) {
    if (is_scores)
        score(height, row, fold);
    else
        add_values(height, row, fold);
}

ALWAYS_INLINE void dots(struct fold *fold, bool is_scores) {
    int row = 0, n_rows = fold->rows->n_rows;
    for (; row + ROW_BLOCK <= n_rows; row += ROW_BLOCK) dots_of(ROW_BLOCK, row, fold, is_scores);
    switch (n_rows - row) {
    case 1: dots_of(1, row, fold, is_scores); break;
    case 2: dots_of(2, row, fold, is_scores); break;
    case 3: dots_of(3, row, fold, is_scores); break;
    default: break;
    }
}

/* All bits of the lanes whose keys t, t + 1, ... of the tile the row sees. */
ALWAYS_INLINE __m256 seen_lanes(int first, int last, int t) {
    __m256i before = lanes_avx2_first(first - t), until = lanes_avx2_first(last + 1 - t);
    return _mm256_castsi256_ps(_mm256_andnot_si256(before, until));
}

/* The row's weights times inverse as int16. */
ALWAYS_INLINE void round_weights(struct fold *fold, int row, float inverse) {
    const __m256 factor = _mm256_set1_ps(inverse), shift = _mm256_set1_ps(ATTENTION_I8_P_ROUND);
    for (int t = 0; t < TILE_KEYS; t += GROUP) {
        const float *w = fold->s[row] + t;
        __m256i low = _mm256_castps_si256(_mm256_fmadd_ps(_mm256_load_ps(w), factor, shift));
        __m256i high = _mm256_castps_si256(_mm256_fmadd_ps(_mm256_load_ps(w + 8), factor, shift));
        low = _mm256_xor_si256(low, _mm256_castps_si256(shift)),
        high = _mm256_xor_si256(high, _mm256_castps_si256(shift));
        __m256i p = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
        _mm256_store_si256((__m256i *)(fold->p[row] + t), p);
    }
}

/* Scores of one row become weights with V's scales in them, then bytes; max, denom, factor and step move on. */
static void softmax(struct fold *fold, int row) {
    int first = fold->rows->first_key[row] - fold->key, last = fold->rows->last_key[row] - fold->key;
    if (first < fold->begin) first = fold->begin;
    if (last > fold->end - 1) last = fold->end - 1;
    float *s = fold->s[row];
    __m256 m = _mm256_set1_ps(fold->max[row]), sums[2][TILE_GROUPS], largest = _mm256_setzero_ps();
    for (int t = fold->begin / LANES * LANES; t < fold->end; t += LANES)
        m = _mm256_max_ps(m, _mm256_blendv_ps(m, _mm256_load_ps(s + t), seen_lanes(first, last, t)));
    float max = lanes_avx2_max(m), log2_d = fold->log2_d[row];
    m = _mm256_set1_ps(max);
#pragma GCC unroll 8
    for (int i = 0; i < TILE_KEYS / LANES; i++) {
        __m256 seen = seen_lanes(first, last, LANES * i);
        __m256 x = _mm256_mul_ps(_mm256_sub_ps(_mm256_load_ps(s + LANES * i), m), _mm256_set1_ps(log2_d));
        __m256 p = _mm256_and_ps(exp2_avx2(x), seen);
        __m256 w = _mm256_mul_ps(p, _mm256_loadu_ps(fold->v_scales[i / 2] + i % 2 * LANES));
        w = _mm256_and_ps(w, seen);
        largest = _mm256_max_ps(largest, w);
        _mm256_store_ps(s + LANES * i, w);
        sums[i % 2][i / 2] = p;
    }
    __m256 low = _mm256_add_ps(_mm256_add_ps(sums[0][0], sums[0][1]), _mm256_add_ps(sums[0][2], sums[0][3]));
    __m256 high = _mm256_add_ps(_mm256_add_ps(sums[1][0], sums[1][1]), _mm256_add_ps(sums[1][2], sums[1][3]));
    float w_max = lanes_avx2_max(largest), factor = exp2_scalar((fold->max[row] - max) * log2_d);
    bool is_kept = w_max >= ATTENTION_I8_W_MIN;
    round_weights(fold, row, is_kept ? ATTENTION_I8_P_MAX / w_max : 0.0f);
    fold->step[row] = is_kept ? w_max * ATTENTION_I8_P_STEP : 0.0f;
    fold->factor[row] = factor;
    fold->denom[row] = __builtin_fmaf(fold->denom[row], factor, lanes_avx2_tree(low, high));
    fold->max[row] = max;
}

/* Points at the groups of the tile that starts with group_begin, counted from the call's key_begin. */
static void locate(struct fold *fold, int group_begin) {
    const int tokens = fold->keys->block_tokens, head_dim = fold->keys->head_dim, per_block = tokens / GROUP;
    const int first = fold->begin / GROUP, last = (fold->end - 1) / GROUP;
    const size_t scales_off = kv_i8_scales_off(tokens, head_dim);
    for (int g = 0; g < TILE_GROUPS; g++) {
        int group = group_begin + (g < first ? first : g > last ? last : g), slot = group % per_block * GROUP;
        const uint8_t *k = fold->keys->k_blocks[group / per_block];
        const int8_t *v = fold->keys->v_blocks[group / per_block];
        fold->k[g] = k + kv_i8_k_off(slot, 0, tokens);
        fold->v[g] = v + kv_i8_v_off(slot, 0, head_dim);
        fold->k_scales[g] = (const float *)(const void *)(k + scales_off) + slot;
        fold->v_scales[g] = (const float *)(const void *)(v + scales_off) + slot;
    }
}

static void start(struct fold *fold) {
    const int head_dim = fold->keys->head_dim;
    for (int r = 0; r < fold->rows->n_rows; r++) {
        int sum = 0;
        fold->d[r] = quantize_i8_avx2(fold->rows->q[r], fold->q[r], head_dim);
        fold->log2_d[r] = fold->d[r] * EXP2_LOG2E;
        for (int d = 0; d < head_dim; d++) sum += fold->q[r][d];
        fold->start[r] = -KV_I8_K_OFFSET * sum;
        fold->max[r] = ATTENTION_MASKED, fold->denom[r] = 0;
        for (int t = 0; t < TILE_KEYS; t++) fold->s[r][t] = 0;
    }
    for (int i = 0; i < fold->rows->n_rows * head_dim; i += LANES) _mm256_storeu_ps(fold->o + i, _mm256_setzero_ps());
}

void attention_keys_i8_avx2(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                            int key_end, struct attention_state *state) {
    struct fold fold;
    fold.rows = rows, fold.keys = keys, fold.o = state->o;
    start(&fold);
    int first = rows->first_key[0], last = rows->last_key[0];
    for (int r = 1; r < rows->n_rows; r++) {
        if (rows->first_key[r] < first) first = rows->first_key[r];
        if (rows->last_key[r] > last) last = rows->last_key[r];
    }
    if (last > key_end - 1) last = key_end - 1;
    for (fold.key = key_begin; fold.key <= last; fold.key += TILE_KEYS) {
        fold.begin = first > fold.key ? first - fold.key : 0;
        fold.end = last - fold.key + 1 < TILE_KEYS ? last - fold.key + 1 : TILE_KEYS;
        if (fold.begin >= fold.end) continue;
        locate(&fold, (fold.key - key_begin) / GROUP);
        dots(&fold, true);
        for (int r = 0; r < rows->n_rows; r++) softmax(&fold, r);
        dots(&fold, false);
    }
    for (int r = 0; r < rows->n_rows; r++) {
        state->max[r] = fold.max[r] == ATTENTION_MASKED ? ATTENTION_MASKED : fold.max[r] * fold.d[r];
        state->denom[r] = fold.denom[r];
    }
}
