/* gemm_panel_avx2: some rows or many. Two tiles of weights are unpacked once for a cut of k into a panel that stays
 * near, then all rows run over it in groups. Between cuts the sums rest in out, as floats they are already. */
#ifndef KVICK_KERNELS_X86_GEMM_PANEL_AVX2_H
#define KVICK_KERNELS_X86_GEMM_PANEL_AVX2_H

#include "kernels/pack.h"
#include "kernels/x86/gemm_step_avx2.h"

#define GEMM_PANEL_BLOCKS 18 /* of 32 k in one cut */
#define GEMM_PANEL_TILES 2
#define GEMM_PANEL_ROWS 4     /* 4 x 2 sums in 16 bits, two weights, a quad, a product: the floats may rest in memory */
#define GEMM_PANEL_AHEAD 4096 /* bytes */

/* One cut of two tiles, or of the last one; rows of activations meet it in groups. */
struct gemm_panel {
    struct gemm_block blocks[GEMM_PANEL_TILES][GEMM_PANEL_BLOCKS][2];
    /* The group's activations of this cut, block by block: rows a power of two apart would meet in few banks of L1. */
    _Alignas(32) int8_t q[2][GEMM_PANEL_BLOCKS][GEMM_PANEL_ROWS][ACT_Q8_BLOCK];
    int n_blocks, n_tiles;
    bool is_first; /* of k: sums start at zero */
};

/* Copies the activations from row row_idx and block cut on into the panel. */
GEMM_INLINE struct gemm_act gemm_panel_act(enum dtype dtype, enum act_q8_form form, int n_rows,
                                           struct gemm_panel *panel, const struct act_q8 *x, int row_idx, int cut,
                                           int k) {
    struct gemm_act act = gemm_act_at(dtype, x, row_idx, cut, k);
    for (int b = 0; b < panel->n_blocks; b++)
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            const int8_t *src = act.q + i * act.q_stride + b * ACT_Q8_BLOCK;
            memcpy(panel->q[0][b][i], src, ACT_Q8_BLOCK);
            if (form == ACT_INT16) memcpy(panel->q[1][b][i], src + act.low_off, ACT_Q8_BLOCK);
        }
    act.q = panel->q[0][0][0];
    act.low_off = (int64_t)sizeof panel->q[0];
    act.q_stride = ACT_Q8_BLOCK;
    act.q_step = GEMM_PANEL_ROWS * ACT_Q8_BLOCK;
    return act;
}

GEMM_INLINE void gemm_panel_tile(enum dtype dtype, enum act_q8_form form, int n_rows, const struct gemm_panel *panel,
                                 int tile_idx, struct gemm_act x, const struct gemm_out *out) {
    const struct gemm_block *block = panel->blocks[tile_idx][0];
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

/* out: row row_idx of the panel's first tile. */
GEMM_INLINE void gemm_panel_rows(enum dtype dtype, enum act_q8_form form, int n_rows, struct gemm_panel *panel,
                                 const struct act_q8 *x, int row_idx, int cut, int k, const struct gemm_out *out) {
    struct gemm_act act = gemm_panel_act(dtype, form, n_rows, panel, x, row_idx, cut, k);
#pragma GCC unroll 1
    for (int t = 0; t < panel->n_tiles; t++) {
        struct gemm_out place = {out->at + t * GEMM_TILE_COLS, out->stride, out->width - t * GEMM_TILE_COLS};
        gemm_panel_tile(dtype, form, n_rows, panel, t, act, &place);
    }
}

/* n_rows becomes a constant. */
GEMM_INLINE void gemm_panel_group(enum dtype dtype, enum act_q8_form form, int n_rows, struct gemm_panel *panel,
                                  const struct act_q8 *x, int row_idx, int cut, int k, const struct gemm_out *out) {
    switch (n_rows) {
    case 1: gemm_panel_rows(dtype, form, 1, panel, x, row_idx, cut, k, out); break;
    case 2: gemm_panel_rows(dtype, form, 2, panel, x, row_idx, cut, k, out); break;
    case 3: gemm_panel_rows(dtype, form, 3, panel, x, row_idx, cut, k, out); break;
    default: gemm_panel_rows(dtype, form, GEMM_PANEL_ROWS, panel, x, row_idx, cut, k, out); break;
    }
}

/* Unpacks the cut's blocks of the tiles from w_packed on. */
GEMM_INLINE void gemm_panel_fill(enum dtype dtype, const uint8_t *w_packed, size_t tile_bytes, int cut, int k_blocks,
                                 struct gemm_panel *panel) {
    const size_t step_bytes = tile_bytes / (size_t)k_blocks;
    for (int t = 0; t < panel->n_tiles; t++, w_packed += tile_bytes)
        for (int b = 0; b < panel->n_blocks; b++) {
            uintptr_t ahead = (uintptr_t)w_packed + step_bytes * (size_t)(cut + b) + GEMM_PANEL_AHEAD;
#pragma GCC unroll 1
            for (size_t i = 0; i < step_bytes; i += 64) _mm_prefetch((const char *)(ahead + i), _MM_HINT_T1);
#pragma GCC unroll 1
            for (int h = 0; h < 2; h++) gemm_block_load(dtype, w_packed, cut + b, h, &panel->blocks[t][b][h]);
        }
}

GEMM_INLINE void gemm_panel(enum dtype dtype, enum act_q8_form form, const uint8_t *w_packed, size_t tile_bytes,
                            const struct act_q8 *x, float *out, int out_stride, int n_rows, int n_cols, int k) {
    struct gemm_panel panel;
    const int k_blocks = k / ACT_Q8_BLOCK, n_groups = (n_rows + GEMM_PANEL_ROWS - 1) / GEMM_PANEL_ROWS;
    for (int col = 0; col < n_cols; col += GEMM_PANEL_TILES * GEMM_TILE_COLS) {
        const uint8_t *tile = w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS);
        panel.n_tiles = n_cols - col > GEMM_TILE_COLS ? 2 : 1;
        for (int cut = 0; cut < k_blocks; cut += GEMM_PANEL_BLOCKS) {
            panel.n_blocks = k_blocks - cut < GEMM_PANEL_BLOCKS ? k_blocks - cut : GEMM_PANEL_BLOCKS;
            panel.is_first = cut == 0;
            gemm_panel_fill(dtype, tile, tile_bytes, cut, k_blocks, &panel);
            /* Groups of even size: a rest of one or two rows would waste the weights' loads. */
            for (int g = 0, row = 0; g < n_groups; g++) {
                const int group_rows = (n_rows - row + n_groups - g - 1) / (n_groups - g);
                struct gemm_out place = {out + (int64_t)row * out_stride + col, out_stride, n_cols - col};
                gemm_panel_group(dtype, form, group_rows, &panel, x, row, cut, k, &place);
                row += group_rows;
            }
        }
    }
}

#endif
