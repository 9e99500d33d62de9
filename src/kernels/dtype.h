/* dtype: element and block types of tensors, as numbered in GGUF files.
 *
 * Thread: any, const data.   Source: the GGUF specification; block sizes checked against golden/quant/index.json. */
#ifndef KVICK_KERNELS_DTYPE_H
#define KVICK_KERNELS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

enum dtype {
#define DTYPE(name, gguf_id, block_elements, block_bytes) DTYPE_##name,
#include "kernels/dtype.inc"
#undef DTYPE
    DTYPE_N
};

/* "Q4_1" */
const char *dtype_name(enum dtype dtype);

/* False if no type has this number in GGUF. */
bool dtype_from_gguf(uint32_t gguf_id, enum dtype *out);
bool dtype_from_name(const char *name, enum dtype *out);

/* Elements that share one block (1 for plain types), and the block's bytes. */
int dtype_block_elements(enum dtype dtype);
int dtype_block_bytes(enum dtype dtype);

/* How many f16 scales and minima lie one after the other in a block, and the first one's byte. 0 for plain types and
 * for those whose scale is of another form: IQ1_M, MXFP4, Q8_1, Q8_K. */
int dtype_f16_scales(enum dtype dtype, int *out_off);

/* Bytes of n elements in whole blocks.
 * Errors: STATUS_INVALID if n is no multiple of the block's elements, STATUS_LIMIT if the product wraps. */
WARN_UNUSED enum status dtype_bytes(enum dtype dtype, uint64_t n_elements, uint64_t *out_bytes);

/* Bit patterns to and from float; f16 rounds to nearest even and saturates at +-65504 (a stored infinity would turn
 * masked attention weights, 0 x inf, into NaN). NaN stays NaN. */
float dtype_f16_to_f32(uint16_t bits);
uint16_t dtype_f32_to_f16(float value);
uint16_t dtype_f32_to_bf16(float value); /* to nearest even; large values become infinite */

static inline float dtype_bf16_to_f32(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

#endif
