#include "base/rng.h"

#include <string.h>

#include "support/test.h"

/* Source: the known answers that come with Random123. */
static void philox_gives_the_published_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t key;
        uint32_t counter[4], out[4];
    } known[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, /* the digits of pi: tells the words of key and counter apart */
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        rng_philox(known[i].key, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void philox_may_write_over_its_counter(void **state) {
    (void)state;
    uint32_t counter[4] = {1, 2, 3, 4}, out[4];
    rng_philox(5, counter, out);
    rng_philox(5, counter, counter);
    assert_memory_equal(counter, out, sizeof out);
}

static void uniform_is_the_published_stream(void **state) {
    (void)state;
    /* Position and choice are the first two counter words, the first two output words the 53 bits. */
    uint32_t counter[4] = {123, 7, 0, 0}, out[4];
    rng_philox(0x123456789abcdef0, counter, out);
    double expected = (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) / 9007199254740992.0;
    assert_true(rng_uniform(0x123456789abcdef0, 7, 123) == expected);
}

static void uniform_stays_in_its_interval_and_fills_it(void **state) {
    (void)state;
    enum { N = 200000, N_BINS = 100 };
    int bins[N_BINS] = {0};
    double sum = 0;
    for (uint32_t i = 0; i < N; i++) {
        double u = rng_uniform(42, i % 3, i);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * N_BINS)]++;
        sum += u;
    }
    double chi2 = 0;
    for (int i = 0; i < N_BINS; i++) {
        double off = bins[i] - (double)N / N_BINS;
        chi2 += off * off / ((double)N / N_BINS);
    }
    print_message("mean %.5f, chi-square %.1f for 99 degrees of freedom\n", sum / N, chi2);
    assert_true(sum / N > 0.497 && sum / N < 0.503);
    assert_true(chi2 > 45 && chi2 < 170); /* 1e-5 on each side */
}

static void each_argument_changes_the_number(void **state) {
    (void)state;
    double base = rng_uniform(1, 2, 3);
    assert_true(rng_uniform(1, 2, 3) == base);
    assert_true(rng_uniform(2, 2, 3) != base);
    assert_true(rng_uniform(1 + ((uint64_t)1 << 32), 2, 3) != base);
    assert_true(rng_uniform(1, 3, 3) != base);
    assert_true(rng_uniform(1, 2, 4) != base);
    assert_true(rng_uniform(1, 3, 2) != base);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(philox_may_write_over_its_counter),
        cmocka_unit_test(uniform_is_the_published_stream),
        cmocka_unit_test(uniform_stays_in_its_interval_and_fills_it),
        cmocka_unit_test(each_argument_changes_the_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
