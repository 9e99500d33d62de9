#include "observe/slo.h"

#include <stdio.h>

#include "observe/prom_text.h"

#define FAMILY "kvick_slo_requests_total"

static const char *const kind_names[SLO_N_KINDS] = {"ttft", "itl"};

static void count(struct slo *slo, enum request_class class_, enum slo_kind kind, int64_t measured_ns) {
    int64_t target_ns = slo->target_ns[class_][kind];
    if (!target_ns) return;
    if (measured_ns <= target_ns)
        slo->n_met[class_][kind]++;
    else
        slo->n_missed[class_][kind]++;
}

void slo_count(struct slo *slo, const struct request *request, int n_completion) {
    const struct phase_stats *stats = &request->stats;
    int64_t received_ns = stats->received_ns ? stats->received_ns : stats->submitted_ns;
    if (!stats->first_token_ns) return;
    count(slo, request->class_, SLO_TTFT, stats->first_token_ns - received_ns);
    int n_gaps = n_completion / request->n_choices - 1;
    if (n_gaps > 0) count(slo, request->class_, SLO_ITL, (stats->last_token_ns - stats->first_token_ns) / n_gaps);
}

static enum status write_one(const struct slo *slo, const char *model_name, int class_, int kind, bool is_first,
                             struct str *out) {
    char target[32];
    struct prom_text one;
    snprintf(target, sizeof target, "%.9g", (double)slo->target_ns[class_][kind] / 1e9);
    const char *const labels[] = {"model_name",
                                  model_name,
                                  "engine",
                                  "0",
                                  "class",
                                  message_class_name((enum request_class)class_),
                                  "slo",
                                  kind_names[kind],
                                  "target_seconds",
                                  target,
                                  NULL};
    prom_text_init(&one, out, labels);
    one.family = FAMILY;
    if (is_first)
        prom_text_family(&one, FAMILY, "counter", "Requests by whether they were as fast as their class is promised.");
    prom_text_sample(&one, "met", "true", (double)slo->n_met[class_][kind]);
    prom_text_sample(&one, "met", "false", (double)slo->n_missed[class_][kind]);
    return one.status;
}

enum status slo_write(const struct slo *slo, const char *model_name, struct str *out) {
    enum status status = STATUS_OK;
    bool is_first = true;
    for (int c = 0; c < REQUEST_N_CLASSES; c++)
        for (int k = 0; !status && k < SLO_N_KINDS; k++) {
            if (!slo->target_ns[c][k]) continue;
            status = write_one(slo, model_name, c, k, is_first, out);
            is_first = false;
        }
    return status;
}
