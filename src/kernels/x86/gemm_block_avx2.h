/* gemm_block_avx2: one block of 32 k of half a packed tile in registers; the vector twin of unpack_scalar.h.
 *
 * Every function takes its type as a constant and is inlined, so that nothing is decided while a kernel runs. */
#ifndef KVICK_KERNELS_X86_GEMM_BLOCK_AVX2_H
#define KVICK_KERNELS_X86_GEMM_BLOCK_AVX2_H

#include <string.h>

#include "kernels/pack.h"
#include "kernels/x86/gemm_out_avx2.h"

#define GEMM_MAX_PLANES 2

/* value[k][c] = d[k / 16][c] * (q[0][k][c] - offset) + m[k / 16][c]; lane c of q[0][j] holds k 4j..4j+3 of column c as
 * unsigned bytes. Signed types have magnitudes there and the weights in q[1]: the activations take their signs. */
struct gemm_block {
    __m256i q[GEMM_MAX_PLANES][8];
    __m256 d[2]; /* d[1] for types with two scales only */
    __m256 m[2]; /* for types with minima only; m[1] for Q2_K */
};

/* Minima of a block: none, one, or one for each half. */
GEMM_INLINE int gemm_block_n_mins(enum dtype dtype) {
    if (dtype == DTYPE_Q2_K) return 2;
    return dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K;
}

GEMM_INLINE bool gemm_block_is_signed(enum dtype dtype) {
    return dtype == DTYPE_Q8_0 || dtype == PACK_WIDE_32 || dtype == PACK_WIDE_16;
}

GEMM_INLINE bool gemm_block_has_fifth(enum dtype dtype) {
    return dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q5_K;
}

/* Scales of a block: one, or one for each half. */
GEMM_INLINE int gemm_block_n_scales(enum dtype dtype) {
    return dtype == DTYPE_Q6_K || dtype == DTYPE_Q2_K || dtype == PACK_WIDE_16 ? 2 : 1;
}

/* log2 of the offset of the unsigned weights; 0: no offset. */
GEMM_INLINE int gemm_block_offset_bits(enum dtype dtype) {
    return dtype == DTYPE_Q4_0 ? 3 : dtype == DTYPE_Q5_0 ? 4 : dtype == DTYPE_Q6_K ? 5 : 0;
}

GEMM_INLINE __m256i gemm_block_bytes(const uint8_t *src) {
    return _mm256_loadu_si256((const __m256i *)src);
}

GEMM_INLINE __m256 gemm_block_f16(const uint8_t *src) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src));
}

/* src: of the half's first byte, as in all that follow; a quad of the whole tile is 64 bytes. */
GEMM_INLINE void gemm_block_nibbles(const uint8_t *src, __m256i q[8]) {
    const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m256i bytes = gemm_block_bytes(src + 64 * g);
        q[2 * g] = _mm256_and_si256(bytes, low);
        q[2 * g + 1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low);
    }
}

GEMM_INLINE void gemm_block_fifth_bits(const uint8_t *src, __m256i q[8]) {
    const __m256i fifth = _mm256_set1_epi8(16), bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                             3, 3, 3, 3, 3, 3, 3);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        int32_t bits;
        memcpy(&bits, src + 8 * j, sizeof bits);
        __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of), bit);
        q[j] = _mm256_or_si256(q[j], _mm256_and_si256(_mm256_cmpeq_epi8(spread, bit), fifth));
    }
}

GEMM_INLINE void gemm_block_high_pairs(const uint8_t *src, __m256i q[8]) {
    const __m256i pair = _mm256_set1_epi8(0x30);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++, q += 4) {
        __m256i bytes = gemm_block_bytes(src + 64 * half);
        q[0] = _mm256_or_si256(q[0], _mm256_and_si256(_mm256_slli_epi16(bytes, 4), pair));
        q[1] = _mm256_or_si256(q[1], _mm256_and_si256(_mm256_slli_epi16(bytes, 2), pair));
        q[2] = _mm256_or_si256(q[2], _mm256_and_si256(bytes, pair));
        q[3] = _mm256_or_si256(q[3], _mm256_and_si256(_mm256_srli_epi16(bytes, 2), pair));
    }
}

