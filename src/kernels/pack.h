/* pack: weights from file order (row by row) into GEMM tile order.
 *
 * A tile holds GEMM_TILE_COLS (16) output columns, that is 16 rows of the weight matrix, over the whole of k. It has
 * exactly 16 times the bytes of a file row; missing columns of the last tile are zero. Layouts, with c = column 0..15:
 *   F32 F16 BF16   [k][16]
 *   32-blocks      per block of 32 k: f16 d[16], then f16 m[16] if the type has minima, then the quants
 *   Q4_K Q5_K      per 256 k: f16 d[16], f16 dmin[16], scales [192] (below), then 8 blocks of quants
 *   Q6_K           per 256 k: f16 d[16], i8 scale[16][16] (sub-block of 16 k, c), then 8 blocks of quants
 * Quants of a block of 32 k, in k-quads of 4 (quad j = k 4j..4j+3, byte 4c + b is k 4j + b of column c):
 *   8 bits   i8 [8 quads][64]
 *   4 bits   [4][64]: byte of pair g holds quad 2g in its low and quad 2g + 1 in its high nibble
 *   1 bit    (Q5) after the nibbles: [8 quads] 64-bit masks, bit 4c + b
 *   2 bits   (Q6) after the nibbles: [2][64]: bits 2i of byte 4c + b of half h belong to quad 4h + i
 * Scales of K types: [8][16] bytes sc & 15 | (m & 15) << 4 of sub-block s, then [4][16] bytes with the high 2 bits:
 * sc(2t) | m(2t) << 2 | sc(2t+1) << 4 | m(2t+1) << 6.
 * Thread: any. */
#ifndef KVICK_KERNELS_PACK_H
#define KVICK_KERNELS_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"

/* Types that have a tile order of their own; others are dequantized to F32 tiles. */
bool pack_is_known(enum dtype dtype);

/* Bytes of one tile; k is a multiple of the block's elements. */
size_t pack_tile_bytes(enum dtype dtype, int k);

/* Packs rows row_begin..row_begin+15 of a [n_rows][k] matrix in file order into one tile. */
void pack_tile(enum dtype dtype, const void *matrix, int n_rows, int row_begin, int k, void *tile);

/* One column of a tile as floats: out [k], the values of dequantize_row. */
void pack_column(enum dtype dtype, const void *tile, int col_idx, int k, float *out);

#endif
