#include "kernels/pack.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/block_codes.h"
#include "kernels/dequantize.h"
#include "kernels/kernel_ops.h"
#include "support/test.h"

#define CANARY 0xa5

static uint32_t seed;

static uint32_t next_random(void) {
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* A finite f16 or bf16, zeros and denormals of both signs among them. */
static uint16_t finite_half(enum dtype dtype) {
    uint16_t bits = (uint16_t)next_random(), exponent = dtype == DTYPE_BF16 ? 0x7f80 : 0x7c00;
    if (next_random() % 8 == 0) bits &= (uint16_t)~exponent;
    if ((bits & exponent) == exponent) bits &= (uint16_t) ~(exponent & (exponent >> 1));
    return bits;
}

static void fill_block(enum dtype dtype, uint8_t *block) {
    for (int i = 0; i < dtype_block_bytes(dtype); i++) block[i] = (uint8_t)next_random();
    if (dtype == DTYPE_F32) {
        uint32_t bits = next_random() << 8 | (next_random() & 255);
        if ((bits & 0x7f800000) == 0x7f800000) bits &= ~0x00800000u;
        memcpy(block, &bits, sizeof bits);
    } else {
        int off, n_scales = dtype_f16_scales(dtype, &off);
        if (dtype_block_elements(dtype) == 1) n_scales = 1;
        for (int i = 0; i < n_scales; i++) {
            uint16_t half = finite_half(dtype);
            memcpy(block + off + 2 * i, &half, sizeof half);
        }
        if (dtype == DTYPE_IQ1_M) block[55] &= 0xbf; /* top of its scattered scale */
    }
}

/* All tiles of a [n_rows][k] matrix: every column has the bits of its dequantized row, columns past the last are
 * zero, of either sign. */
static void check_matrix(enum dtype dtype, int n_rows, int k) {
    size_t tile_bytes = pack_tile_bytes(dtype, k), n_blocks = (size_t)(k / dtype_block_elements(dtype));
    size_t row_bytes = n_blocks * (size_t)dtype_block_bytes(dtype);
    uint8_t *matrix = mem_alloc(row_bytes * (size_t)n_rows + 1), *tile = mem_alloc(tile_bytes + 16);
    float *want = mem_alloc_array((size_t)k, sizeof *want), *got = mem_alloc_array((size_t)k + 1, sizeof *got);
    assert_true(matrix && tile && want && got);
    for (size_t b = 0; b < n_blocks * (size_t)n_rows; b++)
        fill_block(dtype, matrix + 1 + b * (size_t)dtype_block_bytes(dtype)); /* file rows begin at any byte */
    for (int row = 0; row < n_rows; row += GEMM_TILE_COLS) {
        memset(tile, CANARY, tile_bytes + 16);
        pack_tile(dtype, matrix + 1, n_rows, row, k, tile);
        for (int i = 0; i < 16; i++) assert_int_equal(tile[tile_bytes + (size_t)i], CANARY);
        for (int c = 0; c < GEMM_TILE_COLS; c++) {
            memset(want, 0, (size_t)k * sizeof *want);
            if (row + c < n_rows) dequantize_row(dtype, matrix + 1 + row_bytes * (size_t)(row + c), want, k);
            memset(got, CANARY, ((size_t)k + 1) * sizeof *got);
            pack_column(dtype, tile, c, k, got);
            for (int i = 0; i < k; i++) {
                if (row + c >= n_rows && got[i] == 0) continue;
                if (memcmp(&want[i], &got[i], sizeof *got) != 0)
                    fail_msg("%s: %d rows of %d: row %d, element %d is %a, should be %a", dtype_name(dtype), n_rows, k,
                             row + c, i, (double)got[i], (double)want[i]);
            }
            assert_memory_equal((uint8_t *)(got + k), "\xa5\xa5\xa5\xa5", sizeof *got);
        }
    }
    mem_free(matrix);
    mem_free(tile);
    mem_free(want);
    mem_free(got);
}

static void columns_are_dequantized_rows(void **state) {
    (void)state;
    int n_known = 0;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        if (!pack_is_known(dtype)) continue;
        n_known++;
        seed = (uint32_t)dtype + 1;
        int block = dtype_block_elements(dtype);
        for (int n_rows = 1; n_rows <= 35; n_rows++) check_matrix(dtype, n_rows, block);
        for (int n_blocks = 2; n_blocks <= 7; n_blocks++) check_matrix(dtype, 16 + n_blocks, n_blocks * block);
        check_matrix(dtype, 17, 1536);
    }
    assert_int_equal(n_known, 25);
}

static void a_tile_has_the_bytes_of_its_rows(void **state) {
    (void)state;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        uint64_t row_bytes;
        if (!pack_is_known(dtype) || block_codes_of(dtype)) continue;
        assert_int_equal(dtype_bytes(dtype, 512, &row_bytes), STATUS_OK);
        assert_int_equal(pack_tile_bytes(dtype, 512), 16 * row_bytes);
    }
}

/* At most 1.125 bytes a weight, and no type without tiles. */
static void other_orders_hold_their_types_in_a_byte_or_so(void **state) {
    (void)state;
    int n_others = 0;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        assert_true(pack_is_known(dtype) == dequantize_is_known(dtype));
        assert_true(pack_order(pack_order(dtype)) == pack_order(dtype));
        if (!block_codes_of(dtype)) continue;
        n_others++;
        assert_true(pack_tile_bytes(dtype, 512) <= 16 * 512 * 9 / 8);
    }
    assert_int_equal(n_others, 13);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_dequantized_rows),
        cmocka_unit_test(a_tile_has_the_bytes_of_its_rows),
        cmocka_unit_test(other_orders_hold_their_types_in_a_byte_or_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