GEMM_INLINE void gemm_block_8_bits(const uint8_t *src, __m256i q[GEMM_MAX_PLANES][8]) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        q[1][j] = gemm_block_bytes(src + 64 * j);
        q[0][j] = _mm256_abs_epi8(q[1][j]); /* -128 becomes 128 */
    }
}

GEMM_INLINE void gemm_block_32(enum dtype dtype, const uint8_t *tile, int block_idx, int h, struct gemm_block *out) {
    const bool has_min = gemm_block_n_mins(dtype) == 1;
    const int block_bytes = dtype == DTYPE_Q4_0   ? 18
                            : dtype == DTYPE_Q4_1 ? 20
                            : dtype == DTYPE_Q5_0 ? 22
                            : dtype == DTYPE_Q5_1 ? 24
                                                  : 34;
    const uint8_t *src = tile + (size_t)block_idx * (size_t)block_bytes * GEMM_TILE_COLS;
    out->d[0] = gemm_block_f16(src + 16 * h);
    if (has_min) out->m[0] = gemm_block_f16(src + 32 + 16 * h);
    src += has_min ? 64 : 32;
    if (dtype == DTYPE_Q8_0) {
        gemm_block_8_bits(src + 32 * h, out->q);
        return;
    }
    gemm_block_nibbles(src + 32 * h, out->q[0]);
    if (gemm_block_has_fifth(dtype)) gemm_block_fifth_bits(src + 256 + 4 * h, out->q[0]);
}

/* 8 bytes. */
GEMM_INLINE __m128i gemm_block_8(const uint8_t *src) {
    return _mm_loadl_epi64((const __m128i *)src);
}

GEMM_INLINE __m256 gemm_block_u8(__m128i bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

GEMM_INLINE void gemm_block_k45(enum dtype dtype, const uint8_t *tile, int block_idx, int h, struct gemm_block *out) {
    const int quant_bytes = dtype == DTYPE_Q5_K ? 320 : 256, head_bytes = 64 + 192, s = block_idx % 8;
    const uint8_t *src = tile + (size_t)(block_idx / 8) * (size_t)(head_bytes + 8 * quant_bytes);
    const __m128i low4 = _mm_set1_epi8(15), high2 = _mm_set1_epi8(0x30);
    __m128i low = gemm_block_8(src + 64 + 16 * s + 8 * h), high = gemm_block_8(src + 64 + 128 + 16 * (s / 2) + 8 * h);
    /* The pairs of bits of this sub-block moved to bits 4, 5 (scale) and 6, 7 (minimum) of a 16-bit lane's bytes. */
    high = _mm_sll_epi16(high, _mm_cvtsi32_si128(4 - 4 * (s % 2)));
    __m128i scale = _mm_or_si128(_mm_and_si128(low, low4), _mm_and_si128(high, high2));
    __m128i min =
        _mm_or_si128(_mm_and_si128(_mm_srli_epi16(low, 4), low4), _mm_and_si128(_mm_srli_epi16(high, 2), high2));
    out->d[0] = _mm256_mul_ps(gemm_block_f16(src + 16 * h), gemm_block_u8(scale));
    out->m[0] =
        _mm256_xor_ps(_mm256_mul_ps(gemm_block_f16(src + 32 + 16 * h), gemm_block_u8(min)), _mm256_set1_ps(-0.0f));
    src += head_bytes + (size_t)s * (size_t)quant_bytes;
    gemm_block_nibbles(src + 32 * h, out->q[0]);
    if (dtype == DTYPE_Q5_K) gemm_block_fifth_bits(src + 256 + 4 * h, out->q[0]);
}

/* d times the 8 signed bytes of each half of k; scales: of its first column, as all of a tile. */
GEMM_INLINE void gemm_block_two_scales(__m256 d, const uint8_t *scales, struct gemm_block *out) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m256i scale = _mm256_cvtepi8_epi32(gemm_block_8(scales + 16 * half));
        out->d[half] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(scale));
    }
}

