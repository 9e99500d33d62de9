#include "kernels/dequantize.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/iq_grids.h"
#include "support/test.h"

static uint8_t next_byte(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (uint8_t)(*seed >> 24);
}

static void weights_are_known_and_the_rest_is_not(void **state) {
    (void)state;
    static const enum dtype unknown[] = {DTYPE_Q8_1, DTYPE_Q8_K, DTYPE_I8, DTYPE_I16, DTYPE_I32, DTYPE_I64, DTYPE_F64};
    int n_known = 0;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) n_known += dequantize_is_known(dtype);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) assert_false(dequantize_is_known(unknown[i]));
    assert_int_equal(n_known + (int)(sizeof unknown / sizeof unknown[0]), DTYPE_N);
}

/* Random bytes (scales of any kind, NaN too) in a buffer that ends with the row, so that ASan sees a byte too many; the
 * row starts at an odd address, its output lies between canaries. */
static void check_row(enum dtype dtype, int n_blocks) {
    const float canary = 12345.5f;
    size_t block_bytes = (size_t)dtype_block_bytes(dtype), elements = (size_t)dtype_block_elements(dtype);
    size_t n = elements * (size_t)n_blocks;
    uint8_t *bytes = mem_alloc(1 + block_bytes * (size_t)n_blocks);
    float *out = mem_alloc_array(n + 2, sizeof *out), *alone = mem_alloc_array(elements, sizeof *alone);
    assert_true(bytes && out && alone);
    uint32_t seed = (uint32_t)dtype * 77 + (uint32_t)n_blocks;
    for (size_t i = 0; i < block_bytes * (size_t)n_blocks; i++) bytes[1 + i] = next_byte(&seed);
    out[0] = out[n + 1] = canary;
    dequantize_row(dtype, bytes + 1, out + 1, (int64_t)n);
    assert_true(out[0] == canary && out[n + 1] == canary);
    for (int b = 0; b < n_blocks; b++) {
        dequantize_row(dtype, bytes + 1 + block_bytes * (size_t)b, alone, (int64_t)elements);
        assert_memory_equal(alone, out + 1 + elements * (size_t)b, elements * sizeof *out);
    }
    mem_free(bytes);
    mem_free(out);
    mem_free(alone);
}

static void a_row_is_its_blocks(void **state) {
    (void)state;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        if (!dequantize_is_known(dtype)) continue;
        for (int n_blocks = 0; n_blocks <= 5; n_blocks++) check_row(dtype, n_blocks);
        check_row(dtype, 64);
    }
}

static void f32_is_copied(void **state) {
    (void)state;
    static const uint32_t bits[4] = {0x7fc01234, 0x80000000, 0x00000001, 0x7f800000};
    float out[4];
    dequantize_row(DTYPE_F32, bits, out, 4);
    assert_memory_equal(out, bits, sizeof bits);
}

/* By hand: scale 2 (f16 0x4000), codes 0..15 in the low and 15..0 in the high nibbles. */
static void nibbles_of_q4_lie_half_a_block_apart(void **state) {
    (void)state;
    uint8_t q4_0[18] = {0x00, 0x40}, q4_1[20] = {0x00, 0x40, 0x00, 0xbc}; /* minimum -1 */
    for (int i = 0; i < 16; i++) q4_0[2 + i] = q4_1[4 + i] = (uint8_t)(i | (15 - i) << 4);
    float out[32];
    dequantize_row(DTYPE_Q4_0, q4_0, out, 32);
    for (int i = 0; i < 16; i++) assert_true(out[i] == 2.0f * (float)(i - 8) && out[16 + i] == 2.0f * (float)(7 - i));
    dequantize_row(DTYPE_Q4_1, q4_1, out, 32);
    for (int i = 0; i < 16; i++)
        assert_true(out[i] == 2.0f * (float)i - 1 && out[16 + i] == 2.0f * (float)(15 - i) - 1);
}

static void mxfp4_reaches_both_ends_of_its_scales(void **state) {
    (void)state;
    uint8_t block[17] = {0};
    float out[32];
    block[1] = 0x12; /* element 0: code 2 (1.0), element 16: code 1 (0.5) */
    block[2] = 0x8f; /* element 1: code 15 (-6.0), element 17: code 8 (-0, stored as an integer 0) */
    for (int exponent = 0; exponent < 255; exponent++) {
        block[0] = (uint8_t)exponent;
        dequantize_row(DTYPE_MXFP4, block, out, 32);
        assert_true((double)out[0] == ldexp(1, exponent - 127));
        assert_true((double)out[16] == ldexp(1, exponent - 128));
        if (exponent < 253) assert_true((double)out[1] == -6 * ldexp(1, exponent - 127));
        assert_true(out[17] == 0 && !signbit(out[17]));
    }
}

/* Three of the IQ formats store seven signs of eight. */
static void stored_signs_are_always_even_in_number(void **state) {
    (void)state;
    for (unsigned seven = 0; seven < 128; seven++) {
        uint8_t block[74] = {0x00, 0x3c}; /* IQ2_XS, scale 1, point 0 everywhere */
        float out[256];
        block[3] = (uint8_t)(seven << 1);
        dequantize_row(DTYPE_IQ2_XS, block, out, 256);
        int n_negative = 0;
        for (int i = 0; i < 8; i++) {
            assert_true(fabsf(out[i]) == 1.0f); /* 8 x 0.5 x 0.25 */
            n_negative += out[i] < 0;
            if (i < 7) assert_int_equal(out[i] < 0, seven >> i & 1);
        }
        assert_int_equal(n_negative % 2, 0);
    }
}

/* FNV-1a over a codebook's values as signed bytes. */
static uint64_t digest(const uint16_t *grid, int n_points, int bits_per_code, const int8_t *values) {
    uint64_t hash = 0xcbf29ce484222325;
    int mask = bits_per_code == 2 ? 3 : 7;
    for (int p = 0; p < n_points; p++)
        for (int shift = 0; shift < 16; shift += bits_per_code)
            hash = (hash ^ (uint8_t)values[grid[p] >> shift & mask]) * 0x100000001b3;
    return hash;
}

/* The golden blocks do not visit every point; these digests, computed from gguf-py's tables, do. */
static void codebooks_are_whole(void **state) {
    (void)state;
    static const int8_t iq1[4] = {-1, 0, 1, 99}, iq2[4] = {8, 25, 43, 99};
    static const int8_t iq3_xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62}, iq3_s[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    assert_true(digest(iq_grids_iq1, 2048, 2, iq1) == 0x6703ed863501ae2e);
    assert_true(digest(iq_grids_iq2_xxs, 256, 2, iq2) == 0xbb4ee025b5ac6e8e);
    assert_true(digest(iq_grids_iq2_xs, 512, 2, iq2) == 0xc9b1ee61e79909bd);
    assert_true(digest(iq_grids_iq2_s, 1024, 2, iq2) == 0x123edd38a3b62b90);
    assert_true(digest(iq_grids_iq3_xxs, 256, 4, iq3_xxs) == 0xdfa5dc83d6a155d5);
    assert_true(digest(iq_grids_iq3_s, 512, 4, iq3_s) == 0xfa37020c25b44829);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_known_and_the_rest_is_not),
        cmocka_unit_test(a_row_is_its_blocks),
        cmocka_unit_test(f32_is_copied),
        cmocka_unit_test(nibbles_of_q4_lie_half_a_block_apart),
        cmocka_unit_test(mxfp4_reaches_both_ends_of_its_scales),
        cmocka_unit_test(stored_signs_are_always_even_in_number),
        cmocka_unit_test(codebooks_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
