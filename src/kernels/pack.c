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

/* ---- quants of one block of 32 k ----
 * As eight words, one per k-quad, one quant per byte: the quad's bytes keep their order in the tile. */

static void put_word(uint8_t *dst, int word_idx, uint32_t word) {
    memcpy(dst + 4 * word_idx, &word, sizeof word);
}

static uint32_t word_at(const uint8_t *src, int word_idx) {
    uint32_t word;
    memcpy(&word, src + 4 * word_idx, sizeof word);
    return word;
}

/* Bits 0..3 of column c */
static void put_nibbles(uint8_t *dst, int c, const uint32_t quads[8]) {
    for (int g = 0; g < 4; g++)
        put_word(dst, COLS * g + c, (quads[2 * g] & 0x0f0f0f0f) | (quads[2 * g + 1] & 0x0f0f0f0f) << 4);
}

/* Bit 4; the bytes at dst have been zeroed */
static void put_fifth_bits(uint8_t *dst, int c, const uint32_t quads[8]) {
    for (int j = 0; j < 8; j++) {
        uint32_t bits = quads[j] >> 4 & 0x01010101; /* bit 0 of each byte moves next to its neighbours */
        bits = (bits | bits >> 7 | bits >> 14 | bits >> 21) & 15;
        dst[8 * j + c / 2] |= (uint8_t)(bits << 4 * (c % 2));
    }
}

/* Bits 4 and 5 */
static void put_high_pairs(uint8_t *dst, int c, const uint32_t quads[8]) {
    for (int h = 0; h < 2; h++) {
        uint32_t word = 0;
        for (int j = 0; j < 4; j++) word |= (quads[4 * h + j] >> 4 & 0x03030303) << 2 * j;
        put_word(dst, COLS * h + c, word);
    }
}

/* ---- file blocks to quants ---- */

/* qs: [16], k i in the low and k i + 16 in the high nibble of byte i */
static void split_nibbles(const uint8_t *qs, uint32_t quads[8]) {
    for (int j = 0; j < 4; j++) {
        quads[j] = word_at(qs, j) & 0x0f0f0f0f;
        quads[j + 4] = word_at(qs, j) >> 4 & 0x0f0f0f0f;
    }
}

/* Bit i of fifth becomes bit 4 of quant i. */
static void add_fifth_bits(uint32_t fifth, uint32_t quads[8]) {
    for (int j = 0; j < 8; j++) {
        uint32_t bits = fifth >> 4 * j & 15;
        quads[j] |= ((bits | bits << 7 | bits << 14 | bits << 21) & 0x01010101) << 4;
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
        for (int j = 0; j < 8; j++) put_word(dst, COLS * j + c, word_at(src, j));
        return;
    }
    uint32_t quads[8];
    split_nibbles(has_fifth ? src + 4 : src, quads);
    if (has_fifth) add_fifth_bits(word_at(src, 0), quads);
    put_nibbles(dst, c, quads);
    if (has_fifth) put_fifth_bits(dst + NIBBLE_BYTES, c, quads);
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
        uint32_t quads[8];
        for (int j = 0; j < 8; j++) {
            quads[j] = word_at(qs, 8 * (s / 2) + j) >> 4 * (s % 2) & 0x0f0f0f0f;
            if (dtype == DTYPE_Q5_K) quads[j] |= (word_at(fifth, j) >> s & 0x01010101) << 4;
        }
        put_nibbles(quants + block_bytes * s, c, quads);
        if (dtype == DTYPE_Q5_K) put_fifth_bits(quants + block_bytes * s + NIBBLE_BYTES, c, quads);
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
        uint32_t quads[8];
        for (int j = 0; j < 8; j++) {
            uint32_t low = word_at(ql, 16 * half + 8 * (quarter % 2) + j) >> 4 * (quarter / 2) & 0x0f0f0f0f;
            quads[j] = low | (word_at(qh, 8 * half + j) >> 2 * quarter & 0x03030303) << 4;
        }
        put_nibbles(quants, c, quads);
        put_high_pairs(quants + NIBBLE_BYTES, c, quads);
    }
}

void pack_tile(enum dtype dtype, const void *matrix, int n_rows, int row_begin, int k, void *tile) {
    enum form form = form_of(dtype);
    REQUIRE(form != FORM_NONE);
    int block_elements = dtype_block_elements(dtype), block_bytes = dtype_block_bytes(dtype);
    size_t row_bytes = (size_t)(k / block_elements) * (size_t)block_bytes;
    bool has_bit_fields = dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1 || form == FORM_K45; /* filled by |= */
    if (has_bit_fields || n_rows - row_begin < COLS) memset(tile, 0, pack_tile_bytes(dtype, k));
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