GEMM_INLINE void gemm_block_k6(const uint8_t *tile, int block_idx, int h, struct gemm_block *out) {
    const int s = block_idx % 8, head_bytes = 32 + 256, quant_bytes = 384;
    const uint8_t *src = tile + (size_t)(block_idx / 8) * (size_t)(head_bytes + 8 * quant_bytes);
    gemm_block_two_scales(gemm_block_f16(src + 16 * h), src + 32 + 32 * s + 8 * h, out);
    src += head_bytes + (size_t)s * (size_t)quant_bytes;
    gemm_block_nibbles(src + 32 * h, out->q[0]);
    gemm_block_high_pairs(src + 256 + 32 * h, out->q[0]);
}

GEMM_INLINE void gemm_block_k2(const uint8_t *tile, int block_idx, int h, struct gemm_block *out) {
    const int s = block_idx % 8, head_bytes = 64 + 256, quant_bytes = 128;
    const __m256i pair = _mm256_set1_epi8(3);
    const __m128i low4 = _mm_set1_epi8(15);
    const uint8_t *src = tile + (size_t)(block_idx / 8) * (size_t)(head_bytes + 8 * quant_bytes);
    __m256 d = gemm_block_f16(src + 16 * h);
    __m256 m = _mm256_xor_ps(gemm_block_f16(src + 32 + 16 * h), _mm256_set1_ps(-0.0f));
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m128i codes = gemm_block_8(src + 64 + 16 * (2 * s + half) + 8 * h);
        out->d[half] = _mm256_mul_ps(d, gemm_block_u8(_mm_and_si128(codes, low4)));
        out->m[half] = _mm256_mul_ps(m, gemm_block_u8(_mm_and_si128(_mm_srli_epi16(codes, 4), low4)));
    }
    src += head_bytes + (size_t)s * (size_t)quant_bytes + 32 * h;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m256i bytes = gemm_block_bytes(src + 64 * half);
        __m256i *q = out->q[0] + 4 * half;
        q[0] = _mm256_and_si256(bytes, pair);
        q[1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 2), pair);
        q[2] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), pair);
        q[3] = _mm256_and_si256(_mm256_srli_epi16(bytes, 6), pair);
    }
}

GEMM_INLINE void gemm_block_wide(enum dtype dtype, const uint8_t *tile, int block_idx, int h, struct gemm_block *out) {
    const bool is_16 = dtype == PACK_WIDE_16;
    const int s = is_16 ? block_idx % 8 : 0, n_parts = is_16 ? 8 : 1, head_bytes = 64 + (is_16 ? 256 : 0);
    const uint8_t *src = tile + (size_t)(block_idx / n_parts) * (size_t)(head_bytes + 512 * n_parts);
    __m256 d = _mm256_loadu_ps((const float *)(const void *)(src + 32 * h));
    if (is_16)
        gemm_block_two_scales(d, src + 64 + 32 * s + 8 * h, out);
    else
        out->d[0] = d;
    gemm_block_8_bits(src + head_bytes + 512 * s + 32 * h, out->q);
}

/* dtype: one of pack_order's quantized types; block_idx counts blocks of 32 k; h: columns 8h..8h+7. */
GEMM_INLINE void gemm_block_load(enum dtype dtype, const uint8_t *tile, int block_idx, int h, struct gemm_block *out) {
    if (dtype == DTYPE_Q6_K)
        gemm_block_k6(tile, block_idx, h, out);
    else if (dtype == DTYPE_Q2_K)
        gemm_block_k2(tile, block_idx, h, out);
    else if (dtype == PACK_WIDE_32 || dtype == PACK_WIDE_16)
        gemm_block_wide(dtype, tile, block_idx, h, out);
    else if (dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K)
        gemm_block_k45(dtype, tile, block_idx, h, out);
    else
        gemm_block_32(dtype, tile, block_idx, h, out);
}

#endif
