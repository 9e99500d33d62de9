#include "observe/metric_table.h"

static const struct metric_row rows[METRIC_N] = {
#define METRIC(id, name, type, labels, help) {name, type, labels, help},
#include "observe/metric_table.inc"
#undef METRIC
};

const struct metric_row *metric_table_row(enum metric metric) {
    REQUIRE((unsigned)metric < METRIC_N);
    return &rows[metric];
}

void metric_table_init(struct prom_text *text, struct str *out, const char *model_name) {
    prom_text_init(text, out, (const char *const[]){"model_name", model_name, "engine", "0", NULL});
}

void metric_table_begin(struct prom_text *text, enum metric metric) {
    const struct metric_row *row = metric_table_row(metric);
    prom_text_family(text, row->name, row->type, row->help);
}

void metric_table_value(struct prom_text *text, enum metric metric, double value) {
    metric_table_begin(text, metric);
    prom_text_sample(text, NULL, NULL, value);
}

void metric_table_histogram(struct prom_text *text, enum metric metric, const struct histogram *histogram) {
    metric_table_begin(text, metric);
    prom_text_histogram(text, histogram);
}
