#include "observe/live_history.h"

#define SECOND_NS INT64_C(1000000000)

const double live_history_shares[LIVE_HISTORY_N_QUANTILES] = {.5, .95, .99};

void live_history_init(struct live_history *history, int64_t now_ns) {
    *history = (struct live_history){.last_ns = now_ns};
}

void live_history_note_first(struct live_history *history, int64_t now_ns, int64_t ttft_ns) {
    history->n_output_tokens++;
    latency_window_add(&history->ttft, now_ns, ttft_ns);
}

void live_history_note_next(struct live_history *history, int64_t now_ns, int64_t gap_ns) {
    history->n_output_tokens++;
    latency_window_add(&history->itl, now_ns, gap_ns);
}

bool live_history_is_due(const struct live_history *history, int64_t now_ns) {
    return now_ns - history->last_ns >= SECOND_NS;
}

/* Prompts count as found when they are through, rows when they are computed. */
static void take_difference(struct live_sample *sample, const struct engine_stats *last, const struct engine_stats *now,
                            double seconds) {
    sample->n_computed = (double)(now->n_prefill_rows - last->n_prefill_rows) / seconds;
    sample->n_cached = (double)(now->n_cache_found - last->n_cache_found) / seconds;
    sample->n_asked = (double)(now->n_cache_asked - last->n_cache_asked);
    sample->n_found = (double)(now->n_cache_found - last->n_cache_found);
    sample->busy_share = (double)(now->steps_ns - last->steps_ns) / (seconds * 1e9);
}

void live_history_sample(struct live_history *history, int64_t now_ns, const struct engine_stats *stats,
                         int n_pending) {
    struct live_sample *sample = &history->samples[history->n_samples++ % LIVE_HISTORY_MAX];
    struct engine_class_stats all = engine_stats_all(stats);
    double seconds = (double)(now_ns - history->last_ns) / 1e9;
    double n_blocks = stats->n_groups && stats->groups[0].n_blocks ? stats->groups[0].n_blocks : 1;
    *sample = (struct live_sample){.at_ns = now_ns,
                                   .n_running = all.n_running,
                                   .n_waiting = all.n_waiting + n_pending,
                                   .held_share = stats->n_held_blocks / n_blocks,
                                   .reusable_share = stats->n_reusable_blocks / n_blocks,
                                   .n_output = (history->n_output_tokens - history->last_output_tokens) / seconds};
    sample->n_ttft = latency_window_read(&history->ttft, now_ns, LIVE_HISTORY_SPAN_S, live_history_shares,
                                         LIVE_HISTORY_N_QUANTILES, sample->ttft_ms);
    sample->n_itl = latency_window_read(&history->itl, now_ns, LIVE_HISTORY_SPAN_S, live_history_shares,
                                        LIVE_HISTORY_N_QUANTILES, sample->itl_ms);
    take_difference(sample, &history->last, stats, seconds);
    history->last_ns = now_ns;
    history->last = *stats;
    history->last_output_tokens = history->n_output_tokens;
}

const struct live_sample *live_history_at(const struct live_history *history, int64_t number) {
    if (number < 0 || number >= history->n_samples || history->n_samples - number > LIVE_HISTORY_MAX) return NULL;
    return &history->samples[number % LIVE_HISTORY_MAX];
}
