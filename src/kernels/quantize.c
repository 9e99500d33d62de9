#include "kernels/quantize.h"

#include <math.h>
#include <string.h>

static void write_u16(uint8_t *bytes, uint16_t value) {
    bytes[0] = (uint8_t)value;
    bytes[1] = (uint8_t)(value >> 8);
}

static void write_f16(uint8_t *bytes, float value) {
    write_u16(bytes, dtype_f32_to_f16(value));
}

/* Infinite for a scale below 2^-128, which f16 stores as 0: then the codes only have to stay in range. */
static float inverse(float d) {
    return d != 0 ? 1.0f / d : 0;
}

/* Truncates a code into [0, 15] before it becomes an integer, where a wild float would be undefined. NaN gives 0. */
static int nibble(float code) {
    if (!(code > 0)) return 0;
    return code < 15 ? (int)code : 15;
}

/* Element i in the low and element 16 + i in the high nibble of byte i. */
static void write_nibbles(uint8_t *bytes, const int codes[32]) {
    for (int i = 0; i < 16; i++) bytes[i] = (uint8_t)(codes[i] | codes[16 + i] << 4);
}

static void q4_0(const float *in, uint8_t *block) {
    /* The first of greatest magnitude, with its sign (of a zero, too): it gets code 0 = -8 steps. */
    float largest = isnan(in[0]) ? 0 : in[0];
    for (int i = 1; i < 32; i++)
        if (fabsf(in[i]) > fabsf(largest)) largest = in[i];
    float d = largest / -8, inverse_d = inverse(d);
    int codes[32];
    for (int i = 0; i < 32; i++) {
        float steps = in[i] * inverse_d;
        codes[i] = isnan(steps) ? 8 : nibble(steps + 8.5f);
    }
    write_f16(block, d);
    write_nibbles(block + 2, codes);
}

static void q4_1(const float *in, uint8_t *block) {
    float min = INFINITY, max = -INFINITY;
    for (int i = 0; i < 32; i++) {
        if (in[i] < min) min = in[i];
        if (in[i] > max) max = in[i];
    }
    if (min > max) min = max = 0; /* all NaN */
    float d = (max - min) / 15, inverse_d = inverse(d);
    int codes[32];
    for (int i = 0; i < 32; i++) codes[i] = nibble((in[i] - min) * inverse_d + 0.5f);
    write_f16(block, isnan(d) ? 0 : d);
    write_f16(block + 2, min);
    write_nibbles(block + 4, codes);
}

static void q8_0(const float *in, uint8_t *block) {
    float magnitude = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(in[i]) > magnitude) magnitude = fabsf(in[i]);
    float d = magnitude / 127, inverse_d = inverse(d);
    write_f16(block, d);
    for (int i = 0; i < 32; i++) {
        float code = roundf(in[i] * inverse_d); /* halves away from zero */
        if (!(code >= -127)) code = isnan(code) ? 0 : -127;
        if (code > 127) code = 127;
        block[2 + i] = (uint8_t)(int8_t)code;
    }
}

/* Of 16 values: the step at which the one of greatest magnitude, with its sign, is code -32. */
static float part_step(const float *in) {
    float largest = 0;
    for (int i = 0; i < 16; i++)
        if (fabsf(in[i]) > fabsf(largest)) largest = in[i];
    return largest / -32;
}

/* [-limit - is_wide, limit], halves away from zero; NaN gives 0. */
static int signed_code(float code, int limit, bool is_wide) {
    float min = (float)(-limit - is_wide), max = (float)limit, rounded = roundf(code);
    if (isnan(rounded)) return 0;
    return rounded < min ? (int)min : rounded > max ? (int)max : (int)rounded;
}

/* Codes in planes: four bits at byte e / 128 * 64 + e % 64, two at byte e / 128 * 32 + e % 32. */
static void put_q6_code(uint8_t *block, int e, int code) {
    block[e / 128 * 64 + e % 64] |= (uint8_t)((code & 15) << (4 * (e / 64 % 2)));
    block[128 + e / 128 * 32 + e % 32] |= (uint8_t)((code >> 4) << (2 * (e / 32 % 4)));
}

static void q6_k(const float *in, uint8_t *block) {
    float steps[16], largest = 0;
    for (int part = 0; part < 16; part++) {
        steps[part] = part_step(in + 16 * part);
        if (fabsf(steps[part]) > fabsf(largest)) largest = steps[part];
    }
    uint16_t d_bits = dtype_f32_to_f16(largest / -128);
    float d = dtype_f16_to_f32(d_bits), inverse_d = inverse(d);
    memset(block, 0, 192);
    for (int part = 0; part < 16; part++) {
        int scale = signed_code(steps[part] * inverse_d, 127, true);
        float inverse_step = inverse(d * (float)scale);
        block[192 + part] = (uint8_t)(int8_t)scale;
        for (int e = 16 * part; e < 16 * part + 16; e++)
            put_q6_code(block, e, 32 + signed_code(in[e] * inverse_step, 31, true));
    }
    write_u16(block + 208, d_bits);
}

static void f32(const float *in, uint8_t *bytes) {
    memcpy(bytes, in, sizeof *in);
}

static void f16(const float *in, uint8_t *bytes) {
    write_f16(bytes, *in);
}

static void bf16(const float *in, uint8_t *bytes) {
    write_u16(bytes, dtype_f32_to_bf16(*in));
}

/* One row a format: a function for one block (one element of a plain type). */
typedef void block_fn(const float *in, uint8_t *block);

static block_fn *const formats[DTYPE_N] = {
    [DTYPE_F32] = f32,   [DTYPE_F16] = f16,   [DTYPE_BF16] = bf16, [DTYPE_Q4_0] = q4_0,
    [DTYPE_Q4_1] = q4_1, [DTYPE_Q8_0] = q8_0, [DTYPE_Q6_K] = q6_k,
};

bool quantize_is_known(enum dtype dtype) {
    REQUIRE((unsigned)dtype < DTYPE_N);
    return formats[dtype] != NULL;
}

void quantize_row(enum dtype dtype, const float *in, void *blocks, int64_t n_elements) {
    REQUIRE(quantize_is_known(dtype));
    int block_elements = dtype_block_elements(dtype), block_bytes = dtype_block_bytes(dtype);
    REQUIRE(n_elements >= 0 && n_elements % block_elements == 0);
    uint8_t *bytes = blocks;
    for (int64_t n = n_elements / block_elements; n > 0; n--, in += block_elements, bytes += block_bytes)
        formats[dtype](in, bytes);
}
