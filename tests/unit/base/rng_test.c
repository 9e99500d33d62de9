#include "base/rng.h"

#include "support/test.h"

/* Known answers of the Random123 distribution, philox4x32 with 10 rounds. */
static void philox_gives_the_known_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t key;
        uint32_t counter[4], out[4];
    } known[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        rng_philox(known[i].key, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void uniform_is_a_function_of_all_three(void **state) {
    (void)state;
    double one = rng_uniform(42, 0, 7);
    assert_true(one == rng_uniform(42, 0, 7));
    assert_true(one != rng_uniform(43, 0, 7));
    assert_true(one != rng_uniform(42 + ((uint64_t)1 << 32), 0, 7));
    assert_true(one != rng_uniform(42, 1, 7));
    assert_true(one != rng_uniform(42, 0, 8));
    assert_true(rng_uniform(42, 1, 2) != rng_uniform(42, 2, 1));
}

static void uniform_is_even_and_within_its_range(void **state) {
    (void)state;
    enum { N = 100000, N_BINS = 50 };
    int bins[N_BINS] = {0};
    for (uint32_t i = 0; i < N; i++) {
        double value = rng_uniform(1, 0, i);
        assert_true(value >= 0 && value < 1);
        bins[(int)(value * N_BINS)]++;
    }
    double chi_square = 0, expected = (double)N / N_BINS;
    for (int i = 0; i < N_BINS; i++) chi_square += (bins[i] - expected) * (bins[i] - expected) / expected;
    assert_true(chi_square > 20 && chi_square < 90); /* 49 degrees of freedom: 1e-4 on either side */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(uniform_is_a_function_of_all_three),
        cmocka_unit_test(uniform_is_even_and_within_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
