#include "kernels/quantize.h"

#include <math.h>
#include <string.h>

#include "kernels/dequantize.h"
#include "support/test.h"

#define N_ROW 96 /* three blocks */

/* Roughly normal: the sum of four uniform values in [-1, 1). */
static float next_value(uint32_t *seed) {
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        sum += (float)(*seed >> 8) * 0x1p-23f - 1;
    }
    return sum;
}

static void fill_row(float row[N_ROW], int round, uint32_t *seed) {
    float scale = ldexpf(1, round % 30 - 18), shift = round % 7 == 0 ? 5 * scale : 0;
    for (int i = 0; i < N_ROW; i++) row[i] = next_value(seed) * scale + shift;
    if (round % 5 == 0) row[40] = -(row[41] = 9 * scale); /* two opposite extremes in one block */
}

/* The most that a value may be off, in double: half a step of the scale before rounding, and what the rounding of the
 * stored fields to f16 adds. The last term covers the roundings of the float arithmetic. */
static double allowed(enum dtype dtype, const float *block, float value) {
    double magnitude = 0, largest = 0, min = INFINITY, max = -INFINITY;
    for (int i = 0; i < 32; i++) {
        if (fabs((double)block[i]) > magnitude) magnitude = fabs(largest = (double)block[i]);
        min = fmin(min, (double)block[i]);
        max = fmax(max, (double)block[i]);
    }
    double slack = 1e-6 * magnitude, f16_ulp = 0x1p-11, f16_smallest = 0x1p-25;
    if (dtype == DTYPE_Q8_0) {
        double d = magnitude / 127;
        return 0.5 * d + 127 * (d * f16_ulp + f16_smallest) + slack;
    }
    if (dtype == DTYPE_Q4_1) {
        double d = (max - min) / 15;
        return 0.5 * d + 15 * (d * f16_ulp + f16_smallest) + fabs(min) * f16_ulp + f16_smallest + slack;
    }
    double d = largest / -8, beyond = d != 0 ? (double)value / d - 7 : 0; /* Q4_0 has no code for more than 7 steps */
    return fmax(0.5, beyond) * fabs(d) + 8 * (fabs(d) * f16_ulp + f16_smallest) + slack;
}

static void values_come_back_within_half_a_step(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
    uint32_t seed = 3;
    for (int round = 0; round < 6000; round++) {
        enum dtype dtype = dtypes[round % 3];
        float row[N_ROW], back[N_ROW];
        uint8_t blocks[N_ROW * 2];
        fill_row(row, round, &seed);
        quantize_row(dtype, row, blocks, N_ROW);
        dequantize_row(dtype, blocks, back, N_ROW);
        for (int i = 0; i < N_ROW; i++) {
            double off = fabs((double)back[i] - (double)row[i]), bound = allowed(dtype, row + i / 32 * 32, row[i]);
            if (off > bound)
                fail_msg("%s, round %d: %a came back as %a, off by %g > %g", dtype_name(dtype), round, (double)row[i],
                         (double)back[i], off, bound);
        }
    }
}

/* What a block can hold it holds: the second time nothing is lost. */
static void quantizing_twice_changes_nothing(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    uint32_t seed = 4;
    for (int round = 0; round < 2000; round++) {
        enum dtype dtype = dtypes[round % 5];
        float row[N_ROW], once[N_ROW], twice[N_ROW];
        uint8_t blocks[N_ROW * 4];
        fill_row(row, round, &seed);
        for (int i = 0; i < N_ROW; i++) row[i] = row[i] * 1024; /* away from subnormal scales, which have few bits */
        quantize_row(dtype, row, blocks, N_ROW);
        dequantize_row(dtype, blocks, once, N_ROW);
        quantize_row(dtype, once, blocks, N_ROW);
        dequantize_row(dtype, blocks, twice, N_ROW);
        assert_memory_equal(once, twice, sizeof once);
        if (dtype == DTYPE_F32) assert_memory_equal(once, row, sizeof once);
    }
}

