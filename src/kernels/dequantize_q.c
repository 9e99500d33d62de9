#include "kernels/dequantize_q.h"

#include "kernels/block_read.h"

/* ---- 32 elements: byte i holds element i in its low and element 16 + i in its high nibble ---- */

static int low4(const uint8_t *codes, int e) {
    return codes[e % 16] >> 4 * (e / 16) & 15;
}

void dequantize_q4_0(const uint8_t *block, float *out) {
    float d = block_read_f16(block);
    for (int e = 0; e < 32; e++) out[e] = d * (float)(low4(block + 2, e) - 8);
}

void dequantize_q4_1(const uint8_t *block, float *out) {
    float d = block_read_f16(block), m = block_read_f16(block + 2);
    for (int e = 0; e < 32; e++) out[e] = d * (float)low4(block + 4, e) + m;
}

void dequantize_q5_0(const uint8_t *block, float *out) {
    float d = block_read_f16(block);
    uint32_t high = block_read_u32(block + 2);
    for (int e = 0; e < 32; e++) {
        int code = low4(block + 6, e) | (int)(high >> e & 1) << 4;
        out[e] = d * (float)(code - 16);
    }
}

void dequantize_q5_1(const uint8_t *block, float *out) {
    float d = block_read_f16(block), m = block_read_f16(block + 2);
    uint32_t high = block_read_u32(block + 4);
    for (int e = 0; e < 32; e++) {
        int code = low4(block + 8, e) | (int)(high >> e & 1) << 4;
        out[e] = d * (float)code + m;
    }
}

void dequantize_q8_0(const uint8_t *block, float *out) {
    float d = block_read_f16(block);
    for (int e = 0; e < 32; e++) out[e] = d * (float)(int8_t)block[2 + e];
}

/* ---- 256 elements ---- */

/* 128 bytes hold 256 4-bit codes in runs of 32 bytes, each with two planes of 32 elements. */
static int plane4(const uint8_t *codes, int e) {
    return codes[e / 64 * 32 + e % 32] >> 4 * (e / 32 % 2) & 15;
}

void dequantize_q2_k(const uint8_t *block, float *out) {
    const uint8_t *scales = block, *codes = block + 16;
    float d = block_read_f16(block + 80), d_min = block_read_f16(block + 82);
    for (int j = 0; j < 16; j++) {
        float scale = d * (float)(scales[j] & 15), min = d_min * (float)(scales[j] >> 4);
        for (int e = 16 * j; e < 16 * j + 16; e++) out[e] = scale * (float)block_read_plane2(codes, e) - min;
    }
}

/* The eight 6-bit scales and minima of Q4_K and Q5_K in 12 bytes: the first four of each whole in bytes 0..7, of the
 * last four the low nibbles in bytes 8..11 and the high pairs on top of bytes 0..7. */
static void scale_and_min(const uint8_t *packed, int j, int *out_scale, int *out_min) {
    const uint8_t *scale = packed + j % 4, *min = packed + 4 + j % 4, *low = packed + 8 + j % 4;
    if (j < 4) {
        *out_scale = *scale & 63;
        *out_min = *min & 63;
    } else {
        *out_scale = (*low & 15) | *scale >> 6 << 4;
        *out_min = *low >> 4 | *min >> 6 << 4;
    }
}

/* high: the fifth bits, or NULL */
static void q45_k(const uint8_t *block, const uint8_t *high, const uint8_t *codes, float *out) {
    float d = block_read_f16(block), d_min = block_read_f16(block + 2);
    for (int j = 0; j < 8; j++) {
        int scale_code, min_code;
        scale_and_min(block + 4, j, &scale_code, &min_code);
        float scale = d * (float)scale_code, min = d_min * (float)min_code;
        for (int e = 32 * j; e < 32 * j + 32; e++) {
            int code = plane4(codes, e) | (high ? block_read_plane1(high, e) << 4 : 0);
            out[e] = scale * (float)code - min;
        }
    }
}

void dequantize_q4_k(const uint8_t *block, float *out) {
    q45_k(block, NULL, block + 16, out);
}

void dequantize_q5_k(const uint8_t *block, float *out) {
    q45_k(block, block + 16, block + 48, out);
}

void dequantize_q6_k(const uint8_t *block, float *out) {
    const uint8_t *low = block, *high = block + 128, *scales = block + 192;
    float d = block_read_f16(block + 208);
    for (int j = 0; j < 16; j++) {
        float scale = d * (float)(int8_t)scales[j];
        for (int e = 16 * j; e < 16 * j + 16; e++) {
            int low4_bits = low[e / 128 * 64 + e % 64] >> 4 * (e / 64 % 2) & 15; /* planes of 64, unlike Q4_K */
            out[e] = scale * (float)((low4_bits | block_read_plane2(high, e) << 4) - 32);
        }
    }
}
