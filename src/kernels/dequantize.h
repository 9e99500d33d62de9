/* dequantize: rows of stored weights as float, the meaning of every block format kvick reads.
 *
 * Thread: any, const data, no state.
 * Numeric contract: bits equal to gguf-py's dequantization for blocks with finite scales. Each value is one
 * multiplication chain whose products are exact, and at most one rounding (the addition of a minimum).
 * Source: docs/formats/quantized-types.md. */
#ifndef KVICK_KERNELS_DEQUANTIZE_H
#define KVICK_KERNELS_DEQUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

/* False for types that hold no weights (integers, Q8_1, Q8_K): dequantize_row must not be called with them. */
bool dequantize_is_known(enum dtype dtype);

/* out: [n_elements]; blocks: n_elements / dtype_block_elements blocks, any alignment. n_elements: a multiple of
 * dtype_block_elements, 0 allowed. Reads and writes exactly these. Any bytes are safe; no overlap. */
void dequantize_row(enum dtype dtype, const void *blocks, float *out, int64_t n_elements);

#endif
