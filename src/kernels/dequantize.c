#include "kernels/dequantize.h"

#include <string.h>

#include "kernels/block_codes.h"
#include "kernels/block_read.h"
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

/* One row a format: plain types bring a function for a whole row, block types one for a block. Those of block_codes
 * have none. */
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
    [DTYPE_Q4_K] = {.block = dequantize_q4_k},
    [DTYPE_Q5_K] = {.block = dequantize_q5_k},
    [DTYPE_Q6_K] = {.block = dequantize_q6_k},
};

bool dequantize_is_known(enum dtype dtype) {
    REQUIRE((unsigned)dtype < DTYPE_N);
    return formats[dtype].row || formats[dtype].block || block_codes_of(dtype);
}

static void put_codes(const struct block_codes *codes, int n_elements, float *out) {
    for (int j = 0; j < n_elements / 16; j++) {
        float scale = codes->d * (float)codes->scale[j];
        for (int e = 16 * j; e < 16 * j + 16; e++) out[e] = scale * (float)codes->q[e];
    }
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
    block_codes_fn *decode = block_codes_of(dtype);
    for (int64_t n = n_elements / block_elements; n > 0; n--, bytes += block_bytes, out += block_elements) {
        struct block_codes codes;
        if (!decode) {
            format->block(bytes, out);
            continue;
        }
        decode(bytes, &codes);
        put_codes(&codes, block_elements, out);
    }
}
