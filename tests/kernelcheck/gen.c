#include "kernelcheck/gen.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/status.h"

#define F16_MAX 0x7bff

/* splitmix64.   Source: Steele, Lea and Flood 2014. */
uint64_t gen_u64(struct gen *gen) {
    uint64_t z = gen->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

struct gen gen_start(uint64_t seed, const char *name) {
    struct gen gen = {seed};
    for (; *name; name++) gen.state = gen_u64(&gen) ^ (uint8_t)*name;
    return gen;
}

int gen_below(struct gen *gen, int n) {
    return (int)(gen_u64(gen) >> 33) % n;
}

int gen_between(struct gen *gen, int low, int high) {
    return low + gen_below(gen, high - low + 1);
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Uniform mantissa and sign, exponent field low..high. */
static float with_exponent(struct gen *gen, int low, int high) {
    uint32_t bits = (uint32_t)gen_u64(gen) & 0x807fffff;
    return from_bits(bits | (uint32_t)gen_between(gen, low, high) << 23);
}

float gen_float(struct gen *gen, enum gen_kind kind) {
    switch (kind) {
    case GEN_NORMAL: {
        float sum = 0; /* of four uniforms: near enough to a bell */
        for (int i = 0; i < 4; i++) sum += (float)(gen_u64(gen) >> 40) * 0x1p-24f - 0.5f;
        return sum * 1.7f;
    }
    case GEN_MAX: return gen_below(gen, 2) ? 3.0f : -3.0f;
    case GEN_ZERO: return gen_below(gen, 2) ? 0.0f : -0.0f;
    case GEN_MIXED: return gen_below(gen, 8) ? with_exponent(gen, 107, 147) : gen_float(gen, GEN_ZERO);
    case GEN_DENORMAL: return gen_below(gen, 8) ? with_exponent(gen, 0, 0) : gen_float(gen, GEN_ZERO);
    case GEN_SMALL: return with_exponent(gen, 1, 30);
    case GEN_HUGE: return with_exponent(gen, 240, 254);
    case GEN_SPARSE: return gen_below(gen, 16) ? gen_float(gen, GEN_ZERO) : with_exponent(gen, 130, 150);
    default: BUG("kind %d", (int)kind);
    }
}

void gen_floats(struct gen *gen, enum gen_kind kind, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = gen_float(gen, kind);
}

static uint16_t scale_bits(struct gen *gen, enum gen_kind kind) {
    uint16_t sign = (uint16_t)(gen_u64(gen) & 0x8000);
    switch (kind) {
    case GEN_NORMAL: return dtype_f32_to_f16(gen_float(gen, GEN_NORMAL) * 0.01f);
    case GEN_MAX:
    case GEN_HUGE: return sign | F16_MAX;
    case GEN_ZERO: return sign;
    case GEN_DENORMAL: return sign | (uint16_t)(gen_u64(gen) & 0x3ff);
    case GEN_SMALL: return sign | (uint16_t)(0x400 + (gen_u64(gen) & 0x3ff));
    default: return sign | (uint16_t)gen_below(gen, F16_MAX + 1);
    }
}

/* The exponent of MXFP4: of the same sizes as f16 scales have. */
static uint8_t exponent_byte(struct gen *gen, enum gen_kind kind) {
    switch (kind) {
    case GEN_NORMAL: return (uint8_t)gen_between(gen, 118, 124);
    case GEN_MAX:
    case GEN_HUGE: return 143;
    case GEN_ZERO:
    case GEN_DENORMAL: return (uint8_t)gen_below(gen, 2);
    case GEN_SMALL: return (uint8_t)gen_between(gen, 2, 30);
    default: return (uint8_t)gen_below(gen, 144);
    }
}

/* The f16 scale of IQ1_M in the top nibbles of its last four words. */
static void put_scattered(uint16_t bits, uint8_t *words) {
    for (int w = 0; w < 4; w++) words[2 * w + 1] = (uint8_t)((words[2 * w + 1] & 15) | (bits >> 4 * w & 15) << 4);
}

/* One byte repeated over the quants and inner scales: all bits set and clear, and both ends of int8. */
static const uint8_t extremes[] = {0xff, 0x00, 0x80, 0x7f, 0xf0, 0x0f};

static void one_block(struct gen *gen, enum gen_kind kind, enum dtype dtype, uint8_t *out) {
    int n_bytes = dtype_block_bytes(dtype), first, n_scales = dtype_f16_scales(dtype, &first);
    if (kind == GEN_MAX)
        memset(out, extremes[gen_below(gen, (int)sizeof extremes)], (size_t)n_bytes);
    else
        for (int i = 0; i < n_bytes; i++) out[i] = (uint8_t)gen_u64(gen);
    for (int i = 0; i < n_scales; i++) {
        uint16_t bits = scale_bits(gen, kind);
        memcpy(out + first + 2 * i, &bits, sizeof bits);
    }
    if (dtype == DTYPE_MXFP4) out[0] = exponent_byte(gen, kind);
    if (dtype == DTYPE_IQ1_M) put_scattered(scale_bits(gen, kind), out + 48);
}

static void one_value(struct gen *gen, enum gen_kind kind, enum dtype dtype, uint8_t *out) {
    float value = gen_float(gen, kind);
    uint16_t half = dtype == DTYPE_F16 ? dtype_f32_to_f16(value) : dtype_f32_to_bf16(value);
    if (dtype == DTYPE_BF16 && (half & 0x7fff) == 0x7f80) half--; /* rounding made it infinite */
    if (dtype == DTYPE_F16 && kind == GEN_DENORMAL) half = scale_bits(gen, kind);
    if (dtype == DTYPE_F32)
        memcpy(out, &value, sizeof value);
    else
        memcpy(out, &half, sizeof half);
}

void gen_blocks(struct gen *gen, enum gen_kind kind, enum dtype dtype, uint8_t *out, size_t n_blocks) {
    for (size_t b = 0; b < n_blocks; b++, out += dtype_block_bytes(dtype)) {
        if (dtype_block_elements(dtype) == 1)
            one_value(gen, kind, dtype, out);
        else
            one_block(gen, kind, dtype, out);
    }
}

/* q and q_low of the largest values that int16 activations take, and of those where both parts lie at an end. */
static const int8_t act_ends[][2] = {{127, 0}, {126, 63}, {127, -64}, {-127, 0}, {-126, -64}, {-127, 63}};

/* Which of the ends a value of this row takes: one for the whole row, or any of the positive and negative ones. */
static int act_end(struct gen *gen, int row, bool is_int16) {
    int n_signed = is_int16 ? 3 : 1, form = row % (2 * n_signed + 1);
    if (form == 2 * n_signed) form = gen_below(gen, 2 * n_signed);
    return form < n_signed ? form : form - n_signed + 3;
}

void gen_act_max(struct gen *gen, const struct act_q8 *out, int n_rows, int k) {
    for (int row = 0; row < n_rows; row++) {
        for (int b = 0; b < k / ACT_Q8_BLOCK; b++) {
            size_t at = (size_t)row * (size_t)(k / ACT_Q8_BLOCK) + (size_t)b;
            int sums[2] = {0, 0};
            for (int i = 0; i < ACT_Q8_BLOCK; i++) {
                const int8_t *end = act_ends[act_end(gen, row, out->q_low != NULL)];
                out->q[at * 32 + (size_t)i] = end[0];
                if (out->q_low) out->q_low[at * 32 + (size_t)i] = end[1];
                sums[i / 16] += out->q_low ? 128 * end[0] + end[1] : end[0];
            }
            out->d[at] = gen_below(gen, 4) ? fabsf(gen_float(gen, GEN_NORMAL)) : 0x1p-140f;
            out->dsum[at] = out->d[at] * (float)(sums[0] + sums[1]);
            out->nsum32[at] = -(sums[0] + sums[1]);
            out->nsum16[2 * at] = -sums[0];
            out->nsum16[2 * at + 1] = -sums[1];
        }
    }
}
