/* gemm_panel_avx512vnni: many rows. Two tiles of weights are unpacked once for a cut of k into a panel that stays in
 * L1, then all rows run over it in groups of up to six. Between cuts the sums rest in out, as floats they are already.
 */
#ifndef KVICK_KERNELS_X86_GEMM_PANEL_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_PANEL_AVX512VNNI_H

#include "kernels/pack.h"
#include "kernels/x86/gemm_step_avx512vnni.h"

#define GEMM_PANEL_BLOCKS 16 /* of 32 k in one cut */
#define GEMM_PANEL_TILES 2
#define GEMM_PANEL_ROWS 6 /* 6 x 2 integer and 6 x 2 float sums, two weights, a scale and a quad: all 32 registers */

GEMM_INLINE void gemm_panel_rows(enum dtype dtype, int n_rows, int n_tiles, const struct gemm_block *panel,
                                 int n_blocks, struct gemm_act x, const struct gemm_out *out, bool is_first) {
    __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES];
    if (is_first)
        gemm_out_zero(n_rows, n_tiles, acc);
    else
        gemm_out_load(out, n_rows, n_tiles, acc);
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++) {
        gemm_step(dtype, n_rows, n_tiles, panel, &x, acc);
        gemm_step_next(dtype, &x);
        panel += GEMM_PANEL_TILES;
    }
    gemm_out_store(out, n_rows, n_tiles, acc);
}

/* n_rows 1..6 becomes a constant. */
GEMM_INLINE void gemm_panel_group(enum dtype dtype, int n_rows, int n_tiles, const struct gemm_block *panel,
                                  int n_blocks, struct gemm_act x, const struct gemm_out *out, bool is_first) {
    switch (n_rows) {
    case 1: gemm_panel_rows(dtype, 1, n_tiles, panel, n_blocks, x, out, is_first); break;
    case 2: gemm_panel_rows(dtype, 2, n_tiles, panel, n_blocks, x, out, is_first); break;
    case 3: gemm_panel_rows(dtype, 3, n_tiles, panel, n_blocks, x, out, is_first); break;
    case 4: gemm_panel_rows(dtype, 4, n_tiles, panel, n_blocks, x, out, is_first); break;
    case 5: gemm_panel_rows(dtype, 5, n_tiles, panel, n_blocks, x, out, is_first); break;
    default: gemm_panel_rows(dtype, 6, n_tiles, panel, n_blocks, x, out, is_first); break;
    }
}

GEMM_INLINE void gemm_panel(enum dtype dtype, const uint8_t *w_packed, size_t tile_bytes, const struct act_q8 *x,
                            float *out, int out_stride, int n_rows, int n_cols, int k) {
    struct gemm_block panel[GEMM_PANEL_BLOCKS][GEMM_PANEL_TILES];
    const int k_blocks = k / ACT_Q8_BLOCK, n_groups = (n_rows + GEMM_PANEL_ROWS - 1) / GEMM_PANEL_ROWS;
    for (int col = 0; col < n_cols; col += GEMM_PANEL_TILES * GEMM_TILE_COLS) {
        const uint8_t *tile = w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS);
        const int n_tiles = n_cols - col > GEMM_TILE_COLS ? 2 : 1;
        for (int cut = 0; cut < k_blocks; cut += GEMM_PANEL_BLOCKS) {
            const int n_blocks = k_blocks - cut < GEMM_PANEL_BLOCKS ? k_blocks - cut : GEMM_PANEL_BLOCKS;
            for (int t = 0; t < n_tiles; t++)
                for (int b = 0; b < n_blocks; b++)
                    gemm_block_load(dtype, tile + tile_bytes * (size_t)t, cut + b, &panel[b][t]);
            /* Groups of even size: a rest of one or two rows would waste the weights' loads. */
            for (int g = 0, row = 0; g < n_groups; g++) {
                const int group_rows = (n_rows - row + n_groups - g - 1) / (n_groups - g);
                struct gemm_act act = gemm_act_at(dtype, x, row, cut, k);
                struct gemm_out place = gemm_out_at(out + (int64_t)row * out_stride, out_stride, col, n_cols);
                if (n_tiles == 2)
                    gemm_panel_group(dtype, group_rows, 2, panel[0], n_blocks, act, &place, cut == 0);
                else
                    gemm_panel_group(dtype, group_rows, 1, panel[0], n_blocks, act, &place, cut == 0);
                row += group_rows;
            }
        }
    }
}

#endif
