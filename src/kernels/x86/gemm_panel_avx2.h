/* gemm_panel_avx2: many rows. A tile of weights is unpacked once for a cut of k into a panel that stays in L1, then all
 * rows run over it in groups. Between cuts the sums rest in out, as floats they are already. */
#ifndef KVICK_KERNELS_X86_GEMM_PANEL_AVX2_H
#define KVICK_KERNELS_X86_GEMM_PANEL_AVX2_H

#include "kernels/pack.h"
#include "kernels/x86/gemm_step_avx2.h"

#define GEMM_PANEL_BLOCKS 16 /* of 32 k in one cut */
#ifndef GEMM_PANEL_ROWS
#define GEMM_PANEL_ROWS 4 /* 4 x 2 sums in 16 bits, two weights, a quad and a product; the floats may spill */
#endif

/* One cut of a tile; rows of activations meet it in groups. */
struct gemm_panel {
    struct gemm_block blocks[GEMM_PANEL_BLOCKS][2];
    int n_blocks;
    bool is_first; /* of k: sums start at zero */
};

GEMM_INLINE void gemm_panel_rows(enum dtype dtype, enum act_q8_form form, int n_rows, const struct gemm_panel *panel,
                                 struct gemm_act x, const struct gemm_out *out) {
    const struct gemm_block *block = panel->blocks[0];
    const int n_blocks = panel->n_blocks;
    __m256 acc[GEMM_MAX_ROWS][2];
    if (panel->is_first)
        gemm_out_zero(n_rows, 2, acc);
    else
        gemm_out_load(out, n_rows, 2, acc);
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++) {
        gemm_step(dtype, form, n_rows, 2, block, &x, acc);
        gemm_step_next(dtype, &x);
        block += 2;
    }
    gemm_out_store(out, n_rows, 2, acc);
}

/* n_rows becomes a constant. */
GEMM_INLINE void gemm_panel_group(enum dtype dtype, enum act_q8_form form, int n_rows, const struct gemm_panel *panel,
                                  struct gemm_act x, const struct gemm_out *out) {
    switch (n_rows) {
    case 1: gemm_panel_rows(dtype, form, 1, panel, x, out); break;
    case 2: gemm_panel_rows(dtype, form, 2, panel, x, out); break;
    case 3: gemm_panel_rows(dtype, form, 3, panel, x, out); break;
#if GEMM_PANEL_ROWS > 4
    case 4: gemm_panel_rows(dtype, form, 4, panel, x, out); break;
#endif
#if GEMM_PANEL_ROWS > 5
    case 5: gemm_panel_rows(dtype, form, 5, panel, x, out); break;
#endif
    default: gemm_panel_rows(dtype, form, GEMM_PANEL_ROWS, panel, x, out); break;
    }
}

GEMM_INLINE void gemm_panel(enum dtype dtype, enum act_q8_form form, const uint8_t *w_packed, size_t tile_bytes,
                            const struct act_q8 *x, float *out, int out_stride, int n_rows, int n_cols, int k) {
    struct gemm_panel panel;
    const int k_blocks = k / ACT_Q8_BLOCK, n_groups = (n_rows + GEMM_PANEL_ROWS - 1) / GEMM_PANEL_ROWS;
    for (int col = 0; col < n_cols; col += GEMM_TILE_COLS) {
        const uint8_t *tile = w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS);
        for (int cut = 0; cut < k_blocks; cut += GEMM_PANEL_BLOCKS) {
            panel.n_blocks = k_blocks - cut < GEMM_PANEL_BLOCKS ? k_blocks - cut : GEMM_PANEL_BLOCKS;
            panel.is_first = cut == 0;
            for (int b = 0; b < panel.n_blocks; b++)
                for (int h = 0; h < 2; h++) gemm_block_load(dtype, tile, cut + b, h, &panel.blocks[b][h]);
            /* Groups of even size: a rest of one or two rows would waste the weights' loads. */
            for (int g = 0, row = 0; g < n_groups; g++) {
                const int group_rows = (n_rows - row + n_groups - g - 1) / (n_groups - g);
                struct gemm_out place = {out + (int64_t)row * out_stride + col, out_stride, n_cols - col};
                gemm_panel_group(dtype, form, group_rows, &panel, gemm_act_at(dtype, x, row, cut, k), &place);
                row += group_rows;
            }
        }
    }
}

#endif
