#include "observe/engine_metrics.h"

#include <stdio.h>

#include "observe/metric_table.h"

static double seconds(int64_t ns) {
    return (double)ns / 1e9;
}

/* A family with one sample for rows of prompts and one for those of answers. */
static void write_phases(struct prom_text *text, enum metric metric, double prefill, double decode) {
    metric_table_begin(text, metric);
    prom_text_sample(text, "phase", "prefill", prefill);
    prom_text_sample(text, "phase", "decode", decode);
}

/* ---- requests ---- */

static void write_requests(struct prom_text *text, const struct engine_stats *stats, int n_preparing) {
    metric_table_begin(text, METRIC_RUNNING);
    for (int c = 0; c < REQUEST_N_CLASSES; c++)
        prom_text_sample(text, "class", message_class_name((enum request_class)c), stats->classes[c].n_running);
    metric_table_begin(text, METRIC_WAITING);
    for (int c = 0; c < REQUEST_N_CLASSES; c++)
        prom_text_sample(text, "class", message_class_name((enum request_class)c), stats->classes[c].n_waiting);
    metric_table_value(text, METRIC_PREPARING, n_preparing);
    metric_table_value(text, METRIC_ADMITTED, (double)stats->n_admitted);
    metric_table_begin(text, METRIC_REFUSED);
    prom_text_sample(text, "reason", "invalid", (double)stats->n_refused_by[ADMISSION_ADMITTED]);
    for (int r = ADMISSION_ADMITTED + 1; r < ADMISSION_N_REASONS; r++)
        prom_text_sample(text, "reason", admission_reason_name((enum admission_reason)r),
                         (double)stats->n_refused_by[r]);
    metric_table_value(text, METRIC_PREEMPTIONS, (double)stats->n_preempted);
}

static void write_promises(struct prom_text *text, const struct engine_stats *stats) {
    const struct {
        enum metric metric;
        int64_t sum_ns[REQUEST_N_CLASSES];
    } sums[] = {{METRIC_PREDICTED, {stats->promises[0].predicted_ns, stats->promises[1].predicted_ns}},
                {METRIC_MEASURED, {stats->promises[0].measured_ns, stats->promises[1].measured_ns}}};
    metric_table_begin(text, METRIC_PREDICTIONS);
    for (int c = 0; c < REQUEST_N_CLASSES; c++) {
        const struct engine_promise_stats *promises = &stats->promises[c];
        prom_text_labels(text, (const char *const[]){"class", message_class_name((enum request_class)c), NULL});
        prom_text_sample(text, "kept", "true", (double)(promises->n - promises->n_late));
        prom_text_sample(text, "kept", "false", (double)promises->n_late);
    }
    for (int i = 0; i < 2; i++) {
        metric_table_begin(text, sums[i].metric);
        for (int c = 0; c < REQUEST_N_CLASSES; c++)
            prom_text_sample(text, "class", message_class_name((enum request_class)c), seconds(sums[i].sum_ns[c]));
    }
}

/* ---- steps ---- */

static void write_steps(struct prom_text *text, const struct engine_stats *stats) {
    static const char *const kinds[ENGINE_STEP_N_KINDS] = {"decode", "prefill", "mixed"};
    metric_table_value(text, METRIC_STEPS, (double)stats->n_steps);
    metric_table_value(text, METRIC_STEPS_ABANDONED, (double)stats->n_abandoned_steps);
    metric_table_begin(text, METRIC_STEP);
    for (int k = 0; k < ENGINE_STEP_N_KINDS; k++) {
        prom_text_labels(text, (const char *const[]){"kind", kinds[k], NULL});
        prom_text_histogram(text, &stats->step_seconds[k]);
    }
    write_phases(text, METRIC_ROWS, (double)stats->n_prefill_rows, (double)(stats->n_rows - stats->n_prefill_rows));
    write_phases(text, METRIC_BUSY, seconds(stats->prefill.busy_ns), seconds(stats->decode.busy_ns));
    write_phases(text, METRIC_FLOPS, stats->prefill.work.flops, stats->decode.work.flops);
    write_phases(text, METRIC_READ_BYTES, stats->prefill.work.bytes_read, stats->decode.work.bytes_read);
    metric_table_value(text, METRIC_KV_WRITTEN,
                       stats->prefill.work.kv_bytes_written + stats->decode.work.kv_bytes_written);
    if (stats->int8_peak_ops > 0) metric_table_value(text, METRIC_INT8_PEAK, stats->int8_peak_ops);
}

