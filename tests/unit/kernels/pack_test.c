#include "kernels/pack.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/dequantize.h"
#include "kernels/kernel_ops.h"
#include "support/test.h"

#define CANARY 0xa5

static uint32_t seed;

static uint32_t next_random(void) {
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static int scale_offset(enum dtype dtype) {
    return dtype == DTYPE_Q6_K ? 208 : 0;
}

static int n_scales(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: return 2;
    default: return 1;
    }
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
        for (int i = 0; i < n_scales(dtype); i++) {
            uint16_t half = finite_half(dtype);
            memcpy(block + scale_offset(dtype) + 2 * i, &half, sizeof half);
        }
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
    assert_int_equal(n_known, 11);
}

static void a_tile_has_the_bytes_of_its_rows(void **state) {
    (void)state;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        uint64_t row_bytes;
        if (!pack_is_known(dtype)) continue;
        assert_int_equal(dtype_bytes(dtype, 512, &row_bytes), STATUS_OK);
        assert_int_equal(pack_tile_bytes(dtype, 512), 16 * row_bytes);
    }
}

static void packed_types_can_be_dequantized(void **state) {
    (void)state;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++)
        if (pack_is_known(dtype)) assert_true(dequantize_is_known(dtype));
    assert_false(pack_is_known(DTYPE_Q2_K));
    assert_false(pack_is_known(DTYPE_MXFP4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_dequantized_rows),
        cmocka_unit_test(a_tile_has_the_bytes_of_its_rows),
        cmocka_unit_test(packed_types_can_be_dequantized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
