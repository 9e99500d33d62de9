#include "base/rng.h"

#define MULTIPLIER_0 0xd2511f53u
#define MULTIPLIER_1 0xcd9e8d57u
#define WEYL_0 0x9e3779b9u
#define WEYL_1 0xbb67ae85u
#define N_ROUNDS 10

void rng_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < N_ROUNDS; i++, k0 += WEYL_0, k1 += WEYL_1) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0, p1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double rng_uniform(uint64_t seed, uint32_t choice, uint32_t position) {
    uint32_t counter[4] = {position, choice, 0, 0}, out[4];
    rng_philox(seed, counter, out);
    uint64_t bits = (uint64_t)out[1] << 32 | out[0];
    return (double)(bits >> 11) * 0x1p-53;
}
