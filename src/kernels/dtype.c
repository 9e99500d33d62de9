#include "kernels/dtype.h"

#include <string.h>

struct row {
    const char *name;
    uint32_t gguf_id;
    int block_elements, block_bytes;
};

static const struct row rows[DTYPE_N] = {
#define DTYPE(name, gguf_id, block_elements, block_bytes) {#name, gguf_id, block_elements, block_bytes},
#include "kernels/dtype.inc"
#undef DTYPE
};

static const struct row *row_of(enum dtype dtype) {
    REQUIRE((unsigned)dtype < DTYPE_N);
    return &rows[dtype];
}

const char *dtype_name(enum dtype dtype) {
    return row_of(dtype)->name;
}

bool dtype_from_gguf(uint32_t gguf_id, enum dtype *out) {
    for (int i = 0; i < DTYPE_N; i++) {
        if (rows[i].gguf_id != gguf_id) continue;
        *out = (enum dtype)i;
        return true;
    }
    return false;
}

bool dtype_from_name(const char *name, enum dtype *out) {
    for (int i = 0; i < DTYPE_N; i++) {
        if (strcmp(rows[i].name, name) != 0) continue;
        *out = (enum dtype)i;
        return true;
    }
    return false;
}

int dtype_block_elements(enum dtype dtype) {
    return row_of(dtype)->block_elements;
}

int dtype_block_bytes(enum dtype dtype) {
    return row_of(dtype)->block_bytes;
}

int dtype_f16_scales(enum dtype dtype, int *out_off) {
    *out_off = 0;
    switch (dtype) {
    case DTYPE_Q2_K: *out_off = 80; return 2;
    case DTYPE_Q3_K: *out_off = 108; return 1;
    case DTYPE_Q6_K: *out_off = 208; return 1;
    case DTYPE_TQ1_0: *out_off = 52; return 1;
    case DTYPE_TQ2_0: *out_off = 64; return 1;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: return 2;
    case DTYPE_Q8_1:
    case DTYPE_Q8_K:
    case DTYPE_IQ1_M:
    case DTYPE_MXFP4: return 0;
    default: return row_of(dtype)->block_elements > 1;
    }
}

enum status dtype_bytes(enum dtype dtype, uint64_t n_elements, uint64_t *out_bytes) {
    const struct row *row = row_of(dtype);
    if (n_elements % (uint64_t)row->block_elements) return STATUS_INVALID;
    uint64_t n_blocks = n_elements / (uint64_t)row->block_elements;
    if (n_blocks > UINT64_MAX / (uint64_t)row->block_bytes) return STATUS_LIMIT;
    *out_bytes = n_blocks * (uint64_t)row->block_bytes;
    return STATUS_OK;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float dtype_f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
    if (exponent == 0x1f) return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f; /* subnormal: exact */
    return sign ? -magnitude : magnitude;
}

uint16_t dtype_f32_to_f16(float value) {
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000) return sign | 0x7e00;
    if (magnitude >= 0x477fe000) return sign | 0x7bff; /* at or above 65504: saturate */
    if (magnitude < 0x38800000) {                      /* below 2^-14: a multiple of 2^-24, rounded by the addition */
        float shifted = float_of(magnitude) + 0.5f;
        return sign | (uint16_t)(bits_of(shifted) - 0x3f000000);
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return sign | (uint16_t)((rounded - 0x38000000) >> 13);
}

uint16_t dtype_f32_to_bf16(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
