/* gemm_panel_amx: many rows, int8 activations. The panel of gemm_panel_avx512vnni, whose rows go over it by sixteens:
 * one product of tiles gives 16 x 16 integer sums of a block (of half a block, for types with two scales), which vector
 * registers then scale and add in the order of rule 1. The floats are the work: three operations for sixteen sums. */
#ifndef KVICK_KERNELS_X86_GEMM_PANEL_AMX_H
#define KVICK_KERNELS_X86_GEMM_PANEL_AMX_H

#include "kernels/x86/gemm_panel_avx512vnni.h"
#include "kernels/x86/tiles_amx.h"

/* Tile registers. The last rows of a call are fewer than sixteen and have shapes of their own. */
#define GEMM_WEIGHTS 0
#define GEMM_ACTS 1
#define GEMM_SUMS 2
#define GEMM_LAST_ACTS 3
#define GEMM_LAST_SUMS 4

/* Integer sums of one block on their way from a tile to vector registers. */
struct gemm_sums_amx {
    _Alignas(64) int32_t at[2][TILES_ROWS][TILES_COLS]; /* [scale] */
};

GEMM_INLINE void gemm_panel_amx_shape(enum dtype dtype, int n_last_rows) {
    const int k = ACT_Q8_BLOCK / gemm_block_n_scales(dtype);
    struct tiles_amx tiles = {0};
    tiles_amx_shape(&tiles, GEMM_WEIGHTS, k / 4, 64);
    tiles_amx_shape(&tiles, GEMM_ACTS, TILES_ROWS, k);
    tiles_amx_shape(&tiles, GEMM_SUMS, TILES_ROWS, 64);
    tiles_amx_shape(&tiles, GEMM_LAST_ACTS, n_last_rows, k);
    tiles_amx_shape(&tiles, GEMM_LAST_SUMS, n_last_rows, 64);
    _tile_loadconfig(&tiles);
}

/* The weights of the panel with their offset taken away: tiles multiply signed bytes. */
GEMM_INLINE void gemm_panel_amx_sign(enum dtype dtype, struct gemm_panel *panel) {
    const int bits = gemm_block_offset_bits(dtype);
    const __m512i offset = _mm512_set1_epi8((char)(1 << bits));
    if (!bits) return;
    for (int b = 0; b < panel->n_blocks; b++)
        for (int t = 0; t < GEMM_PANEL_TILES; t++)
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) panel->blocks[b][t].q[j] = _mm512_sub_epi8(panel->blocks[b][t].q[j], offset);
}

/* The dots of a block with the rows at q. */
GEMM_INLINE void gemm_panel_amx_dots(enum dtype dtype, bool is_last, const struct gemm_block *w, const int8_t *q,
                                     int64_t q_stride, struct gemm_sums_amx *out) {
    const int n_scales = gemm_block_n_scales(dtype), n_quads = 8 / n_scales;
#pragma GCC unroll 2
    for (int s = 0; s < n_scales; s++, q += 4 * n_quads) {
        _tile_loadd(GEMM_WEIGHTS, w->q + n_quads * s, 64);
        if (is_last) {
            _tile_loadd(GEMM_LAST_ACTS, q, q_stride);
            _tile_zero(GEMM_LAST_SUMS);
            _tile_dpbssd(GEMM_LAST_SUMS, GEMM_LAST_ACTS, GEMM_WEIGHTS);
            _tile_stored(GEMM_LAST_SUMS, out->at[s], 64);
        } else {
            _tile_loadd(GEMM_ACTS, q, q_stride);
            _tile_zero(GEMM_SUMS);
            _tile_dpbssd(GEMM_SUMS, GEMM_ACTS, GEMM_WEIGHTS);
            _tile_stored(GEMM_SUMS, out->at[s], 64);
        }
    }
}

/* What a block adds to the sums of sixteen rows. d_off: from the first row's scale to each row's. */
GEMM_INLINE void gemm_panel_amx_add(enum dtype dtype, const struct gemm_block *w, const struct gemm_sums_amx *sums,
                                    const struct gemm_act *x, const int64_t d_off[TILES_ROWS], __m512 acc[TILES_ROWS]) {
#pragma GCC unroll 2
    for (int s = 0; s < gemm_block_n_scales(dtype); s++) {
        const __m512 w_d = w->d[s];
#pragma GCC unroll 16
        for (int i = 0; i < TILES_ROWS; i++) {
            __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(sums->at[s][i]));
            acc[i] = _mm512_fmadd_ps(dot, _mm512_mul_ps(_mm512_set1_ps(x->d[d_off[i]]), w_d), acc[i]);
        }
    }
#pragma GCC unroll 2
    for (int s = 0; s < gemm_block_n_mins(dtype); s++)
#pragma GCC unroll 16
        for (int i = 0; i < TILES_ROWS; i++) {
            struct gemm_act row = *x;
            row.d += d_off[i], row.dsum += d_off[i], row.nsum += gemm_block_n_scales(dtype) * d_off[i];
            acc[i] = _mm512_fmadd_ps(w->m[s], gemm_step_dsum(dtype, &row, 0, s), acc[i]);
        }
}

