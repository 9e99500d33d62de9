/* tiles_amx: shapes of the eight tile registers, for the time of one kernel call.
 *
 * A product of tiles adds to sums [n_rows][16] of int32 the dots of n_rows rows of k bytes with 16 columns, held as
 * [k / 4][16][4]: the order of packed weights (pack.h) and of the int8 cache (kv_i8.h). Its time is that of 16 rows and
 * 64 k, however few there are.   Source: Intel SDM volume 1, chapter 18 */
#ifndef KVICK_KERNELS_X86_TILES_AMX_H
#define KVICK_KERNELS_X86_TILES_AMX_H

#include <immintrin.h>
#include <stdint.h>

#define TILES_ROWS 16
#define TILES_COLS 16

/* What LDTILECFG reads. */
struct tiles_amx {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t n_rows[16];
};
_Static_assert(sizeof(struct tiles_amx) == 64, "the size that the CPU reads");

static inline void tiles_amx_shape(struct tiles_amx *tiles, int tile_idx, int n_rows, int row_bytes) {
    tiles->palette = 1;
    tiles->n_rows[tile_idx] = (uint8_t)n_rows;
    tiles->row_bytes[tile_idx] = (uint16_t)row_bytes;
}

/* What was written is in memory after this: the compiler does not know what the tile instructions read there. */
#define TILES_AMX_WRITTEN() __asm__ volatile("" ::: "memory")

/* Not the library's: that one names but the first bytes as read. */
static inline void tiles_amx_load(const struct tiles_amx *tiles) {
    __asm__ volatile("ldtilecfg %0" ::"m"(*tiles));
}

#endif
