/* live_history: how a server did, second by second, for the last quarter of an hour: what the dashboard draws.
 *
 * Thread: io.   Memory: a plain value of fixed size. */
#ifndef KVICK_OBSERVE_LIVE_HISTORY_H
#define KVICK_OBSERVE_LIVE_HISTORY_H

#include <stdbool.h>

#include "engine/engine_stats.h"
#include "observe/latency_window.h"

#define LIVE_HISTORY_MAX 900
#define LIVE_HISTORY_SPAN_S 10 /* that a sample's quantiles are of */
#define LIVE_HISTORY_N_QUANTILES 3

extern const double live_history_shares[LIVE_HISTORY_N_QUANTILES]; /* p50, p95, p99 */

/* A second. Sums are of it alone. */
struct live_sample {
    int64_t at_ns;                                                              /* its end */
    double ttft_ms[LIVE_HISTORY_N_QUANTILES], itl_ms[LIVE_HISTORY_N_QUANTILES]; /* of LIVE_HISTORY_SPAN_S */
    uint64_t n_ttft, n_itl;                                                     /* values behind them; 0: none */
    int n_running, n_waiting;
    double held_share, reusable_share; /* of the first group's blocks */
    double n_computed, n_cached, n_output;
    double n_asked, n_found; /* prompt tokens that might have been cached, and of them those that were */
    double busy_share;       /* of the second, steps */
};

struct live_history {
    struct latency_window ttft, itl;
    double n_output_tokens; /* ever */
    struct live_sample samples[LIVE_HISTORY_MAX];
    int64_t n_samples; /* ever; sample i, from 0, is at i % LIVE_HISTORY_MAX */
    /* As of the last sample. */
    int64_t last_ns;
    struct engine_stats last;
    double last_output_tokens;
};

void live_history_init(struct live_history *history, int64_t now_ns);

/* A token came: the first one of its request ttft_ns (-1: of another choice) after the request did, a later one gap_ns
 * after the one before it in the same answer. */
void live_history_note_first(struct live_history *history, int64_t now_ns, int64_t ttft_ns);
void live_history_note_next(struct live_history *history, int64_t now_ns, int64_t gap_ns);

/* Whether a second has passed since the last sample, and the next one. n_pending: requests not admitted yet. */
bool live_history_is_due(const struct live_history *history, int64_t now_ns);
void live_history_sample(struct live_history *history, int64_t now_ns, const struct engine_stats *stats, int n_pending);

/* NULL: it has not been yet, or is forgotten. number: from 0. */
const struct live_sample *live_history_at(const struct live_history *history, int64_t number);

#endif
