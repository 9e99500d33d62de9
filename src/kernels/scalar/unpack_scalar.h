/* unpack_scalar: one block of 32 k of a packed tile as plain numbers; the readable meaning of pack.h. */
#ifndef KVICK_KERNELS_SCALAR_UNPACK_SCALAR_H
#define KVICK_KERNELS_SCALAR_UNPACK_SCALAR_H

#include <stdint.h>
#include <string.h>

#include "kernels/dtype.h"
#include "kernels/kernel_ops.h"
#include "kernels/pack.h"

/* value[k][c] = d[half][c] * q[k][c] + m[half][c], half = k / 16 */
struct unpack_block {
    int16_t q[32][GEMM_TILE_COLS]; /* offset already taken off */
    float d[2][GEMM_TILE_COLS];    /* equal halves except for types with two scales */
    float m[2][GEMM_TILE_COLS];    /* equal halves except for Q2_K */
};

/* Orders with a scale for each half of the block. */
static inline int unpack_scalar_has_two_scales(enum dtype order) {
    return order == DTYPE_Q6_K || order == DTYPE_Q2_K || order == PACK_WIDE_16;
}

static inline float unpack_scalar_f16(const uint8_t *bytes) {
    uint16_t bits;
    memcpy(&bits, bytes, sizeof bits);
    return dtype_f16_to_f32(bits);
}

static inline void unpack_scalar_bytes(const uint8_t *src, struct unpack_block *out) {
    for (int k = 0; k < 32; k++)
        for (int c = 0; c < GEMM_TILE_COLS; c++) out->q[k][c] = (int8_t)src[64 * (k / 4) + 4 * c + k % 4];
}

static inline void unpack_scalar_nibbles(const uint8_t *src, struct unpack_block *out) {
    for (int k = 0; k < 32; k++)
        for (int c = 0; c < GEMM_TILE_COLS; c++)
            out->q[k][c] = src[64 * (k / 8) + 4 * c + k % 4] >> 4 * (k / 4 % 2) & 15;
}

static inline void unpack_scalar_fifth_bits(const uint8_t *src, struct unpack_block *out) {
    for (int k = 0; k < 32; k++)
        for (int c = 0; c < GEMM_TILE_COLS; c++) {
            int bit = 4 * c + k % 4;
            out->q[k][c] |= (int16_t)((src[8 * (k / 4) + bit / 8] >> bit % 8 & 1) << 4);
        }
}

static inline void unpack_scalar_high_pairs(const uint8_t *src, struct unpack_block *out) {
    for (int k = 0; k < 32; k++)
        for (int c = 0; c < GEMM_TILE_COLS; c++)
            out->q[k][c] |= (int16_t)((src[64 * (k / 16) + 4 * c + k % 4] >> 2 * (k / 4 % 4) & 3) << 4);
}

static inline void unpack_scalar_offset(struct unpack_block *out, int offset) {
    for (int k = 0; k < 32; k++)
        for (int c = 0; c < GEMM_TILE_COLS; c++) out->q[k][c] = (int16_t)(out->q[k][c] - offset);
}

static inline void unpack_scalar_32(enum dtype dtype, const uint8_t *tile, int block_idx, struct unpack_block *out) {
    int has_min = dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1, has_fifth = dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1;
    const uint8_t *src = tile + (size_t)block_idx * (size_t)dtype_block_bytes(dtype) * GEMM_TILE_COLS;
    for (int c = 0; c < GEMM_TILE_COLS; c++) {
        out->d[0][c] = out->d[1][c] = unpack_scalar_f16(src + 2 * c);
        out->m[0][c] = out->m[1][c] = has_min ? unpack_scalar_f16(src + 32 + 2 * c) : 0;
    }
    src += has_min ? 64 : 32;
    if (dtype == DTYPE_Q8_0) {
        unpack_scalar_bytes(src, out);
        return;
    }
    unpack_scalar_nibbles(src, out);
    if (has_fifth) unpack_scalar_fifth_bits(src + 256, out);
    if (!has_min) unpack_scalar_offset(out, has_fifth ? 16 : 8);
}

