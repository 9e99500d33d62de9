/* attention_i8_avx2: exactness rules 10 (int8) and 11 (q8_0) for 1 to 16 rows, in two forms with equal bits:
 * attention_rows_i8_avx2.h has query rows in lanes, attention_keys_i8_avx2.h keys for the scores and dims for the
 * outputs.
 *
 * Without a dot of bytes that cannot saturate, products are of int16: a quad of bytes becomes two pairs, (0, 2) and
 * (1, 3), which shifts can make. Whatever meets them is paired likewise. */
#ifndef KVICK_KERNELS_X86_ATTENTION_I8_AVX2_H
#define KVICK_KERNELS_X86_ATTENTION_I8_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/x86/attention_i8_tile.h"
#include "kernels/x86/quantize_i8_avx2.h"

#define ATTENTION_I8_AVX2_INLINE static inline __attribute__((always_inline))

/* Eight quads of bytes as pairs of int16. K is unsigned, V signed. */
ATTENTION_I8_AVX2_INLINE void attention_i8_avx2_widen(const void *src, bool is_signed, __m256i pairs[2]) {
    const __m256i bytes = _mm256_loadu_si256(src);
    pairs[0] = is_signed ? _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8)
                         : _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
    pairs[1] = is_signed ? _mm256_srai_epi16(bytes, 8) : _mm256_srli_epi16(bytes, 8);
}

/* Blocks of a sequence lie anywhere, so the CPU cannot guess the next tile. */
ATTENTION_I8_AVX2_INLINE void attention_i8_avx2_prefetch(const void *src, uintptr_t ahead) {
    _mm_prefetch((const char *)((uintptr_t)src + ahead), _MM_HINT_T0);
}

/* Prefetches the call's first tile, which no tile before it does. */
ATTENTION_I8_AVX2_INLINE void attention_i8_avx2_fetch(bool is_q8_0, const struct attention_rows *rows,
                                                      const struct attention_keys *keys, int key_begin, int first,
                                                      int last) {
    const int key = first > key_begin ? first / ATTENTION_TILE_KEYS * ATTENTION_TILE_KEYS : key_begin;
    const int group_bytes = ATTENTION_I8_GROUP * keys->head_dim;
    struct attention_i8_tile tile;
    if (key > last || !attention_i8_tile_at(is_q8_0, rows, keys, key_begin, key, first, last, &tile)) return;
    for (int g = tile.begin / ATTENTION_I8_GROUP; g * ATTENTION_I8_GROUP < tile.end; g++) {
        attention_i8_avx2_prefetch(tile.k_scales[g], 0);
        attention_i8_avx2_prefetch(tile.v_scales[g], 0);
        for (int i = 0; i < keys->head_dim / 4; i++)
            attention_i8_avx2_prefetch(tile.k[g] + 4 * (size_t)keys->block_tokens * (size_t)i, 0);
        for (int i = 0; i < group_bytes; i += 64) attention_i8_avx2_prefetch(tile.v[g] + i, 0);
    }
}

/* 16 quads at each of n places, stride bytes apart; ahead as the tile has it. */
ATTENTION_I8_AVX2_INLINE void attention_i8_avx2_widen_all(const void *src, size_t stride, uintptr_t ahead, int n,
                                                          bool is_signed, int16_t (*out)[ATTENTION_I8_GROUP][2]) {
    for (int i = 0; i < n; i++, src = (const char *)src + stride) {
        attention_i8_avx2_prefetch(src, ahead);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i pairs[2];
            attention_i8_avx2_widen((const char *)src + 32 * h, is_signed, pairs);
            _mm256_store_si256((__m256i *)(void *)out[2 * i][8 * h], pairs[0]);
            _mm256_store_si256((__m256i *)(void *)out[2 * i + 1][8 * h], pairs[1]);
        }
    }
}

ATTENTION_I8_AVX2_INLINE __m256i attention_i8_avx2_pair(const int16_t *src) {
    int32_t pair;
    memcpy(&pair, src, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* *acc += the products of pairs. As an intrinsic the addition would be regrouped: gcc makes all products first and runs
 * out of registers. */
ATTENTION_I8_AVX2_INLINE void attention_i8_avx2_dot(__m256i *acc, __m256i a, __m256i b) {
    __asm__("vpaddd %1, %0, %0" : "+x"(*acc) : "x"(_mm256_madd_epi16(a, b)));
}

/* Each four int16 in the order of the pairs. */
ATTENTION_I8_AVX2_INLINE __m256i attention_i8_avx2_paired(__m256i x) {
    return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(x, 0xd8), 0xd8);
}

/* The scales of q8_0 in a tile, as floats; of V +0 where no row sees the key. */
struct attention_i8_avx2_scales {
    _Alignas(32) float k[ATTENTION_MAX_HEAD_DIM / KV_Q8_0_DIMS][ATTENTION_TILE_KEYS];
    _Alignas(32) float v[ATTENTION_MAX_HEAD_DIM / KV_Q8_0_DIMS][ATTENTION_TILE_KEYS];
};

/* Takes those of the seen groups, and prefetches those of the next tile. */
static inline void attention_i8_avx2_take_scales(const struct attention_keys *keys,
                                                 const struct attention_i8_tile *tile,
                                                 struct attention_i8_avx2_scales *out) {
    const int n_parts = keys->head_dim / KV_Q8_0_DIMS;
    for (int t = tile->begin / ATTENTION_I8_GROUP * ATTENTION_I8_GROUP; t < tile->end; t += 8) {
        const int g = t / ATTENTION_I8_GROUP;
        const size_t step = (size_t)keys->block_tokens;
        const uint16_t *k = (const uint16_t *)tile->k_scales[g] + t % ATTENTION_I8_GROUP;
        const uint16_t *v = (const uint16_t *)tile->v_scales[g] + t % ATTENTION_I8_GROUP;
        __m256i unseen = _mm256_or_si256(lanes_avx2_first(tile->begin - t),
                                         _mm256_xor_si256(lanes_avx2_first(tile->end - t), _mm256_set1_epi32(-1)));
        for (int part = 0; part < n_parts; part++, k += step, v += step) {
            attention_i8_avx2_prefetch(k, tile->k_ahead[g]);
            attention_i8_avx2_prefetch(v, tile->v_ahead[g]);
            __m256 v_scales = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)v));
            _mm256_store_ps(out->k[part] + t, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)k)));
            _mm256_store_ps(out->v[part] + t, _mm256_andnot_ps(_mm256_castsi256_ps(unseen), v_scales));
        }
    }
}

/* One row's q as the call quantizes it, paired. Returns its scale; a dot starts with *out_start. */
static inline float attention_i8_avx2_take_row(const float *x, int16_t *out, int head_dim, int32_t *out_start) {
    float d = quantize_i8_avx2(x, out, head_dim);
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < head_dim; i += 16) {
        __m256i q = _mm256_loadu_si256((const __m256i *)(const void *)(out + i));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(q, _mm256_set1_epi16(1)));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), attention_i8_avx2_paired(q));
    }
    __m128i x4 = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    __m128i x2 = _mm_add_epi32(x4, _mm_shuffle_epi32(x4, 0x4e));
    *out_start = -KV_I8_K_OFFSET * (_mm_cvtsi128_si32(x2) + _mm_extract_epi32(x2, 1));
    return d;
}

#endif
