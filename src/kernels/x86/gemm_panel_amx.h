/* gemm_panel_amx: many rows, int8 activations. The panel of gemm_panel_avx512vnni, whose rows go over it by sixteens:
 * one product of tiles gives 16 x 16 integer sums of a block, which vector registers then scale and add in the order of
 * rule 1. For types with one scale and no minimum a block.
 *
 * Near a product of tiles vectors of 512 bits have one multiplier instead of two, and its sums are there only a hundred
 * cycles after its loads. So the tiles run ahead by two blocks, over the ends of groups too, and their instructions are
 * spread between those of the floats: neither waits for the other. */
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

/* From here on a cut may fill the panel. With fewer rows filling it is much of the work, and a small one stays in L1.
 */
#define GEMM_LONG_CUT_ROWS 128

#define GEMM_FEED_AHEAD 2 /* blocks */
#define GEMM_FEED_SUMS 4  /* blocks whose sums have a place: those ahead, the one that is read, and a power of two */

/* The products of tiles of one panel, block by block: of its first tile with sixteen rows, of its second with the same,
 * then the next sixteen. After the last come those of the last rows once more, for nobody. */
struct gemm_feed {
    _Alignas(64) int32_t sums[GEMM_FEED_SUMS][TILES_ROWS][TILES_COLS];
    const struct gemm_panel *panel;
    const struct gemm_block *w;
    const int8_t *q, *group_q; /* of the block, of its rows' first block */
    int64_t q_stride;
    int tile_idx, block_idx, n_rows_left;
    unsigned n_fed;
};

GEMM_INLINE void gemm_feed_shape(int n_last_rows) {
    struct tiles_amx tiles = {0};
    tiles_amx_shape(&tiles, GEMM_WEIGHTS, ACT_Q8_BLOCK / 4, 64);
    tiles_amx_shape(&tiles, GEMM_ACTS, TILES_ROWS, ACT_Q8_BLOCK);
    tiles_amx_shape(&tiles, GEMM_SUMS, TILES_ROWS, 64);
    tiles_amx_shape(&tiles, GEMM_LAST_ACTS, n_last_rows, ACT_Q8_BLOCK);
    tiles_amx_shape(&tiles, GEMM_LAST_SUMS, n_last_rows, 64);
    tiles_amx_load(&tiles);
}

GEMM_INLINE void gemm_feed_load(const struct gemm_feed *feed) {
    _tile_loadd(GEMM_WEIGHTS, feed->w->q, 64);
    if (feed->n_rows_left < TILES_ROWS)
        _tile_loadd(GEMM_LAST_ACTS, feed->q, feed->q_stride);
    else
        _tile_loadd(GEMM_ACTS, feed->q, feed->q_stride);
}

GEMM_INLINE void gemm_feed_multiply(const struct gemm_feed *feed) {
    if (feed->n_rows_left < TILES_ROWS) {
        _tile_zero(GEMM_LAST_SUMS);
        _tile_dpbssd(GEMM_LAST_SUMS, GEMM_LAST_ACTS, GEMM_WEIGHTS);
    } else {
        _tile_zero(GEMM_SUMS);
        _tile_dpbssd(GEMM_SUMS, GEMM_ACTS, GEMM_WEIGHTS);
    }
}

GEMM_INLINE void gemm_feed_store(struct gemm_feed *feed) {
    if (feed->n_rows_left < TILES_ROWS)
        _tile_stored(GEMM_LAST_SUMS, feed->sums[feed->n_fed % GEMM_FEED_SUMS], 64);
    else
        _tile_stored(GEMM_SUMS, feed->sums[feed->n_fed % GEMM_FEED_SUMS], 64);
}

GEMM_INLINE void gemm_feed_next(struct gemm_feed *feed) {
    feed->n_fed++;
    if (++feed->block_idx < feed->panel->n_blocks) {
        feed->w += GEMM_PANEL_TILES;
        feed->q += ACT_Q8_BLOCK;
        return;
    }
    feed->block_idx = 0;
    if (++feed->tile_idx == GEMM_PANEL_TILES) {
        feed->tile_idx = 0;
        if (feed->n_rows_left > TILES_ROWS) {
            feed->n_rows_left -= TILES_ROWS;
            feed->group_q += TILES_ROWS * feed->q_stride;
        }
    }
    feed->w = feed->panel->blocks[0] + feed->tile_idx;
    feed->q = feed->group_q;
}

#define GEMM_FEED_STEPS 4

/* A quarter of the work on the next block. */
GEMM_INLINE void gemm_feed_step(int step_idx, struct gemm_feed *feed) {
    if (step_idx == 0) gemm_feed_load(feed);
    if (step_idx == 1) gemm_feed_multiply(feed);
    if (step_idx == 3) {
        gemm_feed_store(feed);
        gemm_feed_next(feed);
    }
}

/* q: of the first row's first block in the panel. */
GEMM_INLINE void gemm_feed_begin(struct gemm_feed *feed, const struct gemm_panel *panel, const int8_t *q,
                                 int64_t q_stride, int n_rows) {
    TILES_AMX_WRITTEN();
    feed->panel = panel;
    feed->w = panel->blocks[0];
    feed->q = feed->group_q = q;
    feed->q_stride = q_stride;
    feed->tile_idx = feed->block_idx = 0;
    feed->n_rows_left = n_rows;
    feed->n_fed = 0;
    for (int b = 0; b < GEMM_FEED_AHEAD; b++)
#pragma GCC unroll 4
        for (int step = 0; step < GEMM_FEED_STEPS; step++) gemm_feed_step(step, feed);
}

