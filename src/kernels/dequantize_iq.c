#include "kernels/dequantize_iq.h"

#include "kernels/block_read.h"
#include "kernels/iq_grids.h"

/* Seven stored signs of eight: the eighth makes the number of negative elements even. */
static unsigned with_even_sign(unsigned seven) {
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

/* Grid points become values times scale, negated where the sign's bit is set (bit i: element i). */

static void put_iq2(uint16_t point, unsigned signs, float scale, float *out) {
    static const float values[4] = {8, 25, 43, 0}; /* no point has a code of 3 */
    for (int i = 0; i < 8; i++) {
        float value = scale * values[point >> 2 * i & 3];
        out[i] = signs >> i & 1 ? -value : value;
    }
}

static void put_iq3(uint16_t point, const float values[8], unsigned signs, float scale, float *out) {
    for (int i = 0; i < 4; i++) {
        float value = scale * values[point >> 4 * i & 7];
        out[i] = signs >> i & 1 ? -value : value;
    }
}

static void put_iq1(uint16_t point, float delta, float scale, float *out) {
    for (int i = 0; i < 8; i++) out[i] = scale * ((float)(point >> 2 * i & 3) - 1 + delta);
}

/* ---- eight elements a point ---- */

void dequantize_iq1_s(const uint8_t *block, float *out) {
    const uint8_t *low = block + 2, *high = block + 34;
    float d = block_read_f16(block);
    for (int j = 0; j < 32; j++) {
        unsigned word = block_read_u16(high + j / 4 * 2);
        float scale = d * (float)(2 * (word >> 12 & 7) + 1), delta = word & 0x8000 ? -0.125f : 0.125f;
        put_iq1(iq_grids_iq1[low[j] | (word >> 3 * (j % 4) & 7) << 8], delta, scale, out + 8 * j);
    }
}

void dequantize_iq1_m(const uint8_t *block, float *out) {
    const uint8_t *low = block, *high = block + 32, *scales = block + 48;
    unsigned d_bits = 0; /* the f16 scale lies in the top nibbles of the four scale words */
    for (int w = 0; w < 4; w++) d_bits |= (unsigned)block_read_u16(scales + 2 * w) >> 12 << 4 * w;
    float d = dtype_f16_to_f32((uint16_t)d_bits);
    for (int j = 0; j < 32; j++) {
        unsigned code = (unsigned)block_read_u16(scales + j / 8 * 2) >> 3 * (j / 2 % 4) & 7;
        unsigned nibble = (unsigned)block_read_nibble(high, j);
        float scale = d * (float)(2 * code + 1), delta = nibble & 8 ? -0.125f : 0.125f;
        put_iq1(iq_grids_iq1[low[j] | (nibble & 7) << 8], delta, scale, out + 8 * j);
    }
}

void dequantize_iq2_xxs(const uint8_t *block, float *out) {
    float d = block_read_f16(block);
    for (int g = 0; g < 8; g++) {
        const uint8_t *points = block + 2 + 8 * g;
        uint32_t word = block_read_u32(points + 4);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
        for (int k = 0; k < 4; k++, out += 8)
            put_iq2(iq_grids_iq2_xxs[points[k]], with_even_sign(word >> 7 * k & 127), scale, out);
    }
}

void dequantize_iq2_xs(const uint8_t *block, float *out) {
    const uint8_t *points = block + 2, *scales = block + 66;
    float d = block_read_f16(block);
    for (int j = 0; j < 32; j++) {
        unsigned word = block_read_u16(points + 2 * j);
        float scale = d * (0.5f + (float)block_read_nibble(scales, j / 2)) * 0.25f;
        put_iq2(iq_grids_iq2_xs[word & 511], with_even_sign(word >> 9), scale, out + 8 * j);
    }
}

void dequantize_iq2_s(const uint8_t *block, float *out) {
    const uint8_t *low = block + 2, *signs = block + 34, *high = block + 66, *scales = block + 74;
    float d = block_read_f16(block);
    for (int j = 0; j < 32; j++) {
        int point = low[j] | (high[j / 4] >> 2 * (j % 4) & 3) << 8;
        float scale = d * (0.5f + (float)block_read_nibble(scales, j / 2)) * 0.25f;
        put_iq2(iq_grids_iq2_s[point], signs[j], scale, out + 8 * j);
    }
}

/* ---- four elements a point ---- */

void dequantize_iq3_xxs(const uint8_t *block, float *out) {
    static const float values[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    const uint8_t *points = block + 2, *words = block + 66;
    float d = block_read_f16(block);
    for (int j = 0; j < 64; j++) {
        uint32_t word = block_read_u32(words + j / 8 * 4);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
        unsigned signs = with_even_sign(word >> 7 * (j / 2 % 4) & 127) >> 4 * (j % 2);
        put_iq3(iq_grids_iq3_xxs[points[j]], values, signs, scale, out + 4 * j);
    }
}

void dequantize_iq3_s(const uint8_t *block, float *out) {
    static const float values[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    const uint8_t *low = block + 2, *high = block + 66, *signs = block + 74, *scales = block + 106;
    float d = block_read_f16(block);
    for (int j = 0; j < 64; j++) {
        int point = low[j] | (high[j / 8] >> j % 8 & 1) << 8;
        float scale = d * (float)(1 + 2 * block_read_nibble(scales, j / 8));
        put_iq3(iq_grids_iq3_s[point], values, (unsigned)block_read_nibble(signs, j), scale, out + 4 * j);
    }
}

/* ---- a table of 16 values ---- */

static void put_iq4(const uint8_t *codes, float scale, float *out) {
    static const float values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    for (int e = 0; e < 32; e++) out[e] = scale * values[codes[e % 16] >> 4 * (e / 16) & 15];
}

void dequantize_iq4_nl(const uint8_t *block, float *out) {
    put_iq4(block + 2, block_read_f16(block), out);
}

void dequantize_iq4_xs(const uint8_t *block, float *out) {
    const uint8_t *low = block + 4, *codes = block + 8;
    float d = block_read_f16(block);
    unsigned high = block_read_u16(block + 2);
    for (int j = 0; j < 8; j++) {
        int code = block_read_nibble(low, j) | (int)(high >> 2 * j & 3) << 4;
        put_iq4(codes + 16 * j, d * (float)(code - 32), out + 32 * j);
    }
}
