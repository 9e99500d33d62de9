#include "kernels/pack.h"

#include <string.h>

#include "kernels/block_codes.h"
#include "kernels/kernel_ops.h"
#include "kernels/scalar/unpack_scalar.h"

#define COLS GEMM_TILE_COLS
#define NIBBLE_BYTES 256 /* of a 32-block of a tile */
#define WIDE_BYTES 512   /* the same of quants of 8 bits */
#define WIDE_32_BYTES (4 * COLS + WIDE_BYTES)
#define WIDE_16_BYTES (4 * COLS + 16 * COLS + 8 * WIDE_BYTES)

/* How the tile of an order is made up. */
enum form { FORM_NONE, FORM_PLAIN, FORM_32, FORM_K45, FORM_K6, FORM_K2, FORM_WIDE_32, FORM_WIDE_16 };

static enum form form_of(enum dtype order) {
    switch (order) {
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
    case DTYPE_Q2_K: return FORM_K2;
    case PACK_WIDE_32: return FORM_WIDE_32;
    case PACK_WIDE_16: return FORM_WIDE_16;
    default: return FORM_NONE;
    }
}

enum dtype pack_order(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0: return DTYPE_Q4_0;
    case DTYPE_IQ4_NL: return DTYPE_Q8_0;
    case DTYPE_Q3_K:
    case DTYPE_IQ3_S: return DTYPE_Q6_K;
    case DTYPE_IQ4_XS:
    case DTYPE_IQ3_XXS:
    case DTYPE_IQ2_XXS:
    case DTYPE_IQ1_S: return PACK_WIDE_32;
    case DTYPE_IQ2_XS:
    case DTYPE_IQ1_M: return PACK_WIDE_16;
    default: return dtype;
    }
}

bool pack_is_known(enum dtype dtype) {
    return form_of(pack_order(dtype)) != FORM_NONE;
}

size_t pack_tile_bytes(enum dtype dtype, int k) {
    enum dtype order = pack_order(dtype);
    if (order == PACK_WIDE_32) return (size_t)(k / 32) * WIDE_32_BYTES;
    if (order == PACK_WIDE_16) return (size_t)(k / 256) * WIDE_16_BYTES;
    size_t n_blocks = (size_t)(k / dtype_block_elements(order));
    return n_blocks * (size_t)dtype_block_bytes(order) * COLS;
}

/* ---- quants of one block of 32 k ----
 * As eight words, one per k-quad, one quant per byte: the quad's bytes keep their order in the tile. */

/* Inlined, so that each loop over blocks is compiled for its type. */
#define INLINE static inline __attribute__((always_inline))

INLINE void put_word(uint8_t *dst, int word_idx, uint32_t word) {
    memcpy(dst + 4 * word_idx, &word, sizeof word);
}

INLINE uint32_t word_at(const uint8_t *src, int word_idx) {
    uint32_t word;
    memcpy(&word, src + 4 * word_idx, sizeof word);
    return word;
}

/* All bits of column c; q: [32] */
INLINE void put_bytes(uint8_t *dst, int c, const void *q) {
    for (int j = 0; j < 8; j++) put_word(dst, COLS * j + c, word_at(q, j));
}

/* Bits 0..3 of column c */
INLINE void put_nibbles(uint8_t *dst, int c, const uint32_t quads[8]) {
    for (int g = 0; g < 4; g++)
        put_word(dst, COLS * g + c, (quads[2 * g] & 0x0f0f0f0f) | (quads[2 * g + 1] & 0x0f0f0f0f) << 4);
}

/* Bit 4; the bytes at dst have been zeroed */
INLINE void put_fifth_bits(uint8_t *dst, int c, const uint32_t quads[8]) {
    for (int j = 0; j < 8; j++) {
        uint32_t bits = quads[j] >> 4 & 0x01010101; /* bit 0 of each byte moves next to its neighbours */
        bits = (bits | bits >> 7 | bits >> 14 | bits >> 21) & 15;
        dst[8 * j + c / 2] |= (uint8_t)(bits << 4 * (c % 2));
    }
}

