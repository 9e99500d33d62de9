/* peak_check: the loops that measure the machine really multiply and sum what they count. */
#include "kernelcheck/check.h"

static const uint8_t ws[] = {0, 1, 7, 15};
static const int8_t xs[] = {-127, -1, 0, 1, 100, 127};

/* Against arithmetic. */
void peak_check_spec(struct check *check) {
    static const int64_t counts[] = {0, 1, 2, 3, 1000};
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
        for (size_t w = 0; w < sizeof ws; w++)
            for (size_t x = 0; x < sizeof xs; x++) {
                uint32_t want = (uint32_t)(counts[n] * PEAK_DOTS_MACS * ws[w] * xs[x]);
                uint32_t got = check->tested->peak_dots(counts[n], ws[w], xs[x]);
                ++*check->n_cases;
                if (got != want)
                    check_fail(check, "%lld iterations of %d * %d give %u, should be %u", (long long)counts[n], ws[w],
                               xs[x], got, want);
            }
}
