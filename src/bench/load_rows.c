#include "bench/load_rows.h"

#include <stdio.h>

#include "bench/svg.h"

#define CLEARLY 0.9 /* of the other's time: no accident */

static const struct {
    const char *option, *heading, *what;
} groups[] = {
#define XX(name, option, heading, what) {option, heading, what},
    LOAD_GROUP_MAP(XX)
#undef XX
};

const char *load_rows_option(enum load_group group) {
    return groups[group].option;
}

const char *load_rows_heading(enum load_group group) {
    return groups[group].heading;
}

const char *load_rows_what(enum load_group group) {
    return groups[group].what;
}

/* ---- rows ---- */

static double number_at(const json_t *json, const char *name) {
    const json_t *value = json_object_get(json, name);
    return json_is_number(value) ? json_number_value(value) : -1;
}

static struct load_spread spread_of(const json_t *summary, const char *name) {
    const json_t *json = json_object_get(summary, name);
    return (struct load_spread){number_at(json, "p50"), number_at(json, "p95"), number_at(json, "p99"),
                                number_at(json, "max")};
}

const struct load_row *load_rows_add(struct load_rows *rows, enum load_group group, const char *name, double value,
                                     const json_t *summary) {
    if (rows->n == LOAD_ROWS_MAX) return NULL;
    struct load_row *row = &rows->of[rows->n++];
    *row = (struct load_row){.group = group,
                             .value = value,
                             .n_done = (int)number_at(summary, "finished"),
                             .n_refused = (int)number_at(summary, "refused"),
                             .ttft = spread_of(summary, "ttft_ms"),
                             .gap = spread_of(summary, "gap_ms"),
                             .new_tok_s = number_at(summary, "new_tok_s"),
                             .prompt_tok_s = number_at(summary, "prompt_tok_s")};
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

/* ---- text ---- */

static const char *ms_or_dash(double ms, char out[32]) {
    if (ms >= 0) return svg_ms(ms, out);
    snprintf(out, 32, "-");
    return out;
}

static enum status add_spread(struct str *out, const struct load_spread *spread) {
    char t[4][32];
    return str_append_fmt(out, " | %8s %8s %8s %8s", ms_or_dash(spread->p50, t[0]), ms_or_dash(spread->p95, t[1]),
                          ms_or_dash(spread->p99, t[2]), ms_or_dash(spread->max, t[3]));
}

enum status load_rows_head(struct str *out) {
    enum status status = str_append_fmt(out, "%-30s %4s %4s | %-35s | %-35s | %8s\n", "", "done", "ref.", "first token",
                                        "between tokens", "tok/s");
    return status ? status
                  : str_append_fmt(out, "%-30s %4s %4s | %8s %8s %8s %8s | %8s %8s %8s %8s |\n", "", "", "", "p50",
                                   "p95", "p99", "max", "p50", "p95", "p99", "max");
}

enum status load_rows_text(const struct load_row *row, struct str *out) {
    char rate[32];
    enum status status = str_append_fmt(out, "%-30.30s %4d %4d", row->name, row->n_done, row->n_refused);
    if (!status) status = add_spread(out, &row->ttft);
    if (!status) status = add_spread(out, &row->gap);
    return status ? status
                  : str_append_fmt(out, " | %8s\n", row->new_tok_s < 0 ? "-" : svg_number(row->new_tok_s, rate));
}

/* ---- advice ---- */

const struct load_row *load_rows_best(const struct load_rows *rows, enum load_group group, double max_gap_ms) {
    const struct load_row *best = NULL, *smoothest = NULL;
    for (int i = 0; i < rows->n; i++) {
        const struct load_row *row = &rows->of[i];
        if (row->group != group || row->gap.p95 < 0) continue;
        if (!smoothest || row->gap.p95 < smoothest->gap.p95) smoothest = row;
        if (row->gap.p95 <= max_gap_ms && (!best || row->new_tok_s > best->new_tok_s)) best = row;
    }
    return best ? best : smoothest;
}

/* NULL: the usual one will do. */
static const struct load_row *better_chunk(const struct load_rows *rows) {
    const struct load_row *usual = NULL, *found = NULL;
    for (int i = 0; i < rows->n && !usual; i++)
        if (rows->of[i].group == LOAD_GROUP_CHUNK) usual = &rows->of[i];
    for (int i = 0; usual && i < rows->n; i++) {
        const struct load_row *row = &rows->of[i], *than = found ? found : usual;
        double share = found ? 1 : CLEARLY;
        if (row->group != LOAD_GROUP_CHUNK || row == usual || row->gap.p95 < 0) continue;
        if (row->gap.p95 < share * than->gap.p95 && row->ttft.p95 < share * than->ttft.p95) found = row;
    }
    return found;
}

enum status load_rows_flags(const struct load_rows *rows, double max_gap_ms, struct str *out) {
    static const enum load_group counted[] = {LOAD_GROUP_AT_ONCE, LOAD_GROUP_THREADS};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof counted / sizeof counted[0] && !status; i++) {
        const struct load_row *best = load_rows_best(rows, counted[i], max_gap_ms);
        /* Who did not start servers of another limit has still seen how many at a time go well. */
        if (!best && counted[i] == LOAD_GROUP_AT_ONCE) best = load_rows_best(rows, LOAD_GROUP_CLIENTS, max_gap_ms);
        if (best) status = str_append_fmt(out, " %s %.0f", load_rows_option(counted[i]), best->value);
    }
    const struct load_row *chunk = better_chunk(rows);
    if (chunk && !status) status = str_append_fmt(out, " %s %.0f", load_rows_option(LOAD_GROUP_CHUNK), chunk->value);
    return status;
}