/* Bits 4 and 5 */
INLINE void put_high_pairs(uint8_t *dst, int c, const uint32_t quads[8]) {
    for (int h = 0; h < 2; h++) {
        uint32_t word = 0;
        for (int j = 0; j < 4; j++) word |= (quads[4 * h + j] >> 4 & 0x03030303) << 2 * j;
        put_word(dst, COLS * h + c, word);
    }
}

/* ---- file blocks to quants ---- */

/* qs: [16], k i in the low and k i + 16 in the high nibble of byte i */
INLINE void split_nibbles(const uint8_t *qs, uint32_t quads[8]) {
    for (int j = 0; j < 4; j++) {
        quads[j] = word_at(qs, j) & 0x0f0f0f0f;
        quads[j + 4] = word_at(qs, j) >> 4 & 0x0f0f0f0f;
    }
}

/* Bit i of fifth becomes bit 4 of quant i. */
INLINE void add_fifth_bits(uint32_t fifth, uint32_t quads[8]) {
    for (int j = 0; j < 8; j++) {
        uint32_t bits = fifth >> 4 * j & 15;
        quads[j] |= ((bits | bits << 7 | bits << 14 | bits << 21) & 0x01010101) << 4;
    }
}

INLINE void pack_block_32(enum dtype dtype, const uint8_t *src, uint8_t *dst, int c) {
    bool has_min = dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1, has_fifth = dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1;
    memcpy(dst + 2 * c, src, 2);
    src += 2, dst += 2 * COLS;
    if (has_min) {
        memcpy(dst + 2 * c, src, 2);
        src += 2, dst += 2 * COLS;
    }
    if (dtype == DTYPE_Q8_0) {
        put_bytes(dst, c, src);
        return;
    }
    uint32_t quads[8];
    split_nibbles(has_fifth ? src + 4 : src, quads);
    if (has_fifth) add_fifth_bits(word_at(src, 0), quads);
    put_nibbles(dst, c, quads);
    if (has_fifth) put_fifth_bits(dst + NIBBLE_BYTES, c, quads);
}

