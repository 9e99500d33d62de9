#include "kernels/dtype.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- the table ---- */

static void names_and_numbers_lead_back(void **state) {
    (void)state;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        enum dtype back;
        assert_true(dtype_from_name(dtype_name(dtype), &back));
        assert_int_equal(back, dtype);
        assert_true(dtype_block_elements(dtype) > 0 && dtype_block_bytes(dtype) > 0);
    }
    int n_found = 0;
    for (uint32_t id = 0; id < 1000; id++) {
        enum dtype dtype;
        n_found += dtype_from_gguf(id, &dtype);
    }
    assert_int_equal(n_found, DTYPE_N); /* no number twice */
}

static void the_unknown_is_refused(void **state) {
    (void)state;
    static const uint32_t ids[] = {4, 5, 31, 32, 33, 36, 37, 38, 1000, UINT32_MAX}; /* 4.. 38: retired by the format */
    static const char *const names[] = {"", "q4_0", "Q4_0 ", "Q4", "Q4_2", "IQ4_NL_4_4"};
    enum dtype dtype;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) assert_false(dtype_from_gguf(ids[i], &dtype));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) assert_false(dtype_from_name(names[i], &dtype));
}

static void bytes_of_whole_blocks_only(void **state) {
    (void)state;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        uint64_t elements = (uint64_t)dtype_block_elements(dtype), block_bytes = (uint64_t)dtype_block_bytes(dtype);
        uint64_t n_bytes = 7;
        assert_int_equal(dtype_bytes(dtype, 0, &n_bytes), STATUS_OK);
        assert_int_equal(n_bytes, 0);
        assert_int_equal(dtype_bytes(dtype, 3 * elements, &n_bytes), STATUS_OK);
        assert_int_equal(n_bytes, 3 * block_bytes);
        if (elements == 1) continue;
        n_bytes = 7;
        assert_int_equal(dtype_bytes(dtype, 1, &n_bytes), STATUS_INVALID);
        assert_int_equal(dtype_bytes(dtype, elements - 1, &n_bytes), STATUS_INVALID);
        assert_int_equal(dtype_bytes(dtype, elements + 1, &n_bytes), STATUS_INVALID);
        assert_int_equal(dtype_bytes(dtype, UINT64_MAX, &n_bytes), STATUS_INVALID);
        assert_int_equal(n_bytes, 7);
    }
}

static void bytes_never_wrap(void **state) {
    (void)state;
    uint64_t n_bytes = 7;
    assert_int_equal(dtype_bytes(DTYPE_F32, UINT64_MAX / 4, &n_bytes), STATUS_OK);
    assert_true(n_bytes == UINT64_MAX / 4 * 4);
    n_bytes = 7;
    assert_int_equal(dtype_bytes(DTYPE_F32, UINT64_MAX / 4 + 1, &n_bytes), STATUS_LIMIT);
    assert_int_equal(dtype_bytes(DTYPE_F64, UINT64_MAX, &n_bytes), STATUS_LIMIT);
    assert_int_equal(dtype_bytes(DTYPE_F16, (uint64_t)1 << 63, &n_bytes), STATUS_LIMIT);
    assert_int_equal(dtype_bytes(DTYPE_Q8_0, UINT64_MAX - 31, &n_bytes), STATUS_LIMIT); /* 34 bytes for 32 elements */
    assert_int_equal(dtype_bytes(DTYPE_Q8_K, UINT64_MAX - 255, &n_bytes), STATUS_LIMIT);
    assert_int_equal(n_bytes, 7);
    assert_int_equal(dtype_bytes(DTYPE_Q4_0, UINT64_MAX - 31, &n_bytes), STATUS_OK);
    assert_true(n_bytes == (UINT64_MAX / 32) * 18);
}

/* ---- f16 ---- */

/* The definition of binary16, in double. */
static double f16_value(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static void every_f16_pattern_survives(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = dtype_f16_to_f32((uint16_t)bits);
        uint16_t back = dtype_f32_to_f16(value);
        if ((bits & 0x7fff) > 0x7c00) {
            assert_true(isnan(value) && (back & 0x7fff) > 0x7c00);
        } else if ((bits & 0x7fff) == 0x7c00) {
            assert_true(isinf(value));
            assert_int_equal(back, (bits & 0x8000) | 0x7bff);
        } else {
            assert_true((double)value == f16_value((uint16_t)bits));
            assert_int_equal(back, bits);
        }
    }
}

