#include "support/exact_options.h"

#include <string.h>

#include "base/options.h"
#include "base/rng.h"
#include "support/test.h"

static const int threads[] = {1, 2, 3, 4}, chunks[] = {1, 7, 16, 33, 64, 0}, block_tokens[] = {16, 64, 32};

static void set_threads(struct exact_options *options, int i) {
    options->threads = threads[i];
}

static void set_chunk(struct exact_options *options, int i) {
    options->chunk = chunks[i];
}

static void set_block_tokens(struct exact_options *options, int i) {
    options->block_tokens = block_tokens[i];
}

static void set_no_prefix_cache(struct exact_options *options, int i) {
    options->has_prefix_cache = i == 0;
}

static void set_threads_decode(struct exact_options *options, int i) {
    options->decode_threads = i;
}

static void set_no_pin(struct exact_options *options, int i) {
    options->is_unpinned = i == 1;
}

static const struct toggle {
    const char *name; /* of the option */
    int n_values;
    void (*set)(struct exact_options *options, int value_idx);
} toggles[] = {{"threads", 4, set_threads},
               {"chunk", 6, set_chunk},
               {"block-tokens", 3, set_block_tokens},
               {"no-prefix-cache", 2, set_no_prefix_cache},
               {"threads-decode", 2, set_threads_decode},
               {"no-pin", 2, set_no_pin}};

#define N_TOGGLES ((int)(sizeof toggles / sizeof toggles[0]))

void exact_options_check(void) {
    int n_found = 0;
    for (int i = 0; i < options_n_rows(); i++) {
        struct option_row row = options_row(i);
        if (row.class_ != EXACT) continue;
        int t = 0;
        while (t < N_TOGGLES && strcmp(toggles[t].name, row.name) != 0) t++;
        if (t == N_TOGGLES) fail_msg("option --%s is EXACT, but the equiv suite does not toggle it", row.name);
        n_found++;
    }
    assert_int_equal(n_found, N_TOGGLES);
}

int exact_options_n_values(void) {
    int n = 0;
    for (int t = 0; t < N_TOGGLES; t++)
        if (toggles[t].n_values > n) n = toggles[t].n_values;
    return n;
}

int exact_options_n_combinations(void) {
    int n = 1;
    for (int t = 0; t < N_TOGGLES; t++) n *= toggles[t].n_values;
    return n;
}

struct exact_options exact_options_combination(int idx) {
    struct exact_options options = {0};
    for (int t = 0; t < N_TOGGLES; t++) {
        toggles[t].set(&options, idx % toggles[t].n_values);
        idx /= toggles[t].n_values;
    }
    return options;
}

struct exact_options exact_options_sample(uint64_t seed, int idx) {
    struct exact_options options = {0};
    uint32_t counter[4] = {(uint32_t)idx, 0, 0, 0}, random[4], shift[4];
    uint32_t no_counter[4] = {UINT32_MAX, 0, 0, 0};
    rng_philox(seed, counter, random);
    rng_philox(seed, no_counter, shift);
    for (int t = 0; t < N_TOGGLES; t++) {
        uint32_t n = (uint32_t)toggles[t].n_values;
        uint32_t value = idx < exact_options_n_values() ? (uint32_t)idx + shift[t & 3] : random[t & 3];
        toggles[t].set(&options, (int)(value % n));
    }
    return options;
}