static inline void unpack_scalar_k45(enum dtype dtype, const uint8_t *tile, int block_idx, struct unpack_block *out) {
    int has_fifth = dtype == DTYPE_Q5_K, s = block_idx % 8, block_bytes = has_fifth ? 320 : 256;
    const uint8_t *src = tile + (size_t)(block_idx / 8) * (size_t)dtype_block_bytes(dtype) * GEMM_TILE_COLS;
    const uint8_t *low = src + 64, *high = low + 128, *quants = high + 64 + block_bytes * s;
    for (int c = 0; c < GEMM_TILE_COLS; c++) {
        int extra = high[16 * (s / 2) + c] >> 4 * (s % 2);
        int scale = (low[16 * s + c] & 15) | (extra & 3) << 4, min = low[16 * s + c] >> 4 | (extra >> 2 & 3) << 4;
        out->d[0][c] = out->d[1][c] = unpack_scalar_f16(src + 2 * c) * (float)scale;
        out->m[0][c] = out->m[1][c] = -(unpack_scalar_f16(src + 32 + 2 * c) * (float)min);
    }
    unpack_scalar_nibbles(quants, out);
    if (has_fifth) unpack_scalar_fifth_bits(quants + 256, out);
}

static inline void unpack_scalar_k6(const uint8_t *tile, int block_idx, struct unpack_block *out) {
    int s = block_idx % 8;
    const uint8_t *src = tile + (size_t)(block_idx / 8) * (size_t)dtype_block_bytes(DTYPE_Q6_K) * GEMM_TILE_COLS;
    const uint8_t *scales = src + 32, *quants = scales + 256 + 384 * s;
    for (int c = 0; c < GEMM_TILE_COLS; c++) {
        for (int half = 0; half < 2; half++)
            out->d[half][c] = unpack_scalar_f16(src + 2 * c) * (float)(int8_t)scales[16 * (2 * s + half) + c];
        out->m[0][c] = out->m[1][c] = 0;
    }
    unpack_scalar_nibbles(quants, out);
    unpack_scalar_high_pairs(quants + 256, out);
    unpack_scalar_offset(out, 32);
}

static inline void unpack_scalar_k2(const uint8_t *tile, int block_idx, struct unpack_block *out) {
    int s = block_idx % 8;
    const uint8_t *src = tile + (size_t)(block_idx / 8) * (size_t)dtype_block_bytes(DTYPE_Q2_K) * GEMM_TILE_COLS;
    const uint8_t *scales = src + 64, *quants = scales + 256 + 128 * s;
    for (int c = 0; c < GEMM_TILE_COLS; c++)
        for (int half = 0; half < 2; half++) {
            int code = scales[16 * (2 * s + half) + c];
            out->d[half][c] = unpack_scalar_f16(src + 2 * c) * (float)(code & 15);
            out->m[half][c] = -(unpack_scalar_f16(src + 32 + 2 * c) * (float)(code >> 4));
        }
    memset(out->q, 0, sizeof out->q);
    unpack_scalar_high_pairs(quants, out);
    for (int k = 0; k < 32; k++)
        for (int c = 0; c < GEMM_TILE_COLS; c++) out->q[k][c] >>= 4;
}

static inline void unpack_scalar_wide(enum dtype order, const uint8_t *tile, int block_idx, struct unpack_block *out) {
    int is_16 = order == PACK_WIDE_16, s = is_16 ? block_idx % 8 : 0;
    const uint8_t *src = tile + pack_tile_bytes(order, is_16 ? 256 : 32) * (size_t)(is_16 ? block_idx / 8 : block_idx);
    const uint8_t *scales = src + 64, *quants = scales + (is_16 ? 256 + 512 * s : 0);
    for (int c = 0; c < GEMM_TILE_COLS; c++)
        for (int half = 0; half < 2; half++) {
            memcpy(&out->d[half][c], src + 4 * c, sizeof(float));
            if (is_16) out->d[half][c] *= (float)(int8_t)scales[16 * (2 * s + half) + c];
            out->m[half][c] = 0;
        }
    unpack_scalar_bytes(quants, out);
}

/* order: one of pack_order's quantized types; block_idx counts blocks of 32 k. */
static inline void unpack_scalar_block(enum dtype order, const void *tile, int block_idx, struct unpack_block *out) {
    if (order == DTYPE_Q6_K)
        unpack_scalar_k6(tile, block_idx, out);
    else if (order == DTYPE_Q2_K)
        unpack_scalar_k2(tile, block_idx, out);
    else if (order == PACK_WIDE_32 || order == PACK_WIDE_16)
        unpack_scalar_wide(order, tile, block_idx, out);
    else if (order == DTYPE_Q4_K || order == DTYPE_Q5_K)
        unpack_scalar_k45(order, tile, block_idx, out);
    else
        unpack_scalar_32(order, tile, block_idx, out);
}

#endif