/* One tile of the panel and sixteen rows, or the last ones: what stands in for rows that do not exist goes nowhere. */
GEMM_INLINE void gemm_panel_amx_rows(enum dtype dtype, bool is_last, int n_rows, struct gemm_panel *panel, int tile_idx,
                                     struct gemm_act x, float *out, int64_t out_stride, __mmask16 cols) {
    const struct gemm_block *w = &panel->blocks[0][tile_idx];
    struct gemm_sums_amx sums[2];
    int64_t d_off[TILES_ROWS];
    __m512 acc[TILES_ROWS];
    for (int i = 0; i < TILES_ROWS; i++) d_off[i] = (is_last && i >= n_rows ? n_rows - 1 : i) * x.d_stride;
    if (is_last) memset(sums, 0, sizeof sums);
#pragma GCC unroll 16
    for (int i = 0; i < TILES_ROWS; i++)
        acc[i] = panel->is_first || (is_last && i >= n_rows) ? _mm512_setzero_ps()
                                                             : _mm512_maskz_loadu_ps(cols, out + i * out_stride);
    TILES_AMX_WRITTEN();
    gemm_panel_amx_dots(dtype, is_last, w, x.q, x.q_stride, &sums[0]);
#pragma GCC unroll 1
    for (int b = 0; b < panel->n_blocks; b++, w += GEMM_PANEL_TILES) {
        const int8_t *q_next = x.q + ACT_Q8_BLOCK;
        if (tile_idx == 0) gemm_ahead_step(&panel->ahead);
        if (b + 1 < panel->n_blocks)
            gemm_panel_amx_dots(dtype, is_last, w + GEMM_PANEL_TILES, q_next, x.q_stride, &sums[(b + 1) % 2]);
        gemm_panel_amx_add(dtype, w, &sums[b % 2], &x, d_off, acc);
        gemm_step_next(dtype, &x);
    }
#pragma GCC unroll 16
    for (int i = 0; i < TILES_ROWS; i++)
        if (!is_last || i < n_rows) _mm512_mask_storeu_ps(out + i * out_stride, cols, acc[i]);
}

GEMM_INLINE void gemm_panel_amx_group(enum dtype dtype, bool is_last, int n_rows, struct gemm_panel *panel,
                                      struct gemm_act x, float *out, int out_stride, int n_cols) {
    for (int t = 0; t < GEMM_PANEL_TILES && n_cols > 0; t++, n_cols -= GEMM_TILE_COLS) {
        const __mmask16 cols = n_cols >= GEMM_TILE_COLS ? 0xffff : (__mmask16)((1u << n_cols) - 1);
        gemm_panel_amx_rows(dtype, is_last, n_rows, panel, t, x, out + GEMM_TILE_COLS * t, out_stride, cols);
    }
}

/* As gemm_panel, with any number of rows. */
GEMM_INLINE void gemm_panel_amx(enum dtype dtype, const uint8_t *w_packed, size_t tile_bytes, const struct act_q8 *x,
                                float *out, int out_stride, int n_rows, int n_cols, int k) {
    struct gemm_panel panel;
    const int k_blocks = k / ACT_Q8_BLOCK, n_groups = (n_rows + TILES_ROWS - 1) / TILES_ROWS;
    const int n_cuts = (k_blocks + GEMM_PANEL_BLOCKS - 1) / GEMM_PANEL_BLOCKS, n_last = n_rows % TILES_ROWS;
    gemm_panel_amx_shape(dtype, n_last ? n_last : TILES_ROWS);
    for (int col = 0; col < n_cols; col += GEMM_PANEL_TILES * GEMM_TILE_COLS) {
        const uint8_t *tile = w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS);
        for (int c = 0, cut = 0; c < n_cuts; c++, cut += panel.n_blocks) {
            const int n_blocks = (k_blocks - cut + n_cuts - c - 1) / (n_cuts - c);
            gemm_panel_fill(dtype, tile, tile_bytes, cut, n_blocks, k_blocks, n_groups, &panel);
            gemm_panel_amx_sign(dtype, &panel);
            for (int row = 0; row < n_rows; row += TILES_ROWS) {
                struct gemm_act act = gemm_act_at(dtype, x, row, cut, k);
                float *to = out + (int64_t)row * out_stride + col;
                if (n_rows - row >= TILES_ROWS)
                    gemm_panel_amx_group(dtype, false, TILES_ROWS, &panel, act, to, out_stride, n_cols - col);
                else
                    gemm_panel_amx_group(dtype, true, n_last, &panel, act, to, out_stride, n_cols - col);
                if ((row / TILES_ROWS + 1) * panel.n_blocks >= GEMM_AHEAD_STEPS) panel.ahead.step_lines = 0;
            }
        }
    }
    _tile_release();
}

#endif