/* What a block adds to the sums of rows begin..end-1 of sixteen. d_off: from the first row's scale to each row's. */
GEMM_INLINE void gemm_panel_amx_add(const struct gemm_block *w, const int32_t (*sums)[TILES_COLS],
                                    const struct gemm_act *x, const int64_t d_off[TILES_ROWS], int begin, int end,
                                    __m512 acc[TILES_ROWS]) {
    const __m512 w_d = w->d[0];
#pragma GCC unroll 4
    for (int i = begin; i < end; i++) {
        __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(sums[i]));
        acc[i] = _mm512_fmadd_ps(dot, _mm512_mul_ps(_mm512_set1_ps(x->d[d_off[i]]), w_d), acc[i]);
    }
}

/* One tile of the panel and sixteen rows, or the last ones: what stands in for rows that do not exist goes nowhere. */
GEMM_INLINE void gemm_panel_amx_rows(enum dtype dtype, bool is_last, int n_rows, struct gemm_panel *panel, int tile_idx,
                                     struct gemm_feed *feed, struct gemm_act x, const struct gemm_out *out) {
    const struct gemm_block *w = &panel->blocks[0][tile_idx];
    const __mmask16 cols = out->mask[tile_idx];
    float *at = out->at + GEMM_TILE_COLS * tile_idx;
    int64_t d_off[TILES_ROWS];
    __m512 acc[TILES_ROWS];
    for (int i = 0; i < TILES_ROWS; i++) d_off[i] = (is_last && i >= n_rows ? n_rows - 1 : i) * x.d_stride;
#pragma GCC unroll 16
    for (int i = 0; i < TILES_ROWS; i++)
        acc[i] = panel->is_first || (is_last && i >= n_rows) ? _mm512_setzero_ps()
                                                             : _mm512_maskz_loadu_ps(cols, at + i * out->stride);
    for (int b = 0; b < panel->n_blocks; b++, w += GEMM_PANEL_TILES) {
        const int32_t(*sums)[TILES_COLS] = feed->sums[(feed->n_fed - GEMM_FEED_AHEAD) % GEMM_FEED_SUMS];
        if (tile_idx == 0) gemm_ahead_step(&panel->ahead);
#pragma GCC unroll 4
        for (int step = 0; step < GEMM_FEED_STEPS; step++) {
            gemm_feed_step(step, feed);
            if (is_last && TILES_ROWS / GEMM_FEED_STEPS * step >= n_rows) continue;
            gemm_panel_amx_add(w, sums, &x, d_off, TILES_ROWS / GEMM_FEED_STEPS * step,
                               TILES_ROWS / GEMM_FEED_STEPS * (step + 1), acc);
        }
        gemm_step_next(dtype, &x);
    }
#pragma GCC unroll 16
    for (int i = 0; i < TILES_ROWS; i++)
        if (!is_last || i < n_rows) _mm512_mask_storeu_ps(at + i * out->stride, cols, acc[i]);
}

/* All rows over one panel; out: columns col.. of the first row. */
GEMM_INLINE void gemm_panel_amx_run(enum dtype dtype, struct gemm_panel *panel, struct gemm_feed *feed,
                                    const struct act_q8 *x, int cut, float *out, int out_stride, int n_rows, int n_cols,
                                    int k) {
    gemm_feed_begin(feed, panel, gemm_act_at(dtype, x, 0, cut, k).q, k, n_rows);
    for (int row = 0; row < n_rows; row += TILES_ROWS, out += TILES_ROWS * (int64_t)out_stride) {
        struct gemm_act act = gemm_act_at(dtype, x, row, cut, k);
        struct gemm_out place = gemm_out_at(out, out_stride, 0, n_cols);
        for (int t = 0; t < GEMM_PANEL_TILES; t++)
            if (n_rows - row >= TILES_ROWS)
                gemm_panel_amx_rows(dtype, false, TILES_ROWS, panel, t, feed, act, &place);
            else
                gemm_panel_amx_rows(dtype, true, n_rows - row, panel, t, feed, act, &place);
        if ((row / TILES_ROWS + 1) * panel->n_blocks >= GEMM_AHEAD_STEPS) panel->ahead.step_lines = 0;
    }
}

/* As gemm_panel, with any number of rows. */
GEMM_INLINE void gemm_panel_amx(enum dtype dtype, const uint8_t *w_packed, size_t tile_bytes, const struct act_q8 *x,
                                float *out, int out_stride, int n_rows, int n_cols, int k) {
    struct gemm_panel panel;
    struct gemm_feed feed;
    const int k_blocks = k / ACT_Q8_BLOCK, n_groups = (n_rows + TILES_ROWS - 1) / TILES_ROWS;
    const int max_blocks = n_rows < GEMM_LONG_CUT_ROWS ? GEMM_PANEL_BLOCKS / 2 : GEMM_PANEL_BLOCKS;
    const int n_cuts = (k_blocks + max_blocks - 1) / max_blocks, n_last = n_rows % TILES_ROWS;
    memset(feed.sums, 0, sizeof feed.sums); /* rows that do not exist are read */
    gemm_feed_shape(n_last ? n_last : TILES_ROWS);
    for (int col = 0; col < n_cols; col += GEMM_PANEL_TILES * GEMM_TILE_COLS) {
        const uint8_t *tile = w_packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS);
        for (int c = 0, cut = 0; c < n_cuts; c++, cut += panel.n_blocks) {
            const int n_blocks = (k_blocks - cut + n_cuts - c - 1) / (n_cuts - c);
            gemm_panel_fill(dtype, true, tile, tile_bytes, cut, n_blocks, k_blocks, n_groups, &panel);
            gemm_panel_amx_run(dtype, &panel, &feed, x, cut, out + col, out_stride, n_rows, n_cols - col, k);
        }
    }
    _tile_release();
}

#endif
