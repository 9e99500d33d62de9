/* dequantize_q: one block of the integer formats, Qn_0 and Qn_1 (32 elements) and Qn_K (256 elements), but
 * for Q3_K.
 *
 * Called through dequantize_row. block: dtype_block_bytes bytes, any alignment; out: [dtype_block_elements].
 * Thread: any.   Source: docs/formats/quantized-types.md; the orders of operations are gguf-py's. */
#ifndef KVICK_KERNELS_DEQUANTIZE_Q_H
#define KVICK_KERNELS_DEQUANTIZE_Q_H

#include <stdint.h>

void dequantize_q4_0(const uint8_t *block, float *out);
void dequantize_q4_1(const uint8_t *block, float *out);
void dequantize_q5_0(const uint8_t *block, float *out);
void dequantize_q5_1(const uint8_t *block, float *out);
void dequantize_q8_0(const uint8_t *block, float *out);

void dequantize_q2_k(const uint8_t *block, float *out);
void dequantize_q4_k(const uint8_t *block, float *out);
void dequantize_q5_k(const uint8_t *block, float *out);
void dequantize_q6_k(const uint8_t *block, float *out);

#endif
