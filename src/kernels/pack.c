#include "kernels/pack.h"

#include <string.h>

#include "kernels/kernel_ops.h"
#include "kernels/scalar/unpack_scalar.h"

#define COLS GEMM_TILE_COLS
#define NIBBLE_BYTES 256 /* of a 32-block of a tile */

/* How a type's file block maps to a tile block. */
enum form { FORM_NONE, FORM_PLAIN, FORM_32, FORM_K45, FORM_K6 };

static enum form form_of(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16: return FORM_PLAIN;
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q8_0: return FORM_32;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: return FORM_K45;
    case DTYPE_Q6_K: return FORM_K6;
    default: return FORM_NONE;
    }
}

bool pack_is_known(enum dtype dtype) {
    return form_of(dtype) != FORM_NONE;
}

size_t pack_tile_bytes(enum dtype dtype, int k) {
    size_t n_blocks = (size_t)(k / dtype_block_elements(dtype));
    return n_blocks * (size_t)dtype_block_bytes(dtype) * COLS;
}

/* ---- quants of one block of 32 k ---- */

/* q: [32] 0..15 of column c */
static void put_nibbles(uint8_t *dst, int c, const uint8_t *q) {
    for (int g = 0; g < 4; g++)
        for (int b = 0; b < 4; b++)
            dst[64 * g + 4 * c + b] = (uint8_t)((q[8 * g + b] & 15) | (q[8 * g + 4 + b] & 15) << 4);
}

/* Bit 4 of q[32] */
static void put_fifth_bits(uint8_t *dst, int c, const uint8_t *q) {
    for (int j = 0; j < 8; j++)
        for (int b = 0; b < 4; b++)
            if (q[4 * j + b] & 16) dst[8 * j + (4 * c + b) / 8] |= (uint8_t)(1 << (4 * c + b) % 8);
}

/* Bits 4 and 5 of q[32] */
static void put_high_pairs(uint8_t *dst, int c, const uint8_t *q) {
    for (int j = 0; j < 8; j++)
        for (int b = 0; b < 4; b++) dst[64 * (j / 4) + 4 * c + b] |= (uint8_t)((q[4 * j + b] >> 4) << 2 * (j % 4));
}

/* ---- file blocks to quants ---- */

static void split_nibbles(const uint8_t *qs, uint8_t q[32]) {
    for (int i = 0; i < 16; i++) {
        q[i] = qs[i] & 15;
        q[i + 16] = qs[i] >> 4;
    }
}

static void pack_block_32(enum dtype dtype, const uint8_t *src, uint8_t *dst, int c) {
    bool has_min = dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1, has_fifth = dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1;
    memcpy(dst + 2 * c, src, 2);
    src += 2, dst += 2 * COLS;
    if (has_min) {
        memcpy(dst + 2 * c, src, 2);
        src += 2, dst += 2 * COLS;
    }
    if (dtype == DTYPE_Q8_0) {
        for (int j = 0; j < 8; j++) memcpy(dst + 64 * j + 4 * c, src + 4 * j, 4);
        return;
    }
    uint8_t q[32];
    uint32_t fifth = 0;
    if (has_fifth) {
        memcpy(&fifth, src, 4);
        src += 4;
    }
    split_nibbles(src, q);
    for (int i = 0; i < 32; i++) q[i] |= (uint8_t)((fifth >> i & 1) << 4);
    put_nibbles(dst, c, q);
    if (has_fifth) put_fifth_bits(dst + NIBBLE_BYTES, c, q);
}

