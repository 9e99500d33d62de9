#include "base/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum option_kind { FLAG, INT, REAL, TEXT, LIST };

struct row {
    const char *field;
    char letter;
    enum option_kind kind;
    enum option_class class_;
    unsigned commands;
    size_t off; /* byte offset in struct options */
    const char *value, *help;
};

static const struct row rows[] = {
#define OPTION(field, letter, kind, initial, class_, commands, value, help)                                            \
    {#field, letter, kind, class_, (unsigned)(commands), offsetof(struct options, field), value, help},
#include "base/options.inc"
#undef OPTION
};

#define N_ROWS ((int)(sizeof rows / sizeof rows[0]))

#define INITIAL_FLAG(x) x
#define INITIAL_INT(x) x
#define INITIAL_REAL(x) x
#define INITIAL_TEXT(x) x
#define INITIAL_LIST(x)                                                                                                \
    { .n_items = 0 }

static const struct options initial_options = {
#define OPTION(field, letter, kind, initial, class_, commands, value, help) .field = INITIAL_##kind(initial),
#include "base/options.inc"
#undef OPTION
};

/* The field's name as typed; the buffer is the caller's. */
static const char *dashed(const char *field, char out[64]) {
    size_t n = strlen(field);
    REQUIRE(n < 64);
    for (size_t i = 0; i <= n; i++) out[i] = field[i] == '_' ? '-' : field[i];
    return out;
}

static const char *dashed_names[sizeof rows / sizeof rows[0]];
static char dashed_texts[sizeof rows / sizeof rows[0]][64];

int options_n_rows(void) {
    return N_ROWS;
}

struct option_row options_row(int row_idx) {
    REQUIRE(row_idx >= 0 && row_idx < N_ROWS);
    if (!dashed_names[row_idx]) dashed_names[row_idx] = dashed(rows[row_idx].field, dashed_texts[row_idx]);
    return (struct option_row){dashed_names[row_idx], rows[row_idx].class_, rows[row_idx].commands};
}

static const struct row *find_long(const char *name, size_t n_bytes) {
    char typed[64];
    for (const struct row *row = rows; row < rows + N_ROWS; row++)
        if (strlen(row->field) == n_bytes && strncmp(dashed(row->field, typed), name, n_bytes) == 0) return row;
    return NULL;
}

static const struct row *find_letter(char letter) {
    for (const struct row *row = rows; row < rows + N_ROWS; row++)
        if (row->letter && row->letter == letter) return row;
    return NULL;
}

static enum status set_value(struct options *options, const struct row *row, const char *value,
                             struct status_note *note) {
    char name[64], *end = NULL;
    void *field = (char *)options + row->off;
    dashed(row->field, name);
    errno = 0;
    switch (row->kind) {
    case FLAG: *(bool *)field = true; break;
    case TEXT: *(const char **)field = value; break;
    case INT:
        *(long *)field = strtol(value, &end, 10);
        if (errno || end == value || *end)
            return status_fail(note, STATUS_INVALID, "--%s: '%s' is not a whole number in range", name, value);
        if (*(long *)field < 0) return status_fail(note, STATUS_INVALID, "--%s: %s is negative", name, value);
        break;
    case REAL:
        *(double *)field = strtod(value, &end);
        if (end == value || *end || !isfinite(*(double *)field))
            return status_fail(note, STATUS_INVALID, "--%s: '%s' is not a number", name, value);
        break;
    case LIST: {
        struct option_list *list = field;
        if (list->n_items == OPTIONS_MAX_LIST)
            return status_fail(note, STATUS_INVALID, "--%s: given more than %d times", name, OPTIONS_MAX_LIST);
        list->items[list->n_items++] = value;
        break;
    }
    }
    return STATUS_OK;
}

/* One option word at argv[*idx]; moves *idx past its value if that is a word of its own. */
static enum status parse_one(struct options *options, unsigned command, int n_args, char **argv, int *idx,
                             struct status_note *note) {
    const char *word = argv[*idx], *value = NULL;
    const struct row *row;
    if (word[1] == '-') {
        const char *equals = strchr(word, '=');
        size_t n_bytes = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
        row = find_long(word + 2, n_bytes);
        if (equals) value = equals + 1;
    } else {
        row = find_letter(word[1]);
        if (word[2]) value = word + 2;
    }
    if (!row) return status_fail(note, STATUS_INVALID, "unknown option '%s'", word);
    if (!(row->commands & command))
        return status_fail(note, STATUS_INVALID, "option '%s' does not belong to this command", word);
    if (row->kind == FLAG) {
        if (value) return status_fail(note, STATUS_INVALID, "option '%s' takes no value", word);
        return set_value(options, row, NULL, note);
    }
    if (!value) {
        if (*idx + 1 >= n_args) return status_fail(note, STATUS_INVALID, "option '%s' needs a value", word);
        value = argv[++*idx];
    }
    return set_value(options, row, value, note);
}

enum status options_parse(struct options *options, unsigned command, int n_args, char **argv, const char **out_words,
                          int *out_n_words, struct status_note *note) {
    *options = initial_options;
    *out_n_words = 0;
    bool are_over = false;
    for (int i = 0; i < n_args; i++) {
        if (!are_over && strcmp(argv[i], "--") == 0) {
            are_over = true;
        } else if (are_over || argv[i][0] != '-' || !argv[i][1]) {
            out_words[(*out_n_words)++] = argv[i];
        } else {
            enum status status = parse_one(options, command, n_args, argv, &i, note);
            if (status) return status;
        }
    }
    return STATUS_OK;
}

void options_print_help(FILE *out, unsigned command) {
    for (const struct row *row = rows; row < rows + N_ROWS; row++) {
        char name[64], left[128];
        if (!(row->commands & command)) continue;
        int n = row->letter ? snprintf(left, sizeof left, "-%c, ", row->letter) : snprintf(left, sizeof left, "    ");
        snprintf(left + n, sizeof left - (size_t)n, "--%s %s", dashed(row->field, name), row->value);
        fprintf(out, "  %-28s %s\n", left, row->help);
    }
}
