#include "kernels/dequantize.h"

#include <string.h>

#include "kernels/block_read.h"
#include "kernels/dequantize_iq.h"
#include "kernels/dequantize_q.h"

static void f32(const uint8_t *bytes, float *out, int64_t n) {
    if (n > 0) memcpy(out, bytes, (size_t)n * sizeof *out);
}

static void f16(const uint8_t *bytes, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = block_read_f16(bytes + 2 * i);
}

static void bf16(const uint8_t *bytes, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = dtype_bf16_to_f32(block_read_u16(bytes + 2 * i));
}

/* Values: e2m1 doubled, so that they are integers; the scale, an e8m0 exponent of bias 127, is halved to match.
 * Source: OCP Microscaling Formats 1.0, 5.3 and 6. */
static void mxfp4(const uint8_t *block, float *out) {
    static const int8_t magnitude[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    uint32_t exponent = block[0];
    /* The two smallest scales, 2^-128 and 2^-127, are subnormal floats. */
    uint32_t bits = exponent < 2 ? (uint32_t)0x00200000 << exponent : (exponent - 1) << 23;
    float d;
    memcpy(&d, &bits, sizeof d);
    for (int i = 0; i < 32; i++) {
        int code = block[1 + i % 16] >> 4 * (i / 16) & 15;
        int value = code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
        out[i] = d * (float)value;
    }
}

/* A byte holds up to five ternary digits as a fraction of 256: digit p is the integer part of 3 x (byte x 3^p mod 256)
 * / 256. Digit p of byte i is element p * n_bytes + i. */
static float *ternary_digits(const uint8_t *bytes, int n_bytes, int n_digits, float d, float *out) {
    for (int p = 0, power = 1; p < n_digits; p++, power *= 3) {
        for (int i = 0; i < n_bytes; i++) {
            int rest = (uint8_t)(bytes[i] * power);
            *out++ = d * (float)((rest * 3 >> 8) - 1);
        }
    }
    return out;
}

static void tq1_0(const uint8_t *block, float *out) {
    float d = block_read_f16(block + 52);
    out = ternary_digits(block, 32, 5, d, out);
    out = ternary_digits(block + 32, 16, 5, d, out);
    ternary_digits(block + 48, 4, 4, d, out);
}

static void tq2_0(const uint8_t *block, float *out) {
    float d = block_read_f16(block + 64);
    for (int e = 0; e < 256; e++) {
        int code = block[e / 128 * 32 + e % 32] >> 2 * (e / 32 % 4) & 3;
        out[e] = d * (float)(code - 1);
    }
}

/* One row a format: plain types bring a function for a whole row, block types one for a block. */
struct format {
    void (*row)(const uint8_t *bytes, float *out, int64_t n_elements);
    void (*block)(const uint8_t *block, float *out);
};

static const struct format formats[DTYPE_N] = {
    [DTYPE_F32] = {.row = f32},
    [DTYPE_F16] = {.row = f16},
    [DTYPE_BF16] = {.row = bf16},
    [DTYPE_Q4_0] = {.block = dequantize_q4_0},
    [DTYPE_Q4_1] = {.block = dequantize_q4_1},
    [DTYPE_Q5_0] = {.block = dequantize_q5_0},
    [DTYPE_Q5_1] = {.block = dequantize_q5_1},
    [DTYPE_Q8_0] = {.block = dequantize_q8_0},
    [DTYPE_Q2_K] = {.block = dequantize_q2_k},
    [DTYPE_Q3_K] = {.block = dequantize_q3_k},
    [DTYPE_Q4_K] = {.block = dequantize_q4_k},
    [DTYPE_Q5_K] = {.block = dequantize_q5_k},
    [DTYPE_Q6_K] = {.block = dequantize_q6_k},
    [DTYPE_IQ1_S] = {.block = dequantize_iq1_s},
    [DTYPE_IQ1_M] = {.block = dequantize_iq1_m},
    [DTYPE_IQ2_XXS] = {.block = dequantize_iq2_xxs},
    [DTYPE_IQ2_XS] = {.block = dequantize_iq2_xs},
    [DTYPE_IQ2_S] = {.block = dequantize_iq2_s},
    [DTYPE_IQ3_XXS] = {.block = dequantize_iq3_xxs},
    [DTYPE_IQ3_S] = {.block = dequantize_iq3_s},
    [DTYPE_IQ4_NL] = {.block = dequantize_iq4_nl},
    [DTYPE_IQ4_XS] = {.block = dequantize_iq4_xs},
    [DTYPE_TQ1_0] = {.block = tq1_0},
    [DTYPE_TQ2_0] = {.block = tq2_0},
    [DTYPE_MXFP4] = {.block = mxfp4},
};

bool dequantize_is_known(enum dtype dtype) {
    REQUIRE((unsigned)dtype < DTYPE_N);
    return formats[dtype].row || formats[dtype].block;
}

void dequantize_row(enum dtype dtype, const void *blocks, float *out, int64_t n_elements) {
    REQUIRE(dequantize_is_known(dtype));
    int block_elements = dtype_block_elements(dtype), block_bytes = dtype_block_bytes(dtype);
    REQUIRE(n_elements >= 0 && n_elements % block_elements == 0);
    const struct format *format = &formats[dtype];
    const uint8_t *bytes = blocks;
    if (format->row) {
        format->row(bytes, out, n_elements);
        return;
    }
    for (int64_t n = n_elements / block_elements; n > 0; n--, bytes += block_bytes, out += block_elements)
        format->block(bytes, out);
}
