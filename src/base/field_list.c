#include "base/field_list.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FIELD_BYTES 64
#define BLANKS " \t\r"

static enum status unknown(const char *name, const struct field_row *rows, int n_rows, struct status_note *note) {
    char list[160] = "";
    for (int i = 0, at = 0; i < n_rows && at < (int)sizeof list; i++)
        at += snprintf(list + at, sizeof list - (size_t)at, "%s%s", i ? ", " : "", rows[i].name);
    return status_fail(note, STATUS_INVALID, "'%s' is unknown (known: %s)", name, list);
}

static enum status set_field(const char *name, const char *text, const struct field_row *rows, int n_rows, void *out,
                             struct status_note *note) {
    for (int i = 0; i < n_rows; i++) {
        const struct field_row *row = &rows[i];
        char *end;
        if (strcmp(name, row->name) != 0) continue;
        double value = strtod(text, &end);
        if (end == text || *end || !(value >= row->min) || value > row->max || (row->is_whole && value != floor(value)))
            return status_fail(note, STATUS_INVALID, "%s is '%s', no %snumber within %.16g..%.16g", name, text,
                               row->is_whole ? "whole " : "", row->min, row->max);
        *(double *)((char *)out + row->off) = value;
        return STATUS_OK;
    }
    return unknown(name, rows, n_rows, note);
}

/* text: n bytes without separators. */
static enum status read_field(const char *text, size_t n, const struct field_row *rows, int n_rows, void *out,
                              struct status_note *note) {
    char field[MAX_FIELD_BYTES];
    size_t n_blank = strspn(text, BLANKS);
    if (n_blank >= n) return STATUS_OK;
    text += n_blank;
    n -= n_blank;
    while (strchr(BLANKS, text[n - 1])) n--;
    if (n >= sizeof field) return status_fail(note, STATUS_INVALID, "'%.40s...' is no NAME=NUMBER", text);
    snprintf(field, sizeof field, "%.*s", (int)n, text);
    char *equals = strchr(field, '=');
    if (!equals || equals == field) return status_fail(note, STATUS_INVALID, "'%s' is no NAME=NUMBER", field);
    char *value = equals + 1 + strspn(equals + 1, BLANKS);
    while (equals > field && strchr(BLANKS, equals[-1])) equals--;
    *equals = 0;
    return set_field(field, value, rows, n_rows, out, note);
}

enum status field_list_read(const char *text, const struct field_row *rows, int n_rows, void *out,
                            struct status_note *note) {
    while (*text) {
        size_t n = strcspn(text, ",\n#");
        enum status status = read_field(text, n, rows, n_rows, out, note);
        if (status) return status;
        if (text[n] == '#') n += strcspn(text + n, "\n");
        text += n + (text[n] != 0);
    }
    return STATUS_OK;
}