/* ---- tokens and prefixes ---- */

static void write_tokens(struct prom_text *text, const struct engine_stats *stats) {
    metric_table_begin(text, METRIC_PROMPT_TOKENS);
    prom_text_sample(text, "source", "computed", (double)(stats->n_prompt_tokens - stats->n_cache_found));
    prom_text_sample(text, "source", "cached", (double)stats->n_cache_found);
    metric_table_value(text, METRIC_OUTPUT_TOKENS, (double)stats->n_new_tokens);
}

static void write_prefixes(struct prom_text *text, const struct engine_stats *stats) {
    static const char *const reasons[ENGINE_STATS_N_MISSES] = {NULL, "new", "edited", "evicted", "stale"};
    int64_t n_lookups = 0;
    for (int i = 0; i < ENGINE_STATS_N_MISSES; i++) n_lookups += stats->n_misses[i];
    metric_table_value(text, METRIC_PREFIX_QUERIED, (double)stats->n_cache_asked);
    metric_table_value(text, METRIC_PREFIX_HIT, (double)stats->n_cache_found);
    metric_table_value(text, METRIC_PREFIX_SAVED, seconds(stats->cache_saved_ns));
    metric_table_value(text, METRIC_PREFIX_LOOKUPS, (double)n_lookups);
    metric_table_begin(text, METRIC_PREFIX_MISSES);
    for (int i = PREFIX_MISS_NEW; i < ENGINE_STATS_N_MISSES; i++)
        prom_text_sample(text, "reason", reasons[i], (double)stats->n_misses[i]);
}

/* ---- KV ---- */

static void set_group(struct prom_text *text, const struct engine_stats *stats, int group) {
    char number[16], window[16];
    snprintf(number, sizeof number, "%d", group);
    snprintf(window, sizeof window, "%d", stats->groups[group].window);
    prom_text_labels(text, (const char *const[]){"group", number, "window", window, NULL});
}

/* What a pin keeps is held too: it is told once. */
static void write_states(struct prom_text *text, const struct engine_stats *stats, enum metric metric, bool in_bytes) {
    metric_table_begin(text, metric);
    for (int g = 0; g < stats->n_groups; g++) {
        const struct engine_group_stats *group = &stats->groups[g];
        double unit = in_bytes ? (double)group->block_bytes : 1;
        set_group(text, stats, g);
        prom_text_sample(text, "state", "free", unit * group->n_free);
        prom_text_sample(text, "state", "reusable", unit * group->n_reusable);
        prom_text_sample(text, "state", "held", unit * (group->n_held - group->n_pinned));
        prom_text_sample(text, "state", "pinned", unit * group->n_pinned);
    }
}

static void write_kv(struct prom_text *text, const struct engine_stats *stats) {
    write_states(text, stats, METRIC_KV_BLOCKS, false);
    write_states(text, stats, METRIC_KV_BYTES, true);
    metric_table_begin(text, METRIC_KV_REFERENCES);
    for (int g = 0; g < stats->n_groups; g++) {
        set_group(text, stats, g);
        prom_text_sample(text, NULL, NULL, (double)stats->groups[g].n_refs);
    }
    metric_table_begin(text, METRIC_KV_WASTE);
    for (int g = 0; g < stats->n_groups; g++) {
        const struct engine_group_stats *group = &stats->groups[g];
        set_group(text, stats, g);
        prom_text_sample(text, NULL, NULL,
                         group->n_held_slots ? (double)group->n_unused_slots / (double)group->n_held_slots : 0);
    }
}

void engine_metrics_write(struct prom_text *text, const struct engine_stats *stats, int n_preparing) {
    write_requests(text, stats, n_preparing);
    write_promises(text, stats);
    write_tokens(text, stats);
    write_steps(text, stats);
    write_prefixes(text, stats);
    write_kv(text, stats);
}