/* The 6-bit scale and minimum of sub-block s of a Q4_K or Q5_K block. */
INLINE void k_scale(const uint8_t *scales, int s, int *out_scale, int *out_min) {
    if (s < 4) {
        *out_scale = scales[s] & 63;
        *out_min = scales[s + 4] & 63;
    } else {
        *out_scale = (scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4;
        *out_min = scales[s + 4] >> 4 | (scales[s] >> 6) << 4;
    }
}

INLINE void pack_block_k45(enum dtype dtype, const uint8_t *src, uint8_t *dst, int c) {
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

INLINE void pack_block_k6(const uint8_t *src, uint8_t *dst, int c) {
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

INLINE void pack_block_k2(const uint8_t *src, uint8_t *dst, int c) {
    memcpy(dst + 2 * c, src + 80, 2);
    memcpy(dst + 2 * COLS + 2 * c, src + 82, 2);
    for (int s = 0; s < 16; s++) dst[4 * COLS + COLS * s + c] = src[s];
    uint8_t *quants = dst + 4 * COLS + 16 * COLS;
    for (int s = 0; s < 8; s++, quants += 128) {
        uint32_t quads[8];
        for (int j = 0; j < 8; j++) quads[j] = (word_at(src + 16, 8 * (s / 4) + j) >> 2 * (s % 4) & 0x03030303) << 4;
        put_high_pairs(quants, c, quads);
    }
}

/* ---- codes to quants ---- */

/* q: [32]; all of q + offset are bytes. */
static void offset_quads(const int8_t *q, int offset, uint32_t quads[8]) {
    for (int j = 0; j < 8; j++, q += 4)
        quads[j] = (uint32_t)(q[0] + offset) | (uint32_t)(q[1] + offset) << 8 | (uint32_t)(q[2] + offset) << 16 |
                   (uint32_t)(q[3] + offset) << 24;
}

/* d: the f16 scale as in the file, for the orders that keep it. The tile's block of 256 k, or as many of 32 k as the
 * file's block has. */
static void put_codes(enum dtype order, const struct block_codes *codes, const uint8_t *d, int n_parts, uint8_t *dst,
                      int c) {
    uint32_t quads[8];
    if (order == DTYPE_Q6_K || order == PACK_WIDE_16) {
        int d_bytes = order == DTYPE_Q6_K ? 2 : 4;
        memcpy(dst + d_bytes * c, order == DTYPE_Q6_K ? (const void *)d : &codes->d, (size_t)d_bytes);
        dst += d_bytes * COLS;
        for (int s = 0; s < 16; s++) dst[COLS * s + c] = (uint8_t)codes->scale[s];
        dst += 16 * COLS;
    }
    for (int s = 0; s < n_parts; s++) {
        const int8_t *q = codes->q + 32 * s;
        float scale = codes->d * (float)codes->scale[2 * s];
        switch (order) {
        case DTYPE_Q6_K:
            offset_quads(q, 32, quads);
            put_nibbles(dst, c, quads);
            put_high_pairs(dst + NIBBLE_BYTES, c, quads);
            dst += NIBBLE_BYTES + 128;
            break;
        case PACK_WIDE_16:
            put_bytes(dst, c, q);
            dst += WIDE_BYTES;
            break;
        case PACK_WIDE_32:
            memcpy(dst + 4 * c, &scale, 4);
            put_bytes(dst + 4 * COLS, c, q);
            dst += WIDE_32_BYTES;
            break;
        case DTYPE_Q8_0:
            memcpy(dst + 2 * c, d, 2);
            put_bytes(dst + 2 * COLS, c, q);
            dst += 2 * COLS + WIDE_BYTES;
            break;
        default: /* Q4_0 */
            memcpy(dst + 2 * c, d, 2);
            offset_quads(q, 8, quads);
            put_nibbles(dst + 2 * COLS, c, quads);
            dst += 2 * COLS + NIBBLE_BYTES;
        }
    }
}

static void pack_codes_row(enum dtype dtype, block_codes_fn *decode, const uint8_t *src, int n_blocks, uint8_t *tile,
                           int c) {
    int block_elements = dtype_block_elements(dtype), block_bytes = dtype_block_bytes(dtype);
    size_t tile_bytes = pack_tile_bytes(dtype, block_elements);
    int d_off;
    dtype_f16_scales(dtype, &d_off);
    for (int i = 0; i < n_blocks; i++, src += block_bytes, tile += tile_bytes) {
        struct block_codes codes;
        decode(src, &codes);
        put_codes(pack_order(dtype), &codes, src + d_off, block_elements / 32, tile, c);
    }
}

/* ---- rows to tiles ---- */

/* One file row into its column. */
INLINE void pack_row(enum dtype dtype, const uint8_t *src, int n_blocks, uint8_t *tile, int c) {
    int block_bytes = dtype_block_bytes(dtype);
    for (int i = 0; i < n_blocks; i++, src += block_bytes, tile += block_bytes * COLS) {
        switch (form_of(dtype)) {
        case FORM_PLAIN: memcpy(tile + c * block_bytes, src, (size_t)block_bytes); break;
        case FORM_32: pack_block_32(dtype, src, tile, c); break;
        case FORM_K45: pack_block_k45(dtype, src, tile, c); break;
        case FORM_K6: pack_block_k6(src, tile, c); break;
        case FORM_K2: pack_block_k2(src, tile, c); break;
        default: break;
        }
    }
}

void pack_tile(enum dtype dtype, const void *matrix, int n_rows, int row_begin, int k, void *tile) {
    enum form form = form_of(pack_order(dtype));
    block_codes_fn *decode = block_codes_of(dtype);
    REQUIRE(pack_is_known(dtype));
    int n_blocks = k / dtype_block_elements(dtype);
    size_t row_bytes = (size_t)n_blocks * (size_t)dtype_block_bytes(dtype);
    bool has_bit_fields = dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1 || form == FORM_K45; /* filled by |= */
    if (has_bit_fields || n_rows - row_begin < COLS) memset(tile, 0, pack_tile_bytes(dtype, k));
    for (int c = 0; c < COLS && row_begin + c < n_rows; c++) {
        const uint8_t *src = (const uint8_t *)matrix + (size_t)(row_begin + c) * row_bytes;
        if (decode) {
            pack_codes_row(dtype, decode, src, n_blocks, tile, c);
            continue;
        }
        switch (dtype) {
        case DTYPE_Q4_0: pack_row(DTYPE_Q4_0, src, n_blocks, tile, c); break;
        case DTYPE_Q4_1: pack_row(DTYPE_Q4_1, src, n_blocks, tile, c); break;
        case DTYPE_Q8_0: pack_row(DTYPE_Q8_0, src, n_blocks, tile, c); break;
        case DTYPE_Q4_K: pack_row(DTYPE_Q4_K, src, n_blocks, tile, c); break;
        case DTYPE_Q5_K: pack_row(DTYPE_Q5_K, src, n_blocks, tile, c); break;
        case DTYPE_Q6_K: pack_row(DTYPE_Q6_K, src, n_blocks, tile, c); break;
        default: pack_row(dtype, src, n_blocks, tile, c); break;
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

/* The quants of column c in one block of 32 k of a tile: the reverse of put_nibbles and its kin. */
INLINE void column_quads(enum dtype dtype, const uint8_t *src, int c, uint32_t quads[8]) {
    bool has_fifth = dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q5_K;
    if (dtype == DTYPE_Q2_K) {
        for (int j = 0; j < 8; j++) quads[j] = word_at(src, COLS * (j / 4) + c) >> 2 * (j % 4) & 0x03030303;
        return;
    }
    for (int g = 0; g < 4; g++) {
        uint32_t word = word_at(src, COLS * g + c);
        quads[2 * g] = word & 0x0f0f0f0f;
        quads[2 * g + 1] = word >> 4 & 0x0f0f0f0f;
    }
    for (int j = 0; j < 8; j++) {
        uint32_t bits = has_fifth ? src[NIBBLE_BYTES + 8 * j + c / 2] >> 4 * (c % 2) & 15 : 0;
        if (dtype == DTYPE_Q6_K)
            quads[j] |= (word_at(src + NIBBLE_BYTES, COLS * (j / 4) + c) >> 2 * (j % 4) & 0x03030303) << 4;
        else
            quads[j] |= ((bits | bits << 7 | bits << 14 | bits << 21) & 0x01010101) << 4;
    }
}

/* d * q is exact or rounded once, then the minimum is added: the order of dequantize_row. A type without minima has
 * -0, which changes no number. */
INLINE void put_column_values(const uint32_t quads[8], int offset, const float d[2], const float min[2], float *out) {
    for (int i = 0; i < 32; i++) {
        int q = (int)(quads[i / 4] >> 8 * (i % 4) & 255) - offset;
        out[i] = d[i / 16] * (float)q + min[i / 16];
    }
}

/* Of signed bytes in a tile: as unsigned ones with an offset. */
INLINE void put_column_bytes(const uint8_t *src, int c, const float d[2], float *out) {
    static const float no_min[2] = {-0.0f, -0.0f};
    uint32_t quads[8];
    for (int j = 0; j < 8; j++) quads[j] = word_at(src, COLS * j + c) ^ 0x80808080;
    put_column_values(quads, 128, d, no_min, out);
}

static void read_column_32(enum dtype dtype, const uint8_t *tile, int c, int n_blocks, float *out) {
    bool has_min = dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1;
    int offset = has_min ? 0 : dtype == DTYPE_Q5_0 ? 16 : 8;
    uint32_t quads[8];
    for (int b = 0; b < n_blocks; b++, tile += dtype_block_bytes(dtype) * COLS, out += 32) {
        float d = unpack_scalar_f16(tile + 2 * c), min = has_min ? unpack_scalar_f16(tile + 2 * COLS + 2 * c) : -0.0f;
        if (dtype == DTYPE_Q8_0) {
            put_column_bytes(tile + 2 * COLS, c, (const float[2]){d, d}, out);
            continue;
        }
        column_quads(dtype, tile + (has_min ? 4 : 2) * COLS, c, quads);
        put_column_values(quads, offset, (const float[2]){d, d}, (const float[2]){min, min}, out);
    }
}

static void read_column_k(enum dtype dtype, const uint8_t *tile, int c, int n_blocks, float *out) {
    bool is_q6 = dtype == DTYPE_Q6_K;
    size_t quants_bytes = is_q6 ? NIBBLE_BYTES + 128 : dtype == DTYPE_Q5_K ? NIBBLE_BYTES + 64 : NIBBLE_BYTES;
    uint32_t quads[8];
    for (int b = 0; b < n_blocks; b++, tile += dtype_block_bytes(dtype) * COLS) {
        float whole_d = unpack_scalar_f16(tile + 2 * c), whole_min = is_q6 ? 0 : unpack_scalar_f16(tile + 32 + 2 * c);
        const uint8_t *scales = tile + (is_q6 ? 2 : 4) * COLS, *quants = scales + (is_q6 ? 16 : 12) * COLS;
        for (int s = 0; s < 8; s++, out += 32, quants += quants_bytes) {
            float d[2], min = -0.0f;
            if (is_q6) {
                for (int h = 0; h < 2; h++) d[h] = whole_d * (float)(int8_t)scales[COLS * (2 * s + h) + c];
            } else {
                int low = scales[COLS * s + c], extra = scales[COLS * (8 + s / 2) + c] >> 4 * (s % 2);
                d[0] = d[1] = whole_d * (float)((low & 15) | (extra & 3) << 4);
                min = -(whole_min * (float)(low >> 4 | (extra >> 2 & 3) << 4));
            }
            column_quads(dtype, quants, c, quads);
            put_column_values(quads, is_q6 ? 32 : 0, d, (const float[2]){min, min}, out);
        }
    }
}

static void read_column_k2(const uint8_t *tile, int c, int n_blocks, float *out) {
    uint32_t quads[8];
    for (int b = 0; b < n_blocks; b++, tile += dtype_block_bytes(DTYPE_Q2_K) * COLS) {
        float whole_d = unpack_scalar_f16(tile + 2 * c), whole_min = unpack_scalar_f16(tile + 32 + 2 * c);
        const uint8_t *scales = tile + 4 * COLS, *quants = scales + 16 * COLS;
        for (int s = 0; s < 8; s++, out += 32, quants += 128) {
            float d[2], min[2];
            for (int h = 0; h < 2; h++) {
                int code = scales[COLS * (2 * s + h) + c];
                d[h] = whole_d * (float)(code & 15);
                min[h] = -(whole_min * (float)(code >> 4));
            }
            column_quads(DTYPE_Q2_K, quants, c, quads);
            put_column_values(quads, 0, d, min, out);
        }
    }
}

/* n_blocks of 32 k */
static void read_column_wide(enum dtype order, const uint8_t *tile, int c, int n_blocks, float *out) {
    const uint8_t *scales = tile + 4 * COLS;
    float whole_d;
    for (int b = 0; b < n_blocks; b++, out += 32) {
        if (order == PACK_WIDE_32 || b % 8 == 0) {
            memcpy(&whole_d, tile + 4 * c, sizeof whole_d);
            scales = tile + 4 * COLS;
            tile = scales + (order == PACK_WIDE_16 ? 16 * COLS : 0);
        }
        float d[2] = {whole_d, whole_d};
        for (int h = 0; h < 2 && order == PACK_WIDE_16; h++)
            d[h] *= (float)(int8_t)scales[COLS * (2 * (b % 8) + h) + c];
        put_column_bytes(tile, c, d, out);
        tile += WIDE_BYTES;
    }
}

void pack_column(enum dtype dtype, const void *tile, int col_idx, int k, float *out) {
    REQUIRE(col_idx >= 0 && col_idx < COLS);
    enum dtype order = pack_order(dtype);
    int n_blocks = k / dtype_block_elements(order);
    switch (form_of(order)) {
    case FORM_PLAIN: {
        int item_bytes = dtype_block_bytes(dtype);
        for (int i = 0; i < k; i++)
            out[i] = plain_value(dtype, (const uint8_t *)tile + (i * COLS + col_idx) * item_bytes);
        return;
    }
    case FORM_32: read_column_32(order, tile, col_idx, n_blocks, out); return;
    case FORM_K45:
    case FORM_K6: read_column_k(order, tile, col_idx, n_blocks, out); return;
    case FORM_K2: read_column_k2(tile, col_idx, n_blocks, out); return;
    case FORM_WIDE_32:
    case FORM_WIDE_16: read_column_wide(order, tile, col_idx, k / 32, out); return;
    case FORM_NONE: BUG("type %s has no tiles", dtype_name(dtype));
    }
}
