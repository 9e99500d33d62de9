/* gemm_block_avx512vnni: one block of 32 k of a packed tile in registers; the vector twin of unpack_scalar.h.
 *
 * Every function takes its type as a constant and is inlined, so that nothing is decided while a kernel runs. */
#ifndef KVICK_KERNELS_X86_GEMM_BLOCK_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_BLOCK_AVX512VNNI_H

#include <string.h>

#include "kernels/pack.h"
#include "kernels/x86/gemm_out_avx512vnni.h"

/* value[k][c] = d[half][c] * (q[k][c] - offset) + m[half][c]; lane c of q[j] holds k 4j..4j+3 as unsigned bytes. */
struct gemm_block {
    __m512i q[8];
    __m512 d[2]; /* d[1] for types with two scales only */
    __m512 m[2]; /* for types with minima only; m[1] for Q2_K */
};

/* Minima of a block: none, one, or one for each half. */
GEMM_INLINE int gemm_block_n_mins(enum dtype dtype) {
    if (dtype == DTYPE_Q2_K) return 2;
    return dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K;
}

/* Scales of a block: one, or one for each half. */
GEMM_INLINE int gemm_block_n_scales(enum dtype dtype) {
    return dtype == DTYPE_Q6_K || dtype == DTYPE_Q2_K || dtype == PACK_WIDE_16 ? 2 : 1;
}

GEMM_INLINE bool gemm_block_is_signed(enum dtype dtype) {
    return dtype == DTYPE_Q8_0 || dtype == PACK_WIDE_32 || dtype == PACK_WIDE_16;
}

/* log2 of the offset of the unsigned weights; 0: no offset. */
GEMM_INLINE int gemm_block_offset_bits(enum dtype dtype) {
    if (gemm_block_is_signed(dtype)) return 7;
    return dtype == DTYPE_Q4_0 ? 3 : dtype == DTYPE_Q5_0 ? 4 : dtype == DTYPE_Q6_K ? 5 : 0;
}

GEMM_INLINE __m512 gemm_block_f16(const uint8_t *src) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)src));
}

/* Signed bytes, moved by 128. */
GEMM_INLINE void gemm_block_bytes(const uint8_t *src, struct gemm_block *out) {
    const __m512i sign = _mm512_set1_epi8((char)0x80);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) out->q[j] = _mm512_xor_si512(_mm512_loadu_si512(src + 64 * j), sign);
}

GEMM_INLINE void gemm_block_nibbles(const uint8_t *src, struct gemm_block *out) {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m512i bytes = _mm512_loadu_si512(src + 64 * g);
        out->q[2 * g] = _mm512_and_si512(bytes, low);
        out->q[2 * g + 1] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low);
    }
}

GEMM_INLINE void gemm_block_fifth_bits(const uint8_t *src, struct gemm_block *out) {
    const __m512i fifth = _mm512_set1_epi8(16);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        uint64_t bits;
        memcpy(&bits, src + 8 * j, sizeof bits);
        out->q[j] = _mm512_mask_add_epi8(out->q[j], _cvtu64_mask64(bits), out->q[j], fifth);
    }
}

GEMM_INLINE void gemm_block_high_pairs(const uint8_t *src, struct gemm_block *out) {
    const __m512i pair = _mm512_set1_epi8(0x30);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m512i bytes = _mm512_loadu_si512(src + 64 * half);
        __m512i *q = out->q + 4 * half;
        q[0] = _mm512_or_si512(q[0], _mm512_and_si512(_mm512_slli_epi16(bytes, 4), pair));
        q[1] = _mm512_or_si512(q[1], _mm512_and_si512(_mm512_slli_epi16(bytes, 2), pair));
        q[2] = _mm512_or_si512(q[2], _mm512_and_si512(bytes, pair));
        q[3] = _mm512_or_si512(q[3], _mm512_and_si512(_mm512_srli_epi16(bytes, 2), pair));
    }
}

GEMM_INLINE void gemm_block_32(enum dtype dtype, const uint8_t *tile, int block_idx, struct gemm_block *out) {
    const bool has_min = gemm_block_n_mins(dtype) == 1;
    const int block_bytes = dtype == DTYPE_Q4_0   ? 18
                            : dtype == DTYPE_Q4_1 ? 20
                            : dtype == DTYPE_Q5_0 ? 22
                            : dtype == DTYPE_Q5_1 ? 24
                                                  : 34;
    const uint8_t *src = tile + (size_t)block_idx * (size_t)block_bytes * GEMM_TILE_COLS;
    out->d[0] = gemm_block_f16(src);
    if (has_min) out->m[0] = gemm_block_f16(src + 32);
    src += has_min ? 64 : 32;
    if (dtype == DTYPE_Q8_0) {
        gemm_block_bytes(src, out);
        return;
    }
    gemm_block_nibbles(src, out);
    if (dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1) gemm_block_fifth_bits(src + 256, out);
}

