#include <string.h>

#include "kernels/kernel_table.h"
#include "kernels/x86/tiles_amx.h"

#define ITERATIONS_AT_ONCE 64 /* what twelve products of whole tiles compute */
#define ROUNDS 3              /* of four chains */
#define K_OF_ONE 12           /* one product of 16 x 16 sums over as many k is an iteration */

/* Tile registers. */
#define SUMS_0 0
#define SUMS_1 1
#define SUMS_2 2
#define SUMS_3 3
#define XS 4
#define WS 5

static void shape(int k) {
    struct tiles_amx tiles = {0};
    for (int i = SUMS_0; i <= SUMS_3; i++) tiles_amx_shape(&tiles, i, TILES_ROWS, 64);
    tiles_amx_shape(&tiles, XS, TILES_ROWS, k);
    tiles_amx_shape(&tiles, WS, k / 4, 64);
    tiles_amx_load(&tiles);
}

static void load(const int8_t *xs, const uint8_t *ws) {
    TILES_AMX_WRITTEN();
    _tile_loadd(XS, xs, 64);
    _tile_loadd(WS, ws, 64);
    _tile_zero(SUMS_0);
    _tile_zero(SUMS_1);
    _tile_zero(SUMS_2);
    _tile_zero(SUMS_3);
}

static uint32_t sum_up(void) {
    uint32_t tile[4][TILES_ROWS * TILES_COLS], sum = 0;
    _tile_stored(SUMS_0, tile[0], 64);
    _tile_stored(SUMS_1, tile[1], 64);
    _tile_stored(SUMS_2, tile[2], 64);
    _tile_stored(SUMS_3, tile[3], 64);
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < TILES_ROWS * TILES_COLS; i++) sum += tile[t][i];
    return sum;
}

uint32_t peak_dots_amx(int64_t n, uint8_t w, int8_t x) {
    int8_t xs[TILES_ROWS * 64];
    uint8_t ws[16 * 64];
    memset(xs, x, sizeof xs);
    memset(ws, w, sizeof ws);
    shape(64);
    load(xs, ws);
    for (int64_t i = 0; i < n / ITERATIONS_AT_ONCE * ROUNDS; i++) {
        _tile_dpbsud(SUMS_0, XS, WS);
        _tile_dpbsud(SUMS_1, XS, WS);
        _tile_dpbsud(SUMS_2, XS, WS);
        _tile_dpbsud(SUMS_3, XS, WS);
    }
    uint32_t sum = sum_up();
    shape(K_OF_ONE);
    load(xs, ws);
    for (int64_t i = 0; i < n % ITERATIONS_AT_ONCE; i++) _tile_dpbsud(SUMS_0, XS, WS);
    sum += sum_up();
    _tile_release();
    return sum;
}
