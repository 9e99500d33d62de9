#include "observe/slo.h"

#include <stdio.h>

#include "observe/metric_table.h"

static const char *const kind_names[SLO_N_KINDS] = {"ttft", "itl"};

static bool count(struct slo *slo, enum request_class class_, enum slo_kind kind, int64_t measured_ns) {
    int64_t target_ns = slo->target_ns[class_][kind];
    bool is_met = !target_ns || measured_ns <= target_ns;
    if (target_ns && is_met)
        slo->n_met[class_][kind]++;
    else if (target_ns)
        slo->n_missed[class_][kind]++;
    return is_met;
}

void slo_count(struct slo *slo, const struct request *request, int n_completion) {
    const struct phase_stats *stats = &request->stats;
    int64_t received_ns = stats->received_ns ? stats->received_ns : stats->submitted_ns;
    if (!stats->first_token_ns) return;
    bool is_good = count(slo, request->class_, SLO_TTFT, stats->first_token_ns - received_ns);
    int n_gaps = n_completion / request->n_choices - 1;
    if (n_gaps > 0)
        is_good &= count(slo, request->class_, SLO_ITL, (stats->last_token_ns - stats->first_token_ns) / n_gaps);
    if (is_good)
        slo->n_good[request->class_]++;
    else
        slo->n_bad[request->class_]++;
}

/* A class and what it is promised. */
static void write_one(const struct slo *slo, int class_, int kind, struct prom_text *text) {
    char target[32];
    snprintf(target, sizeof target, "%.9g", (double)slo->target_ns[class_][kind] / 1e9);
    prom_text_labels(text, (const char *const[]){"class", message_class_name((enum request_class)class_), "slo",
                                                 kind_names[kind], "target_seconds", target, NULL});
    prom_text_sample(text, "met", "true", (double)slo->n_met[class_][kind]);
    prom_text_sample(text, "met", "false", (double)slo->n_missed[class_][kind]);
}

void slo_write(const struct slo *slo, struct prom_text *text) {
    metric_table_begin(text, METRIC_SLO_REQUESTS);
    for (int c = 0; c < REQUEST_N_CLASSES; c++)
        for (int k = 0; k < SLO_N_KINDS; k++)
            if (slo->target_ns[c][k]) write_one(slo, c, k, text);
    metric_table_begin(text, METRIC_GOODPUT);
    for (int c = 0; c < REQUEST_N_CLASSES; c++) {
        prom_text_labels(text, (const char *const[]){"class", message_class_name((enum request_class)c), NULL});
        prom_text_sample(text, "good", "true", (double)slo->n_good[c]);
        prom_text_sample(text, "good", "false", (double)slo->n_bad[c]);
    }
}