/* The 6-bit scale and minimum of sub-block s of a Q4_K or Q5_K block. */
static void k_scale(const uint8_t *scales, int s, int *out_scale, int *out_min) {
    if (s < 4) {
        *out_scale = scales[s] & 63;
        *out_min = scales[s + 4] & 63;
    } else {
        *out_scale = (scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4;
        *out_min = scales[s + 4] >> 4 | (scales[s] >> 6) << 4;
    }
}

static void pack_block_k45(enum dtype dtype, const uint8_t *src, uint8_t *dst, int c) {
    memcpy(dst + 2 * c, src, 2);
    memcpy(dst + 2 * COLS + 2 * c, src + 2, 2);
    const uint8_t *scales = src + 4, *fifth = src + 16, *qs = dtype == DTYPE_Q5_K ? src + 48 : src + 16;
    uint8_t *low = dst + 4 * COLS, *high = low + 8 * COLS, *quants = high + 4 * COLS;
    int block_bytes = dtype == DTYPE_Q5_K ? NIBBLE_BYTES + 64 : NIBBLE_BYTES;
    for (int s = 0; s < 8; s++) {
        int sc, m;
        k_scale(scales, s, &sc, &m);
        low[COLS * s + c] = (uint8_t)((sc & 15) | (m & 15) << 4);
        high[COLS * (s / 2) + c] |= (uint8_t)((sc >> 4 | (m >> 4) << 2) << 4 * (s % 2));
        uint8_t q[32];
        for (int i = 0; i < 32; i++) {
            q[i] = qs[32 * (s / 2) + i] >> 4 * (s % 2) & 15;
            if (dtype == DTYPE_Q5_K) q[i] |= (uint8_t)((fifth[i] >> s & 1) << 4);
        }
        put_nibbles(quants + block_bytes * s, c, q);
        if (dtype == DTYPE_Q5_K) put_fifth_bits(quants + block_bytes * s + NIBBLE_BYTES, c, q);
    }
}

static void pack_block_k6(const uint8_t *src, uint8_t *dst, int c) {
    const uint8_t *ql = src, *qh = src + 128, *scales = src + 192;
    memcpy(dst + 2 * c, src + 208, 2);
    for (int s = 0; s < 16; s++) dst[2 * COLS + COLS * s + c] = scales[s];
    uint8_t *quants = dst + 2 * COLS + 16 * COLS;
    for (int s = 0; s < 8; s++, quants += NIBBLE_BYTES + 128) {
        /* k 32s..32s+31: half s / 4 of the block, quarter s % 4 of that half */
        int half = s / 4, quarter = s % 4;
        uint8_t q[32];
        for (int i = 0; i < 32; i++) {
            int low = ql[64 * half + 32 * (quarter % 2) + i] >> 4 * (quarter / 2) & 15;
            q[i] = (uint8_t)(low | (qh[32 * half + i] >> 2 * quarter & 3) << 4);
        }
        put_nibbles(quants, c, q);
        put_high_pairs(quants + NIBBLE_BYTES, c, q);
    }
}

void pack_tile(enum dtype dtype, const void *matrix, int n_rows, int row_begin, int k, void *tile) {
    enum form form = form_of(dtype);
    REQUIRE(form != FORM_NONE);
    int block_elements = dtype_block_elements(dtype), block_bytes = dtype_block_bytes(dtype);
    size_t row_bytes = (size_t)(k / block_elements) * (size_t)block_bytes;
    memset(tile, 0, pack_tile_bytes(dtype, k));
    for (int c = 0; c < COLS && row_begin + c < n_rows; c++) {
        const uint8_t *src = (const uint8_t *)matrix + (size_t)(row_begin + c) * row_bytes;
        uint8_t *dst = tile;
        for (int i = 0; i < k / block_elements; i++, src += block_bytes, dst += block_bytes * COLS) {
            switch (form) {
            case FORM_PLAIN: memcpy(dst + c * block_bytes, src, (size_t)block_bytes); break;
            case FORM_32: pack_block_32(dtype, src, dst, c); break;
            case FORM_K45: pack_block_k45(dtype, src, dst, c); break;
            case FORM_K6: pack_block_k6(src, dst, c); break;
            case FORM_NONE: break;
            }
        }
    }
}

static float plain_value(enum dtype dtype, const uint8_t *src) {
    uint32_t word;
    uint16_t half;
    float value;
    if (dtype == DTYPE_F32) {
        memcpy(&word, src, sizeof word);
        memcpy(&value, &word, sizeof value);
        return value;
    }
    memcpy(&half, src, sizeof half);
    return dtype == DTYPE_F16 ? dtype_f16_to_f32(half) : dtype_bf16_to_f32(half);
}

void pack_column(enum dtype dtype, const void *tile, int col_idx, int k, float *out) {
    REQUIRE(col_idx >= 0 && col_idx < COLS);
    if (form_of(dtype) == FORM_PLAIN) {
        int item_bytes = dtype_block_bytes(dtype);
        for (int i = 0; i < k; i++)
            out[i] = plain_value(dtype, (const uint8_t *)tile + (i * COLS + col_idx) * item_bytes);
        return;
    }
    struct unpack_block block;
    for (int i = 0; i < k; i++) {
        if (i % 32 == 0) unpack_scalar_block(dtype, tile, i / 32, &block);
        /* d * q is exact or rounded once, then the minimum is added: the order of dequantize_row */
        out[i] = block.d[i % 32 / 16][col_idx] * (float)block.q[i % 32][col_idx] + block.m[col_idx];
    }
}
