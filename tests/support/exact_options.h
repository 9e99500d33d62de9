/* exact_options: values for every EXACT option of options.inc, so that a suite can go through their combinations.
 *
 * The rows are read from options.inc: an EXACT option for which there is no toggle here fails the running test. */
#ifndef KVICK_TESTS_SUPPORT_EXACT_OPTIONS_H
#define KVICK_TESTS_SUPPORT_EXACT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct exact_options {
    int threads, chunk, block_tokens; /* chunk 0: the whole prompt */
    bool has_prefix_cache;
    int decode_threads; /* 0: as threads */
    bool is_unpinned;
};

/* Fails the running test unless every EXACT row has a toggle, and every toggle a row. */
void exact_options_check(void);

/* The largest number of values of one toggle: as many samples from 0 on have every value of every toggle. */
int exact_options_n_values(void);

/* Number of all combinations, and one of them. */
int exact_options_n_combinations(void);
struct exact_options exact_options_combination(int idx);

/* A sample: the first n_values go through every toggle's values, shifted by seed, later ones are random. */
struct exact_options exact_options_sample(uint64_t seed, int idx);

#endif
