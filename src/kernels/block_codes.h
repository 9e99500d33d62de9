/* block_codes: blocks whose values are whole multiples of a scale, as integers: IQn, TQn, MXFP4 and Q3_K.
 *
 * Value e is (d * scale[e / 16]) * q[e]; both products are exact. Blocks of 32 elements fill the first 32.
 * Thread: any.   Source: docs/formats/quantized-types.md. */
#ifndef KVICK_KERNELS_BLOCK_CODES_H
#define KVICK_KERNELS_BLOCK_CODES_H

#include <stdint.h>

#include "kernels/dtype.h"

struct block_codes {
    float d;
    int8_t scale[16]; /* equal in pairs for types with a scale for 32 elements */
    int8_t q[256];    /* -127..127 */
};

/* block: dtype_block_bytes bytes, any alignment. */
typedef void block_codes_fn(const uint8_t *block, struct block_codes *out);

/* NULL for types of another kind. */
block_codes_fn *block_codes_of(enum dtype dtype);

#endif