/* 16 bytes as floats. */
GEMM_INLINE __m512 gemm_block_u8(__m128i bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

GEMM_INLINE void gemm_block_k45(enum dtype dtype, const uint8_t *tile, int block_idx, struct gemm_block *out) {
    const int quant_bytes = dtype == DTYPE_Q5_K ? 320 : 256, head_bytes = 64 + 192, s = block_idx % 8;
    const uint8_t *src = tile + (size_t)(block_idx / 8) * (size_t)(head_bytes + 8 * quant_bytes);
    const __m128i low4 = _mm_set1_epi8(15), high2 = _mm_set1_epi8(0x30);
    __m128i low = _mm_loadu_si128((const __m128i *)(src + 64 + 16 * s));
    __m128i high = _mm_loadu_si128((const __m128i *)(src + 64 + 128 + 16 * (s / 2)));
    /* The pairs of bits of this sub-block moved to bits 4, 5 (scale) and 6, 7 (minimum) of a 16-bit lane's bytes. */
    high = _mm_sll_epi16(high, _mm_cvtsi32_si128(4 - 4 * (s % 2)));
    __m128i scale = _mm_or_si128(_mm_and_si128(low, low4), _mm_and_si128(high, high2));
    __m128i min =
        _mm_or_si128(_mm_and_si128(_mm_srli_epi16(low, 4), low4), _mm_and_si128(_mm_srli_epi16(high, 2), high2));
    out->d[0] = _mm512_mul_ps(gemm_block_f16(src), gemm_block_u8(scale));
    out->m[0] = _mm512_xor_ps(_mm512_mul_ps(gemm_block_f16(src + 32), gemm_block_u8(min)), _mm512_set1_ps(-0.0f));
    src += head_bytes + (size_t)s * (size_t)quant_bytes;
    gemm_block_nibbles(src, out);
    if (dtype == DTYPE_Q5_K) gemm_block_fifth_bits(src + 256, out);
}

/* d times the 16 signed bytes of each half. */
GEMM_INLINE void gemm_block_two_scales(__m512 d, const uint8_t *scales, struct gemm_block *out) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m128i scale = _mm_loadu_si128((const __m128i *)(scales + 16 * half));
        out->d[half] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scale)));
    }
}

GEMM_INLINE void gemm_block_k6(const uint8_t *tile, int block_idx, struct gemm_block *out) {
    const int s = block_idx % 8, head_bytes = 32 + 256, quant_bytes = 384;
    const uint8_t *src = tile + (size_t)(block_idx / 8) * (size_t)(head_bytes + 8 * quant_bytes);
    gemm_block_two_scales(gemm_block_f16(src), src + 32 + 32 * s, out);
    src += head_bytes + (size_t)s * (size_t)quant_bytes;
    gemm_block_nibbles(src, out);
    gemm_block_high_pairs(src + 256, out);
}

GEMM_INLINE void gemm_block_k2(const uint8_t *tile, int block_idx, struct gemm_block *out) {
    const int s = block_idx % 8, head_bytes = 64 + 256, quant_bytes = 128;
    const __m512i pair = _mm512_set1_epi8(3);
    const uint8_t *src = tile + (size_t)(block_idx / 8) * (size_t)(head_bytes + 8 * quant_bytes);
    const __m128i low4 = _mm_set1_epi8(15);
    __m512 d = gemm_block_f16(src), m = _mm512_xor_ps(gemm_block_f16(src + 32), _mm512_set1_ps(-0.0f));
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m128i codes = _mm_loadu_si128((const __m128i *)(src + 64 + 16 * (2 * s + half)));
        out->d[half] = _mm512_mul_ps(d, gemm_block_u8(_mm_and_si128(codes, low4)));
        out->m[half] = _mm512_mul_ps(m, gemm_block_u8(_mm_and_si128(_mm_srli_epi16(codes, 4), low4)));
    }
    src += head_bytes + (size_t)s * (size_t)quant_bytes;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m512i bytes = _mm512_loadu_si512(src + 64 * half);
        __m512i *q = out->q + 4 * half;
        q[0] = _mm512_and_si512(bytes, pair);
        q[1] = _mm512_and_si512(_mm512_srli_epi16(bytes, 2), pair);
        q[2] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), pair);
        q[3] = _mm512_and_si512(_mm512_srli_epi16(bytes, 6), pair);
    }
}

GEMM_INLINE void gemm_block_wide(enum dtype dtype, const uint8_t *tile, int block_idx, struct gemm_block *out) {
    const bool is_16 = dtype == PACK_WIDE_16;
    const int s = is_16 ? block_idx % 8 : 0, n_parts = is_16 ? 8 : 1, head_bytes = 64 + (is_16 ? 256 : 0);
    const uint8_t *src = tile + (size_t)(block_idx / n_parts) * (size_t)(head_bytes + 512 * n_parts);
    __m512 d = _mm512_loadu_ps(src);
    if (is_16)
        gemm_block_two_scales(d, src + 64 + 32 * s, out);
    else
        out->d[0] = d;
    gemm_block_bytes(src + head_bytes + 512 * s, out);
}

/* dtype: one of pack_order's quantized types; block_idx counts blocks of 32 k. */
GEMM_INLINE void gemm_block_load(enum dtype dtype, const uint8_t *tile, int block_idx, struct gemm_block *out) {
    if (dtype == DTYPE_Q6_K)
        gemm_block_k6(tile, block_idx, out);
    else if (dtype == DTYPE_Q2_K)
        gemm_block_k2(tile, block_idx, out);
    else if (dtype == PACK_WIDE_32 || dtype == PACK_WIDE_16)
        gemm_block_wide(dtype, tile, block_idx, out);
    else if (dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K)
        gemm_block_k45(dtype, tile, block_idx, out);
    else
        gemm_block_32(dtype, tile, block_idx, out);
}

/* Takes the offset away, so that the bytes are signed. */
GEMM_INLINE void gemm_block_sign(enum dtype dtype, struct gemm_block *block) {
    const int bits = gemm_block_offset_bits(dtype);
    const __m512i offset = _mm512_set1_epi8((char)(1 << bits));
    if (!bits) return;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) block->q[j] = _mm512_sub_epi8(block->q[j], offset);
}

#endif
