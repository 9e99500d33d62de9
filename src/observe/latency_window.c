#include "observe/latency_window.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

#define SMALLEST_NS 50000.0
#define PER_OCTAVE 12.0
#define SECOND_NS INT64_C(1000000000)

static int bucket_of(int64_t value_ns) {
    if ((double)value_ns <= SMALLEST_NS) return 0;
    int bucket = (int)(log2((double)value_ns / SMALLEST_NS) * PER_OCTAVE);
    return bucket < LATENCY_WINDOW_BUCKETS ? bucket : LATENCY_WINDOW_BUCKETS - 1;
}

void latency_window_add(struct latency_window *window, int64_t now_ns, int64_t value_ns) {
    int64_t second = now_ns / SECOND_NS;
    struct latency_second *slot = &window->seconds[second % LATENCY_WINDOW_SECONDS];
    if (value_ns < 0) return;
    if (slot->second != second) {
        memset(slot, 0, sizeof *slot);
        slot->second = second;
    }
    slot->counts[bucket_of(value_ns)]++;
}

static uint64_t sum_up(const struct latency_window *window, int64_t last, int n_seconds, uint64_t *sums) {
    uint64_t n = 0;
    memset(sums, 0, LATENCY_WINDOW_BUCKETS * sizeof *sums);
    for (int i = 0; i < LATENCY_WINDOW_SECONDS; i++) {
        const struct latency_second *slot = &window->seconds[i];
        if (slot->second > last || slot->second <= last - n_seconds) continue;
        for (int b = 0; b < LATENCY_WINDOW_BUCKETS; b++) {
            sums[b] += slot->counts[b];
            n += slot->counts[b];
        }
    }
    return n;
}

/* The middle of the bucket that has the value of that rank (1 is the smallest). */
static double value_ms(const uint64_t *sums, uint64_t rank) {
    uint64_t before = 0;
    int b = 0;
    while (before + sums[b] < rank) before += sums[b++];
    return SMALLEST_NS * exp2((b + .5) / PER_OCTAVE) / 1e6;
}

uint64_t latency_window_read(const struct latency_window *window, int64_t now_ns, int n_seconds, const double *shares,
                             int n_shares, double *out_ms) {
    uint64_t sums[LATENCY_WINDOW_BUCKETS];
    REQUIRE(n_seconds >= 1 && n_seconds <= LATENCY_WINDOW_SECONDS && n_shares <= LATENCY_WINDOW_MAX_QUANTILES);
    uint64_t n = sum_up(window, now_ns / SECOND_NS, n_seconds, sums);
    for (int i = 0; i < n_shares; i++) {
        uint64_t rank = (uint64_t)ceil(shares[i] * (double)n);
        out_ms[i] = n ? value_ms(sums, rank ? rank : 1) : 0;
    }
    return n;
}
