/* pack: weights from file order (row by row) into GEMM tile order.
 *
 * A tile holds GEMM_TILE_COLS (16) output columns, that is 16 rows of the weight matrix, over the whole of k; missing
 * columns of the last tile are zero. Layouts, with c = column 0..15:
 *   F32 F16 BF16   [k][16]
 *   32-blocks      per block of 32 k: f16 d[16], then f16 m[16] if the type has minima, then the quants
 *   Q4_K Q5_K      per 256 k: f16 d[16], f16 dmin[16], scales [192] (below), then 8 blocks of quants
 *   Q6_K           per 256 k: f16 d[16], i8 scale[16][16] (sub-block of 16 k, c), then 8 blocks of quants
 *   Q2_K           per 256 k: f16 d[16], f16 dmin[16], bytes sc | m << 4 [16][16], then 8 blocks of quants
 *   WIDE_32        per 32 k: f32 d[16], then the quants, 8 bits
 *   WIDE_16        per 256 k: f32 d[16], i8 scale[16][16], then 8 blocks of quants, 8 bits
 * Quants of a block of 32 k, in k-quads of 4 (quad j = k 4j..4j+3, byte 4c + b is k 4j + b of column c):
 *   8 bits   i8 [8 quads][64]
 *   4 bits   [4][64]: byte of pair g holds quad 2g in its low and quad 2g + 1 in its high nibble
 *   1 bit    (Q5) after the nibbles: [8 quads] 64-bit masks, bit 4c + b
 *   2 bits   (Q2_K; Q6 after the nibbles) [2][64]: bits 2i of byte 4c + b of half h belong to quad 4h + i
 * Scales of K types: [8][16] bytes sc & 15 | (m & 15) << 4 of sub-block s, then [4][16] bytes with the high 2 bits:
 * sc(2t) | m(2t) << 2 | sc(2t+1) << 4 | m(2t+1) << 6.
 * The types above but the last two have tiles of their own, with exactly the bytes of the file's rows. All others are
 * whole multiples of scales (block_codes.h) and are packed, with equal values, in an order that holds them:
 *   Q4_0 TQ1_0 TQ2_0;   Q8_0 IQ4_NL;   Q6_K Q3_K IQ3_S;
 *   WIDE_32 MXFP4 IQ4_XS IQ3_XXS IQ2_XXS IQ1_S;   WIDE_16 IQ2_S IQ2_XS IQ1_M
 * Thread: any. */
#ifndef KVICK_KERNELS_PACK_H
#define KVICK_KERNELS_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"

/* Types whose order pack_order names for itself and others. */
#define PACK_WIDE_32 DTYPE_MXFP4
#define PACK_WIDE_16 DTYPE_IQ2_S

/* Types that have tiles: all that dequantize_is_known knows. */
bool pack_is_known(enum dtype dtype);

/* The type whose tile order, and so whose product, this type has. */
enum dtype pack_order(enum dtype dtype);

/* Bytes of one tile of the type or its order; k is a multiple of the block's elements. */
size_t pack_tile_bytes(enum dtype dtype, int k);

/* Packs rows row_begin..row_begin+15 of a [n_rows][k] matrix in file order into one tile. */
void pack_tile(enum dtype dtype, const void *matrix, int n_rows, int row_begin, int k, void *tile);

/* One column of a tile as floats: out [k], the values of dequantize_row. */
void pack_column(enum dtype dtype, const void *tile, int col_idx, int k, float *out);

#endif