/* Round to nearest even in double, where the quotient is exact. */
static void check_f16(float value) {
    uint16_t got = dtype_f32_to_f16(value);
    double magnitude = fabs((double)value), wanted = 65504;
    if (magnitude < 65504) {
        int exponent = magnitude > 0 ? ilogb(magnitude) : -14;
        double ulp = ldexp(1, (exponent < -14 ? -14 : exponent) - 10);
        wanted = nearbyint(magnitude / ulp) * ulp;
    }
    if (signbit(value)) wanted = -wanted;
    if (f16_value(got) != wanted || !!signbit(value) != got >> 15)
        fail_msg("%a became %a, not %a", (double)value, f16_value(got), wanted);
}

static void f32_rounds_to_the_nearest_even_f16(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float low = dtype_f16_to_f32((uint16_t)bits), high = dtype_f16_to_f32((uint16_t)(bits + 1));
        uint32_t half = bits_of((low + high) / 2); /* exact in f32 */
        for (uint32_t sign = 0; sign <= 1; sign++) {
            for (uint32_t off = 0; off <= 2; off++) {
                check_f16(float_of((half + off - 1) | sign << 31));
                if (bits) check_f16(float_of((bits_of(low) + off - 1) | sign << 31));
            }
        }
    }
    uint32_t pattern = 1;
    for (int i = 0; i < 2000000; i++) {
        pattern = pattern * 1664525u + 1013904223u; /* visits each pattern at most once */
        if (!isnan(float_of(pattern))) check_f16(float_of(pattern));
    }
}

static void f16_saturates(void **state) {
    (void)state;
    static const float large[] = {65504.0f, 65504.004f, 65519.996f, 65520.0f, 65536.0f, 1e30f, 3.4028235e38f, INFINITY};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        assert_int_equal(dtype_f32_to_f16(large[i]), 0x7bff);
        assert_int_equal(dtype_f32_to_f16(-large[i]), 0xfbff);
    }
    assert_int_equal(dtype_f32_to_f16(65488.0f), 0x7bfe); /* halfway between 65472 and 65504, to the even one */
    assert_int_equal(dtype_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(dtype_f32_to_f16(0x1p-25f), 0);          /* halfway to the smallest */
    assert_int_equal(dtype_f32_to_f16(0x1.8p-24f), 2);        /* halfway between 1 and 2 smallest */
    assert_int_equal(dtype_f32_to_f16(0x1.ffffp-15f), 0x400); /* the largest subnormals round into the normals */
}

/* ---- bf16 ---- */

static void every_bf16_pattern_survives(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = dtype_bf16_to_f32((uint16_t)bits);
        assert_int_equal(bits_of(value), bits << 16);
        uint16_t back = dtype_f32_to_bf16(value);
        if (isnan(value))
            assert_int_equal(back, bits | 0x40); /* quiet */
        else
            assert_int_equal(back, bits);
    }
    assert_true(isnan(dtype_bf16_to_f32(dtype_f32_to_bf16(float_of(0x7f800001))))); /* payload in the cut bits only */
    assert_true(isnan(dtype_bf16_to_f32(dtype_f32_to_bf16(float_of(0xffffffff)))));
}

static double bf16_magnitude(uint32_t bits) {
    return (bits & 0x7fff) == 0x7f80 ? 0x1p128 : fabs((double)float_of(bits << 16));
}

static void check_bf16(uint32_t pattern) {
    uint32_t low = pattern >> 16, high = low + 1, wanted;
    double value = fabs((double)float_of(pattern));
    double below = value - bf16_magnitude(low), above = bf16_magnitude(high) - value;
    if (below == above)
        wanted = low & 1 ? high : low;
    else
        wanted = below < above ? low : high;
    if (dtype_f32_to_bf16(float_of(pattern)) != wanted)
        fail_msg("%08x became %04x, not %04x", pattern, dtype_f32_to_bf16(float_of(pattern)), wanted);
}

static void f32_rounds_to_the_nearest_even_bf16(void **state) {
    (void)state;
    static const uint32_t tails[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        if ((bits & 0x7fff) >= 0x7f80) continue;
        for (size_t t = 0; t < sizeof tails / sizeof tails[0]; t++) check_bf16(bits << 16 | tails[t]);
    }
    assert_int_equal(dtype_f32_to_bf16(-INFINITY), 0xff80);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_numbers_lead_back),
        cmocka_unit_test(the_unknown_is_refused),
        cmocka_unit_test(bytes_of_whole_blocks_only),
        cmocka_unit_test(bytes_never_wrap),
        cmocka_unit_test(every_f16_pattern_survives),
        cmocka_unit_test(f32_rounds_to_the_nearest_even_f16),
        cmocka_unit_test(f16_saturates),
        cmocka_unit_test(every_bf16_pattern_survives),
        cmocka_unit_test(f32_rounds_to_the_nearest_even_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
