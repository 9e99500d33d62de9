#include "engine/phase_stats.h"

#include "base/status.h"

const char *phase_stats_name(enum phase phase) {
    static const char *const names[] = {
#define XX(name, text) text,
        PHASE_MAP(XX)
#undef XX
    };
    REQUIRE((unsigned)phase < N_PHASES);
    return names[phase];
}

void phase_stats_add(struct phase_stats *stats, enum phase phase, int64_t from_ns, int64_t to_ns) {
    REQUIRE((unsigned)phase < N_PHASES && to_ns >= from_ns);
    stats->part_ns[phase] += to_ns - from_ns;
}

void phase_stats_switch(struct phase_stats *stats, enum phase phase, int64_t now_ns) {
    if (stats->open == phase) return;
    if (now_ns < stats->open_ns) now_ns = stats->open_ns;
    phase_stats_add(stats, stats->open, stats->open_ns, now_ns);
    stats->open = phase;
    stats->open_ns = now_ns;
}

void phase_stats_finish(struct phase_stats *stats, int64_t now_ns) {
    phase_stats_add(stats, stats->open, stats->open_ns, now_ns);
    stats->open_ns = stats->finished_ns = now_ns;
}

int64_t phase_stats_unaccounted_ns(const struct phase_stats *stats) {
    int64_t left_ns = stats->finished_ns - (stats->received_ns ? stats->received_ns : stats->submitted_ns);
    for (int i = 0; i < N_PHASES; i++) left_ns -= stats->part_ns[i];
    return left_ns;
}