static void a_row_is_its_blocks(void **state) {
    (void)state;
    uint32_t seed = 5;
    float row[N_ROW];
    fill_row(row, 20, &seed);
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        if (!quantize_is_known(dtype) || dtype == DTYPE_Q6_K) continue; /* whose block is longer than the row */
        assert_true(dequantize_is_known(dtype));
        uint8_t whole[2 + N_ROW * 4], alone[32 * 4];
        uint64_t n_bytes, part_bytes;
        assert_int_equal(dtype_bytes(dtype, N_ROW, &n_bytes), STATUS_OK);
        assert_int_equal(dtype_bytes(dtype, 32, &part_bytes), STATUS_OK);
        memset(whole, 0xa5, sizeof whole);
        quantize_row(dtype, row, whole + 1, 0);
        assert_int_equal(whole[1], 0xa5);
        quantize_row(dtype, row, whole + 1, N_ROW);
        assert_true(whole[0] == 0xa5 && whole[n_bytes + 1] == 0xa5);
        for (size_t part = 0; part < 3; part++) {
            quantize_row(dtype, row + 32 * part, alone, 32);
            assert_memory_equal(alone, whole + 1 + part * part_bytes, part_bytes);
        }
    }
}

/* By hand: a scale of 1 makes the codes of halves visible. */
static void halves_round_as_the_format_says(void **state) {
    (void)state;
    float row[32] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49999997f};
    uint8_t block[34];
    quantize_row(DTYPE_Q8_0, row, block, 32);
    static const uint8_t q8_0[9] = {0x00, 0x3c, 127, 1, 2, 3, 0xff, 0xfe, 0}; /* away from zero */
    assert_memory_equal(block, q8_0, sizeof q8_0);
    row[0] = -8;
    quantize_row(DTYPE_Q4_0, row, block, 32);
    static const int q4_0[6] = {0, 9, 10, 11, 8, 7}; /* up */
    for (int i = 0; i < 6; i++) assert_int_equal(block[2 + i] & 15, q4_0[i]);
    row[0] = 8; /* the greatest magnitude gets code 0, and the scale the other sign */
    quantize_row(DTYPE_Q4_0, row, block, 32);
    assert_int_equal(block[1], 0xbc);
    assert_int_equal(block[2] & 15, 0);
}

static void zeros_stay_zeros(void **state) {
    (void)state;
    static const float zeros[N_ROW];
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        if (!quantize_is_known(dtype) || dtype == DTYPE_Q6_K) continue;
        uint8_t blocks[N_ROW * 4];
        float back[N_ROW];
        memset(blocks, 0xa5, sizeof blocks);
        quantize_row(dtype, zeros, blocks, N_ROW);
        dequantize_row(dtype, blocks, back, N_ROW);
        for (int i = 0; i < N_ROW; i++) assert_true(back[i] == 0);
    }
}

