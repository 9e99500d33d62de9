/* rng: random numbers that are a function of a key and a counter, without a state.
 *
 * Philox 4x32-10.   Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; known answers from the
 * Random123 distribution.   Thread: any. */
#ifndef KVICK_BASE_RNG_H
#define KVICK_BASE_RNG_H

#include <stdint.h>

void rng_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]);

/* In [0, 1), 53 bits, for (seed, choice, position). */
double rng_uniform(uint64_t seed, uint32_t choice, uint32_t position);

#endif
