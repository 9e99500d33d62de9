/* quantize: float rows into the formats kvick can write: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q6_K.
 *
 * Thread: any, no state.
 * Numeric contract: bits equal to gguf-py's quantizers, where it has one, for finite input whose scale is 0 or in
 * [2^-126, 65504], but for the sign of Q4_1's minimum in a block where it is a zero of both signs. Codes are chosen
 * with the scale before it is rounded to f16. Against the row it came from, dequantized, with step the stored scale:
 * Q8_0 and Q4_1 within half a step plus the rounding of scale and minimum to f16; Q4_0 the same, but a value opposite
 * in sign to the block's largest and nearly as large is cut to 7 of 8 steps. Q6_K, which gguf-py does not write: the
 * largest of each 16 values is 32 steps of a scale that is rounded to 1/128 of the block's largest one. */
#ifndef KVICK_KERNELS_QUANTIZE_H
#define KVICK_KERNELS_QUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

bool quantize_is_known(enum dtype dtype);

/* in: [n_elements], a multiple of dtype_block_elements, 0 allowed; blocks: n_elements / dtype_block_elements blocks,
 * any alignment, no overlap. Reads and writes exactly these. Scales that do not fit saturate as dtype_f32_to_f16 does;
 * NaN in a block type counts as the code of zero or the minimum; infinities give finite nonsense. */
void quantize_row(enum dtype dtype, const float *in, void *blocks, int64_t n_elements);

#endif
