#include "kernels/block_codes.h"

#include <string.h>

#include "kernels/block_read.h"
#include "kernels/iq_grids.h"

/* Seven stored signs of eight: the eighth makes the number of negative elements even. */
static unsigned with_even_sign(unsigned seven) {
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

/* The scale of elements 32j..32j+31. */
static void put_scale_32(struct block_codes *out, int j, int scale) {
    out->scale[2 * j] = out->scale[2 * j + 1] = (int8_t)scale;
}

/* Grid points become codes, negated where the sign's bit is set (bit i: element i). */

static void put_iq2(uint16_t point, unsigned signs, int8_t *out) {
    static const int8_t values[4] = {8, 25, 43, 0}; /* no point has a code of 3 */
    for (int i = 0; i < 8; i++) {
        int8_t value = values[point >> 2 * i & 3];
        out[i] = signs >> i & 1 ? (int8_t)-value : value;
    }
}

static void put_iq3(uint16_t point, const int8_t values[8], unsigned signs, int8_t *out) {
    for (int i = 0; i < 4; i++) {
        int8_t value = values[point >> 4 * i & 7];
        out[i] = signs >> i & 1 ? (int8_t)-value : value;
    }
}

/* Points -1, 0, 1 and a shift of +-1/8, in eighths. */
static void put_iq1(uint16_t point, bool is_down, int8_t *out) {
    for (int i = 0; i < 8; i++) out[i] = (int8_t)(8 * ((int)(point >> 2 * i & 3) - 1) + (is_down ? -1 : 1));
}

/* ---- eight elements a point ---- */

static void iq1_s(const uint8_t *block, struct block_codes *out) {
    const uint8_t *low = block + 2, *high = block + 34;
    out->d = block_read_f16(block) * 0.125f;
    for (int j = 0; j < 32; j++) {
        unsigned word = block_read_u16(high + j / 4 * 2);
        put_scale_32(out, j / 4, (int)(2 * (word >> 12 & 7) + 1));
        put_iq1(iq_grids_iq1[low[j] | (word >> 3 * (j % 4) & 7) << 8], word >> 15, out->q + 8 * j);
    }
}

static void iq1_m(const uint8_t *block, struct block_codes *out) {
    const uint8_t *low = block, *high = block + 32, *scales = block + 48;
    unsigned d_bits = 0; /* the f16 scale lies in the top nibbles of the four scale words */
    for (int w = 0; w < 4; w++) d_bits |= (unsigned)block_read_u16(scales + 2 * w) >> 12 << 4 * w;
    out->d = dtype_f16_to_f32((uint16_t)d_bits) * 0.125f;
    for (int j = 0; j < 32; j++) {
        unsigned code = (unsigned)block_read_u16(scales + j / 8 * 2) >> 3 * (j / 2 % 4) & 7;
        unsigned nibble = (unsigned)block_read_nibble(high, j);
        out->scale[j / 2] = (int8_t)(2 * code + 1);
        put_iq1(iq_grids_iq1[low[j] | (nibble & 7) << 8], nibble >> 3, out->q + 8 * j);
    }
}

/* (0.5 + code) / 4 = (2 code + 1) / 8 */
static void iq2_xxs(const uint8_t *block, struct block_codes *out) {
    out->d = block_read_f16(block) * 0.125f;
    for (int g = 0; g < 8; g++) {
        const uint8_t *points = block + 2 + 8 * g;
        uint32_t word = block_read_u32(points + 4);
        put_scale_32(out, g, (int)(2 * (word >> 28) + 1));
        for (int k = 0; k < 4; k++)
            put_iq2(iq_grids_iq2_xxs[points[k]], with_even_sign(word >> 7 * k & 127), out->q + 32 * g + 8 * k);
    }
}

static void iq2_xs(const uint8_t *block, struct block_codes *out) {
    const uint8_t *points = block + 2, *scales = block + 66;
    out->d = block_read_f16(block) * 0.125f;
    for (int j = 0; j < 32; j++) {
        unsigned word = block_read_u16(points + 2 * j);
        out->scale[j / 2] = (int8_t)(2 * block_read_nibble(scales, j / 2) + 1);
        put_iq2(iq_grids_iq2_xs[word & 511], with_even_sign(word >> 9), out->q + 8 * j);
    }
}

static void iq2_s(const uint8_t *block, struct block_codes *out) {
    const uint8_t *low = block + 2, *signs = block + 34, *high = block + 66, *scales = block + 74;
    out->d = block_read_f16(block) * 0.125f;
    for (int j = 0; j < 32; j++) {
        int point = low[j] | (high[j / 4] >> 2 * (j % 4) & 3) << 8;
        out->scale[j / 2] = (int8_t)(2 * block_read_nibble(scales, j / 2) + 1);
        put_iq2(iq_grids_iq2_s[point], signs[j], out->q + 8 * j);
    }
}

/* ---- four elements a point ---- */

/* (0.5 + code) / 2 = (2 code + 1) / 4 */
static void iq3_xxs(const uint8_t *block, struct block_codes *out) {
    static const int8_t values[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    const uint8_t *points = block + 2, *words = block + 66;
    out->d = block_read_f16(block) * 0.25f;
    for (int j = 0; j < 64; j++) {
        uint32_t word = block_read_u32(words + j / 8 * 4);
        unsigned signs = with_even_sign(word >> 7 * (j / 2 % 4) & 127) >> 4 * (j % 2);
        put_scale_32(out, j / 8, (int)(2 * (word >> 28) + 1));
        put_iq3(iq_grids_iq3_xxs[points[j]], values, signs, out->q + 4 * j);
    }
}

static void iq3_s(const uint8_t *block, struct block_codes *out) {
    static const int8_t values[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    const uint8_t *low = block + 2, *high = block + 66, *signs = block + 74, *scales = block + 106;
    out->d = block_read_f16(block);
    for (int j = 0; j < 64; j++) {
        int point = low[j] | (high[j / 8] >> j % 8 & 1) << 8;
        put_scale_32(out, j / 8, 2 * block_read_nibble(scales, j / 8) + 1);
        put_iq3(iq_grids_iq3_s[point], values, (unsigned)block_read_nibble(signs, j), out->q + 4 * j);
    }
}

/* ---- tables of 16 values: byte i holds element i in its low and element 16 + i in its high nibble ---- */

static void put_table(const uint8_t *codes, const int8_t values[16], int8_t *out) {
    for (int e = 0; e < 32; e++) out[e] = values[codes[e % 16] >> 4 * (e / 16) & 15];
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void iq4_nl(const uint8_t *block, struct block_codes *out) {
    out->d = block_read_f16(block);
    put_scale_32(out, 0, 1);
    put_table(block + 2, iq4_values, out->q);
}

static void iq4_xs(const uint8_t *block, struct block_codes *out) {
    const uint8_t *low = block + 4, *codes = block + 8;
    unsigned high = block_read_u16(block + 2);
    out->d = block_read_f16(block);
    for (int j = 0; j < 8; j++) {
        int code = block_read_nibble(low, j) | (int)(high >> 2 * j & 3) << 4;
        put_scale_32(out, j, code - 32);
        put_table(codes + 16 * j, iq4_values, out->q + 32 * j);
    }
}

/* Values: e2m1 doubled, so that they are integers; the scale, an e8m0 exponent of bias 127, is halved to match.
 * Source: OCP Microscaling Formats 1.0, 5.3 and 6. */
static void mxfp4(const uint8_t *block, struct block_codes *out) {
    static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    uint32_t exponent = block[0];
    /* The two smallest scales, 2^-128 and 2^-127, are subnormal floats. */
    uint32_t bits = exponent < 2 ? (uint32_t)0x00200000 << exponent : (exponent - 1) << 23;
    memcpy(&out->d, &bits, sizeof out->d);
    put_scale_32(out, 0, 1);
    put_table(block + 1, values, out->q);
}

/* ---- ternary ---- */

/* A byte holds up to five ternary digits as a fraction of 256: digit p is the integer part of 3 x (byte x 3^p mod 256)
 * / 256. Digit p of byte i is element p * n_bytes + i. */
static int8_t *put_ternary(const uint8_t *bytes, int n_bytes, int n_digits, int8_t *out) {
    for (int p = 0, power = 1; p < n_digits; p++, power *= 3) {
        for (int i = 0; i < n_bytes; i++) {
            int rest = (uint8_t)(bytes[i] * power);
            *out++ = (int8_t)((rest * 3 >> 8) - 1);
        }
    }
    return out;
}

static void tq1_0(const uint8_t *block, struct block_codes *out) {
    out->d = block_read_f16(block + 52);
    memset(out->scale, 1, sizeof out->scale);
    int8_t *q = put_ternary(block, 32, 5, out->q);
    q = put_ternary(block + 32, 16, 5, q);
    put_ternary(block + 48, 4, 4, q);
}

static void tq2_0(const uint8_t *block, struct block_codes *out) {
    out->d = block_read_f16(block + 64);
    memset(out->scale, 1, sizeof out->scale);
    for (int e = 0; e < 256; e++) out->q[e] = (int8_t)(block_read_plane2(block, e) - 1);
}

/* ---- Q3_K ---- */

static void q3_k(const uint8_t *block, struct block_codes *out) {
    const uint8_t *high = block, *codes = block + 32, *scales = block + 96;
    out->d = block_read_f16(block + 108);
    for (int j = 0; j < 16; j++) {
        int low4_bits = scales[j % 8] >> 4 * (j / 8) & 15, high2_bits = scales[8 + j % 4] >> 2 * (j / 4) & 3;
        out->scale[j] = (int8_t)((low4_bits | high2_bits << 4) - 32);
    }
    for (int e = 0; e < 256; e++) /* a set bit means no offset */
        out->q[e] = (int8_t)(block_read_plane2(codes, e) - (block_read_plane1(high, e) ? 0 : 4));
}

block_codes_fn *block_codes_of(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_Q3_K: return q3_k;
    case DTYPE_IQ1_S: return iq1_s;
    case DTYPE_IQ1_M: return iq1_m;
    case DTYPE_IQ2_XXS: return iq2_xxs;
    case DTYPE_IQ2_XS: return iq2_xs;
    case DTYPE_IQ2_S: return iq2_s;
    case DTYPE_IQ3_XXS: return iq3_xxs;
    case DTYPE_IQ3_S: return iq3_s;
    case DTYPE_IQ4_NL: return iq4_nl;
    case DTYPE_IQ4_XS: return iq4_xs;
    case DTYPE_TQ1_0: return tq1_0;
    case DTYPE_TQ2_0: return tq2_0;
    case DTYPE_MXFP4: return mxfp4;
    default: return NULL;
    }
}
