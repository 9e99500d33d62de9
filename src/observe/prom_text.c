#include "observe/prom_text.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static void put(struct prom_text *text, const char *bytes) {
    if (!text->status) text->status = str_append_text(text->out, bytes);
}

/* Backslash, quote and line break are escaped; what is no UTF-8 becomes '?'. */
static size_t escape(const char *value, char *out, size_t max_bytes) {
    size_t n = 0, n_value = strlen(value);
    for (size_t i = 0; i < n_value && n + UTF8_MAX_BYTES < max_bytes;) {
        int n_char = utf8_decode(value + i, n_value - i, NULL);
        if (n_char == 0) {
            out[n++] = '?';
            i++;
        } else if (value[i] == '\\' || value[i] == '"' || value[i] == '\n') {
            out[n++] = '\\';
            out[n++] = value[i] == '\n' ? 'n' : value[i];
            i++;
        } else {
            for (int b = 0; b < n_char; b++) out[n++] = value[i++];
        }
    }
    out[n] = 0;
    return n;
}

/* Appends to those that are there. */
static void add_labels(struct prom_text *text, const char *const *labels) {
    size_t n = strlen(text->labels);
    for (int i = 0; labels[i]; i += 2) {
        char value[200];
        escape(labels[i + 1], value, sizeof value);
        int n_written =
            snprintf(text->labels + n, sizeof text->labels - n, "%s%s=\"%s\"", n ? "," : "", labels[i], value);
        if (n_written < 0 || (size_t)n_written >= sizeof text->labels - n) {
            text->labels[n] = 0;
            return;
        }
        n += (size_t)n_written;
    }
}

void prom_text_init(struct prom_text *text, struct str *out, const char *const *labels) {
    *text = (struct prom_text){.out = out};
    add_labels(text, labels);
    text->n_common = strlen(text->labels);
}

void prom_text_labels(struct prom_text *text, const char *const *labels) {
    text->labels[text->n_common] = 0;
    add_labels(text, labels);
}

void prom_text_family(struct prom_text *text, const char *name, const char *type, const char *help) {
    text->family = name;
    text->labels[text->n_common] = 0;
    if (!text->status) text->status = str_append_fmt(text->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* suffix, labels, one more label, value. */
static void put_sample(struct prom_text *text, const char *suffix, const char *label, const char *value_of_label,
                       double value) {
    char escaped[200];
    put(text, text->family);
    put(text, suffix);
    if (text->labels[0] || label) put(text, "{");
    put(text, text->labels);
    if (label) {
        escape(value_of_label, escaped, sizeof escaped);
        if (text->labels[0]) put(text, ",");
        put(text, label);
        put(text, "=\"");
        put(text, escaped);
        put(text, "\"");
    }
    if (text->labels[0] || label) put(text, "}");
    if (!text->status) text->status = str_append_fmt(text->out, " %.17g\n", value);
}

void prom_text_sample(struct prom_text *text, const char *label, const char *value_of_label, double value) {
    put_sample(text, "", label, value_of_label, value);
}

void prom_text_histogram(struct prom_text *text, const struct histogram *histogram) {
    uint64_t n = 0;
    for (int i = 0; i < histogram->n_bounds; i++) {
        char bound[32];
        n += histogram->counts[i];
        snprintf(bound, sizeof bound, "%.15g", histogram->bounds[i]);
        put_sample(text, "_bucket", "le", bound, (double)n);
    }
    put_sample(text, "_bucket", "le", "+Inf", (double)histogram->n);
    put_sample(text, "_sum", NULL, NULL, histogram->sum);
    put_sample(text, "_count", NULL, NULL, (double)histogram->n);
}
