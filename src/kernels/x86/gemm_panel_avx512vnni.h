/* gemm_panel_avx512vnni: many rows. Two tiles of weights are unpacked once for a cut of k into a panel that stays in
 * L1, then all rows run over it in groups of up to six. Between cuts the sums rest in out, as floats they are already.
 */
#ifndef KVICK_KERNELS_X86_GEMM_PANEL_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_PANEL_AVX512VNNI_H

#include "kernels/pack.h"
#include "kernels/x86/gemm_step_avx512vnni.h"

#define GEMM_PANEL_BLOCKS 18 /* of 32 k in one cut, at most */
#define GEMM_PANEL_TILES 2
#define GEMM_AHEAD_STEPS 96    /* blocks over which the next cut is prefetched */
#define GEMM_PANEL_MIN_ROWS 20 /* from here on every number is a sum of fives and sixes */
#define GEMM_PANEL_ROWS 6 /* 6 x 2 integer and 6 x 2 float sums, two weights, a scale and a quad: all 32 registers */

/* Weights of the next cut on their way to L2 while this one is multiplied: lines of 64 bytes of each tile per step. */
struct gemm_ahead {
    uintptr_t at;
    size_t tile_bytes;
    int step_lines;
};

GEMM_INLINE void gemm_ahead_step(struct gemm_ahead *ahead) {
#pragma GCC unroll 1
    for (int i = 0; i < ahead->step_lines; i++) {
        _mm_prefetch((const char *)ahead->at, _MM_HINT_T1);
        _mm_prefetch((const char *)(ahead->at + ahead->tile_bytes), _MM_HINT_T1);
        ahead->at += 64;
    }
}

/* The first of n_cols columns that the panel takes: it works on pairs of tiles, other kernels on what is left. */
GEMM_INLINE int gemm_panel_cols(int n_cols) {
    const int n_tiles = (n_cols + GEMM_TILE_COLS - 1) / GEMM_TILE_COLS, n_left = n_tiles % GEMM_PANEL_TILES;
    return n_left ? GEMM_TILE_COLS * (n_tiles - n_left) : n_cols;
}

/* One cut of two tiles; rows of activations meet it in groups. */
struct gemm_panel {
    struct gemm_block blocks[GEMM_PANEL_BLOCKS][GEMM_PANEL_TILES];
    int n_blocks;
    bool is_first; /* of k: sums start at zero */
    struct gemm_ahead ahead;
};

GEMM_INLINE void gemm_panel_rows(enum dtype dtype, enum act_q8_form form, int n_rows, struct gemm_panel *panel,
                                 struct gemm_act x, const struct gemm_out *out) {
    const struct gemm_block *block = panel->blocks[0];
    const int n_blocks = panel->n_blocks;
    struct gemm_ahead ahead = panel->ahead;
    __m512 acc[GEMM_MAX_ROWS][GEMM_MAX_TILES];
    if (panel->is_first)
        gemm_out_zero(n_rows, GEMM_PANEL_TILES, acc);
    else
        gemm_out_load(out, n_rows, GEMM_PANEL_TILES, acc);
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++) {
        gemm_ahead_step(&ahead);
        gemm_step(dtype, form, n_rows, GEMM_PANEL_TILES, block, &x, acc);
        gemm_step_next(dtype, &x);
        block += GEMM_PANEL_TILES;
    }
    panel->ahead.at = ahead.at;
    gemm_out_store(out, n_rows, GEMM_PANEL_TILES, acc);
}

/* Unpacks blocks cut.. of the tiles from w_packed on, unsigned bytes or signed ones without their offset, and aims the
 * prefetch at what the next call will unpack. */
GEMM_INLINE void gemm_panel_fill(enum dtype dtype, bool is_signed, const uint8_t *w_packed, size_t tile_bytes, int cut,
                                 int n_blocks, int k_blocks, int n_groups, struct gemm_panel *panel) {
    const size_t block_bytes = tile_bytes / (size_t)k_blocks;
    for (int t = 0; t < GEMM_PANEL_TILES; t++)
        for (int b = 0; b < n_blocks; b++) {
            gemm_block_load(dtype, w_packed + tile_bytes * (size_t)t, cut + b, &panel->blocks[b][t]);
            if (is_signed) gemm_block_sign(dtype, &panel->blocks[b][t]);
        }
    const int next = cut + n_blocks < k_blocks ? cut + n_blocks : GEMM_PANEL_TILES * k_blocks;
    const int n_lines = (int)((size_t)n_blocks * block_bytes / 64),
              n_steps = n_groups * n_blocks < GEMM_AHEAD_STEPS ? n_groups * n_blocks : GEMM_AHEAD_STEPS;
    panel->n_blocks = n_blocks;
    panel->is_first = cut == 0;
    panel->ahead = (struct gemm_ahead){(uintptr_t)w_packed + block_bytes * (size_t)next, tile_bytes,
                                       (n_lines + n_steps - 1) / n_steps};
}

/* All pairs of tiles; n_cols counts their columns only. n_rows is such that even groups have five or six rows. */
GEMM_INLINE void gemm_panel(enum dtype dtype, enum act_q8_form form, const uint8_t *w_packed, size_t tile_bytes,
                            const struct act_q8 *x, float *out, int out_stride, int n_rows, int n_cols, int k) {
    struct gemm_panel panel;
    const int k_blocks = k / ACT_Q8_BLOCK, n_groups = (n_rows + GEMM_PANEL_ROWS - 1) / GEMM_PANEL_ROWS;
    const int n_cuts = (k_blocks + GEMM_PANEL_BLOCKS - 1) / GEMM_PANEL_BLOCKS;
    for (int col = 0; col < n_cols; col += GEMM_PANEL_TILES * GEMM_TILE_COLS) {
        const uint8_t *tile = w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS);
        /* Cuts of even size: a short one would pay as much for its sums as a long one. */
        for (int c = 0, cut = 0; c < n_cuts; c++, cut += panel.n_blocks) {
            const int n_blocks = (k_blocks - cut + n_cuts - c - 1) / (n_cuts - c);
            gemm_panel_fill(dtype, false, tile, tile_bytes, cut, n_blocks, k_blocks, n_groups, &panel);
            for (int g = 0, row = 0; g < n_groups; g++) {
                const int group_rows = (n_rows - row + n_groups - g - 1) / (n_groups - g);
                struct gemm_act act = gemm_act_at(dtype, x, row, cut, k);
                struct gemm_out place = gemm_out_at(out + (int64_t)row * out_stride, out_stride, col, n_cols);
                gemm_out_ahead(&place, group_rows, GEMM_PANEL_ROWS, GEMM_PANEL_TILES);
                if (group_rows == GEMM_PANEL_ROWS)
                    gemm_panel_rows(dtype, form, GEMM_PANEL_ROWS, &panel, act, &place);
                else
                    gemm_panel_rows(dtype, form, GEMM_PANEL_ROWS - 1, &panel, act, &place);
                row += group_rows;
                if ((g + 1) * panel.n_blocks >= GEMM_AHEAD_STEPS) panel.ahead.step_lines = 0;
            }
        }
    }
}

#endif
