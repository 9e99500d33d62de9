/* metric_table: every family that /metrics may tell: its name, type, labels and help.
 *
 * A row in metric_table.inc adds one; who counts it begins it here, so that no family has two texts.
 * Thread: any. */
#ifndef KVICK_OBSERVE_METRIC_TABLE_H
#define KVICK_OBSERVE_METRIC_TABLE_H

#include "observe/prom_text.h"

enum metric {
#define METRIC(id, name, type, labels, help) METRIC_##id,
#include "observe/metric_table.inc"
#undef METRIC
    METRIC_N
};

struct metric_row {
    const char *name, *type;
    const char *labels; /* beside model_name and engine: "a, b"; "": none */
    const char *help;
};

const struct metric_row *metric_table_row(enum metric metric);

/* With the labels that all have. model_name: borrowed for the call. */
void metric_table_init(struct prom_text *text, struct str *out, const char *model_name);

/* Its samples follow. */
void metric_table_begin(struct prom_text *text, enum metric metric);

/* A family with one sample, or one histogram. */
void metric_table_value(struct prom_text *text, enum metric metric, double value);
void metric_table_histogram(struct prom_text *text, enum metric metric, const struct histogram *histogram);

#endif
