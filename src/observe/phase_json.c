#include "observe/phase_json.h"

#include <stdio.h>

void phase_json_write_since(struct json_write *json, const char *key, const struct phase_stats *stats, int64_t at_ns) {
    if (at_ns)
        json_write_field_real(json, key, phase_stats_ms(stats->received_ns, at_ns));
    else
        json_write_field_null(json, key);
}

void phase_json_write(struct json_write *json, const struct phase_stats *stats) {
    for (int i = 0; i < N_PHASES; i++) {
        char key[40];
        snprintf(key, sizeof key, "%s_ms", phase_stats_name((enum phase)i));
        json_write_field_real(json, key, (double)stats->part_ns[i] / 1e6);
    }
    json_write_field_real(json, "unaccounted_ms", (double)phase_stats_unaccounted_ns(stats) / 1e6);
    json_write_field_real(json, "total_ms", phase_stats_ms(stats->received_ns, stats->finished_ns));
    phase_json_write_since(json, "ttft_ms", stats, stats->first_token_ns);
}
