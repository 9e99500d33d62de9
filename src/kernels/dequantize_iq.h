/* dequantize_iq: one block of the codebook formats, IQn (256 elements; IQ4_NL: 32).
 *
 * Called through dequantize_row. block: dtype_block_bytes bytes, any alignment; out: [dtype_block_elements].
 * Thread: any.   Source: docs/formats/quantized-types.md; the orders of operations are gguf-py's. */
#ifndef KVICK_KERNELS_DEQUANTIZE_IQ_H
#define KVICK_KERNELS_DEQUANTIZE_IQ_H

#include <stdint.h>

void dequantize_iq1_s(const uint8_t *block, float *out);
void dequantize_iq1_m(const uint8_t *block, float *out);
void dequantize_iq2_xxs(const uint8_t *block, float *out);
void dequantize_iq2_xs(const uint8_t *block, float *out);
void dequantize_iq2_s(const uint8_t *block, float *out);
void dequantize_iq3_xxs(const uint8_t *block, float *out);
void dequantize_iq3_s(const uint8_t *block, float *out);
void dequantize_iq4_nl(const uint8_t *block, float *out);
void dequantize_iq4_xs(const uint8_t *block, float *out);

#endif
