/* prom_text: metrics in Prometheus' text format 0.0.4, into a str.
 *
 * One family at a time: prom_text_family, then its samples. Names and help are ours; label values may be anything.
 * The first failure is kept in status. */
#ifndef KVICK_OBSERVE_PROM_TEXT_H
#define KVICK_OBSERVE_PROM_TEXT_H

#include "base/histogram.h"
#include "base/str.h"

struct prom_text {
    struct str *out;
    enum status status;
    const char *family;
    char labels[512]; /* of the next samples, as a="b",c="d" */
    size_t n_common;  /* of them, bytes of those that all have */
};

/* Errors come from status at the end. labels: name, value, name, value, ..., NULL; cut where they do not fit. */
void prom_text_init(struct prom_text *text, struct str *out, const char *const *labels);

/* Labels of the next samples, beside the common ones, in place of those given so before; as above. */
void prom_text_labels(struct prom_text *text, const char *const *labels);

/* type: "counter", "gauge" or "histogram". Its samples have the common labels. */
void prom_text_family(struct prom_text *text, const char *name, const char *type, const char *help);

/* One sample; label NULL: none beside the common ones. */
void prom_text_sample(struct prom_text *text, const char *label, const char *value_of_label, double value);

void prom_text_histogram(struct prom_text *text, const struct histogram *histogram);

#endif