/* No undefined conversion (the sanitizers look on), and block types never store a scale that is not finite. */
static void wild_input_gives_finite_blocks(void **state) {
    (void)state;
    static const float wild[] = {NAN,    INFINITY, -INFINITY,      3.4028235e38f, -3.4028235e38f,
                                 1e-45f, -1e-45f,  1.1754944e-38f, 65504,         -0.0f};
    static const enum dtype dtypes[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
    enum { N_WILD = sizeof wild / sizeof wild[0] };
    for (int pair = 0; pair < N_WILD * N_WILD; pair++) {
        for (int t = 0; t < 3; t++) {
            float row[32], back[32];
            uint8_t blocks[34];
            for (int i = 0; i < 32; i++) row[i] = wild[i % 3 ? pair % N_WILD : pair / N_WILD];
            quantize_row(dtypes[t], row, blocks, 32);
            dequantize_row(dtypes[t], blocks, back, 32);
            for (int i = 0; i < 32; i++) assert_true(isfinite(back[i]));
        }
    }
}

static void the_odd_value_gets_the_promised_code(void **state) {
    (void)state;
    float row[32] = {NAN, 1, NAN, -1}, back[32];
    uint8_t block[34];
    quantize_row(DTYPE_Q8_0, row, block, 32);
    dequantize_row(DTYPE_Q8_0, block, back, 32);
    assert_true(back[0] == 0 && back[2] == 0 && back[1] > 0.99f && back[3] < -0.99f);
    quantize_row(DTYPE_Q4_0, row, block, 32);
    dequantize_row(DTYPE_Q4_0, block, back, 32);
    assert_true(back[0] == 0 && back[2] == 0 && back[3] == -0.875f && back[1] == 1);
    quantize_row(DTYPE_Q4_1, row, block, 32);
    dequantize_row(DTYPE_Q4_1, block, back, 32);
    assert_true(back[0] == -1 && back[2] == -1 && back[3] == -1);
    for (int i = 0; i < 32; i++) row[i] = 1.1754944e-38f; /* its inverse scale is infinite */
    quantize_row(DTYPE_Q8_0, row, block, 32);
    assert_int_equal(block[33], 127);
}

#define N_Q6_K 512 /* two blocks */

/* Half a step of the part's rounded scale, where no value is cut; a scale is off by half of 1/128 of the largest one,
 * which moves a value by at most 32 such halves, and a cut one by a step more. */
static void q6_k_comes_back_within_its_steps(void **state) {
    (void)state;
    uint32_t seed = 6;
    for (int round = 0; round < 400; round++) {
        float row[N_Q6_K + 96], back[N_Q6_K];
        uint8_t blocks[2 * 210 + 1];
        for (int at = 0; at < N_Q6_K; at += N_ROW) fill_row(row + at, round + at, &seed);
        blocks[420] = 0xa5;
        quantize_row(DTYPE_Q6_K, row, blocks, N_Q6_K);
        assert_int_equal(blocks[420], 0xa5);
        dequantize_row(DTYPE_Q6_K, blocks, back, N_Q6_K);
        for (int b = 0; b < N_Q6_K; b += 256) {
            double largest = 0;
            for (int i = b; i < b + 256; i++) largest = fmax(largest, fabs((double)row[i]));
            for (int i = b; i < b + 256; i++) {
                double part = 0;
                for (int j = i / 16 * 16; j < i / 16 * 16 + 16; j++) part = fmax(part, fabs((double)row[j]));
                double unit = largest / 32 / 128, off = fabs((double)back[i] - (double)row[i]);
                double bound = 1.5 * (part / 32 + unit) + 16 * unit + 128 * 32 * (unit * 0x1p-11 + 0x1p-25);
                if (off > bound) fail_msg("round %d: value %d is off by %g > %g", round, i, off, bound);
            }
        }
    }
}

/* Equal and opposite scales, a ramp of codes: by hand. */
static void q6_k_is_laid_out_as_the_format_says(void **state) {
    (void)state;
    float row[256] = {0};
    uint8_t block[210];
    row[0] = -32 * 128; /* part 0: d -1, scale -128, code -32 */
    row[1] = 128;
    row[255] = 32; /* part 15: scale 1, code -32 */
    row[254] = -5;
    quantize_row(DTYPE_Q6_K, row, block, 256);
    float back[256];
    dequantize_row(DTYPE_Q6_K, block, back, 256);
    for (int i = 0; i < 256; i++) assert_true(back[i] == row[i]);
    assert_int_equal((int8_t)block[192], -128);
    assert_int_equal(fabs((double)dtype_f16_to_f32((uint16_t)(block[208] | block[209] << 8))), 1);
}

static void q6_k_takes_wild_values(void **state) {
    (void)state;
    static const float wild[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f, 65504, 0, -0.0f};
    for (int pair = 0; pair < 81; pair++) {
        float row[256], back[256];
        uint8_t block[210];
        for (int i = 0; i < 256; i++) row[i] = wild[i % 3 ? pair % 9 : pair / 9];
        quantize_row(DTYPE_Q6_K, row, block, 256);
        dequantize_row(DTYPE_Q6_K, block, back, 256);
        for (int i = 0; i < 256; i++) assert_true(isfinite(back[i]));
        if (pair % 9 >= 7 && pair / 9 >= 7)
            for (int i = 0; i < 256; i++) assert_true(back[i] == 0);
    }
}

static void only_simple_formats_are_written(void **state) {
    (void)state;
    int n_known = 0;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) n_known += quantize_is_known(dtype);
    assert_int_equal(n_known, 7);
    assert_false(quantize_is_known(DTYPE_Q4_K));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back_within_half_a_step),
        cmocka_unit_test(quantizing_twice_changes_nothing),
        cmocka_unit_test(a_row_is_its_blocks),
        cmocka_unit_test(halves_round_as_the_format_says),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(wild_input_gives_finite_blocks),
        cmocka_unit_test(the_odd_value_gets_the_promised_code),
        cmocka_unit_test(q6_k_comes_back_within_its_steps),
        cmocka_unit_test(q6_k_is_laid_out_as_the_format_says),
        cmocka_unit_test(q6_k_takes_wild_values),
        cmocka_unit_test(only_simple_formats_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
