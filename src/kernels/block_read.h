/* block_read: little-endian fields of a quantized block; a block starts at any byte.
 *
 * Thread: any.   Reads exactly the field's bytes. */
#ifndef KVICK_KERNELS_BLOCK_READ_H
#define KVICK_KERNELS_BLOCK_READ_H

#include <stdint.h>

#include "kernels/dtype.h"

static inline uint16_t block_read_u16(const uint8_t *bytes) {
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static inline uint32_t block_read_u32(const uint8_t *bytes) {
    return (uint32_t)block_read_u16(bytes) | (uint32_t)block_read_u16(bytes + 2) << 16;
}

static inline float block_read_f16(const uint8_t *bytes) {
    return dtype_f16_to_f32(block_read_u16(bytes));
}

/* The j-th 4-bit field, low nibble first. */
static inline int block_read_nibble(const uint8_t *bytes, int j) {
    return bytes[j / 2] >> 4 * (j % 2) & 15;
}

/* 64 bytes hold 256 2-bit codes: bytes 0..31 the elements 0..127 in four planes of 32, bytes 32..63 the rest. */
static inline int block_read_plane2(const uint8_t *codes, int e) {
    return codes[e / 128 * 32 + e % 32] >> 2 * (e / 32 % 4) & 3;
}

/* 32 bytes hold 256 bits in eight planes of 32. */
static inline int block_read_plane1(const uint8_t *bits, int e) {
    return bits[e % 32] >> e / 32 & 1;
}

#endif
