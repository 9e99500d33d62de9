#include "base/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_NAME_BYTES 64
#define MAX_WHERE_BYTES 256

enum option_kind { FLAG, INT, REAL, TEXT, LIST, SECRET };

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

enum alias_kind { SAME, PAIR, ON, OFF };

static const struct alias {
    const char *word;
    enum options_row_idx row_idx;
    enum alias_kind kind;
    unsigned commands;
} aliases[] = {
#define OPTION_ALIAS(word, field, how, commands) {word, OPTIONS_ROW_##field, how, commands},
#include "base/option_aliases.inc"
#undef OPTION_ALIAS
};

#define N_ALIASES (sizeof aliases / sizeof aliases[0])

#define INITIAL_FLAG(x) x
#define INITIAL_INT(x) x
#define INITIAL_REAL(x) x
#define INITIAL_TEXT(x) x
#define INITIAL_LIST(x)                                                                                                \
    { .n_items = 0 }
#define INITIAL_SECRET(x) INITIAL_LIST(x)

static const struct options initial_options = {
#define OPTION(field, letter, kind, initial, class_, commands, value, help) .field = INITIAL_##kind(initial),
#include "base/options.inc"
#undef OPTION
};

/* The field's name as typed; the buffer is the caller's. */
static const char *dashed(const char *field, char out[MAX_NAME_BYTES]) {
    size_t n = strlen(field);
    REQUIRE(n < MAX_NAME_BYTES);
    for (size_t i = 0; i <= n; i++) out[i] = field[i] == '_' ? '-' : field[i];
    return out;
}

static const char *dashed_names[sizeof rows / sizeof rows[0]];
static char dashed_texts[sizeof rows / sizeof rows[0]][MAX_NAME_BYTES];

int options_n_rows(void) {
    return N_ROWS;
}

struct option_row options_row(int row_idx) {
    REQUIRE(row_idx >= 0 && row_idx < N_ROWS);
    if (!dashed_names[row_idx]) dashed_names[row_idx] = dashed(rows[row_idx].field, dashed_texts[row_idx]);
    return (struct option_row){dashed_names[row_idx], rows[row_idx].class_, rows[row_idx].commands};
}

static const struct row *find_long(const char *name, size_t n_bytes) {
    char typed[MAX_NAME_BYTES];
    for (const struct row *row = rows; row < rows + N_ROWS; row++)
        if (strlen(row->field) == n_bytes && strncmp(dashed(row->field, typed), name, n_bytes) == 0) return row;
    return NULL;
}

static const struct row *find_letter(char letter) {
    for (const struct row *row = rows; row < rows + N_ROWS; row++)
        if (row->letter && row->letter == letter) return row;
    return NULL;
}

static enum status set_number(void *field, enum option_kind kind, const char *where, const char *value,
                              struct status_note *note) {
    char *end = NULL;
    errno = 0;
    if (kind == INT) {
        *(long *)field = strtol(value, &end, 10);
        if (errno || end == value || *end)
            return status_fail(note, STATUS_INVALID, "%s: '%s' is not a whole number in range", where, value);
        if (*(long *)field < 0) return status_fail(note, STATUS_INVALID, "%s: %s is negative", where, value);
        return STATUS_OK;
    }
    *(double *)field = strtod(value, &end);
    if (end == value || *end || !isfinite(*(double *)field))
        return status_fail(note, STATUS_INVALID, "%s: '%s' is not a number", where, value);
    return STATUS_OK;
}

/* where: how the note calls the option. value NULL: a flag is set. */
static enum status set_value(struct options *options, const struct row *row, const char *where, const char *value,
                             struct status_note *note) {
    void *field = (char *)options + row->off;
    switch (row->kind) {
    case FLAG: *(bool *)field = !value || strcmp(value, "true") == 0; break;
    case TEXT: *(const char **)field = value; break;
    case INT:
    case REAL: return set_number(field, row->kind, where, value, note);
    case LIST:
    case SECRET: {
        struct option_list *list = field;
        if (list->n_items == OPTIONS_MAX_LIST)
            return status_fail(note, STATUS_INVALID, "%s: given more than %d times", where, OPTIONS_MAX_LIST);
        list->items[list->n_items++] = value;
        break;
    }
    }
    return STATUS_OK;
}

/* ---- the command line ---- */

static const struct alias *find_alias(const char *word, size_t n_bytes, unsigned command) {
    for (size_t i = 0; i < N_ALIASES; i++)
        if ((aliases[i].commands & command) && strlen(aliases[i].word) == n_bytes &&
            strncmp(aliases[i].word, word, n_bytes) == 0)
            return &aliases[i];
    return NULL;
}

/* Sets a row from the command line; the word is as it was typed. */
static enum status set_from_flag(struct options *options, const struct row *row, enum alias_kind how, const char *word,
                                 const char *value, struct status_note *note) {
    struct option_source *source = &options->sources[row - rows];
    char where[MAX_NAME_BYTES + 2] = "--";
    dashed(row->field, where + 2);
    if (how == PAIR && source->origin == OPTION_FLAG) {
        const char *before = *(const char **)((char *)options + row->off);
        if (strcmp(before, value) != 0)
            return status_fail(note, STATUS_INVALID, "%s: '%s' differs from %s, which is '%s'; there is one for both",
                               word, value, where, before);
    }
    source->origin = OPTION_FLAG;
    return set_value(options, row, where, value, note);
}

/* One option word at argv[*idx]; moves *idx past its value if that is a word of its own. */
static enum status parse_one(struct options *options, unsigned command, int n_args, char **argv, int *idx,
                             struct status_note *note) {
    const char *word = argv[*idx], *value = NULL, *equals = strchr(word, '=');
    size_t n_bytes = equals ? (size_t)(equals - word) : strlen(word);
    const struct alias *alias = find_alias(word, n_bytes, command);
    enum alias_kind how = alias ? alias->kind : SAME;
    const struct row *row;
    if (alias) {
        row = &rows[alias->row_idx];
        if (equals) value = equals + 1;
    } else if (word[1] == '-') {
        row = find_long(word + 2, n_bytes - 2);
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
        return set_from_flag(options, row, how, word, how == OFF ? "false" : NULL, note);
    }
    if (!value) {
        if (*idx + 1 >= n_args) return status_fail(note, STATUS_INVALID, "option '%s' needs a value", word);
        value = argv[++*idx];
    }
    return set_from_flag(options, row, how, word, value, note);
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

/* ---- file and environment ---- */

static const char *const form_names[] = {[OPTION_FORM_ANY] = "a text",
                                         [OPTION_FORM_TEXT] = "a text",
                                         [OPTION_FORM_WHOLE] = "a whole number",
                                         [OPTION_FORM_REAL] = "a fraction",
                                         [OPTION_FORM_FLAG] = "true or false"};

static bool is_list(const struct row *row) {
    return row->kind == LIST || row->kind == SECRET;
}

static enum status check_form(const struct row *row, const char *where, const struct option_offer *offer,
                              struct status_note *note) {
    static const char *const wanted[] = {[FLAG] = "true or false",
                                         [INT] = "a whole number",
                                         [REAL] = "a number",
                                         [TEXT] = "a text",
                                         [LIST] = "a text or a list of texts",
                                         [SECRET] = "a text or a list of texts"};
    static const unsigned char forms[] = {[FLAG] = 1 << OPTION_FORM_FLAG,
                                          [INT] = 1 << OPTION_FORM_WHOLE,
                                          [REAL] = 1 << OPTION_FORM_WHOLE | 1 << OPTION_FORM_REAL,
                                          [TEXT] = 1 << OPTION_FORM_TEXT,
                                          [LIST] = 1 << OPTION_FORM_TEXT,
                                          [SECRET] = 1 << OPTION_FORM_TEXT};
    bool is_form = offer->form == OPTION_FORM_ANY || (forms[row->kind] >> offer->form & 1);
    if ((offer->is_list && !is_list(row)) || (!is_form && offer->n_texts > 0))
        return status_fail(note, STATUS_INVALID, "%s must be %s, not %s", where, wanted[row->kind],
                           offer->is_list && !is_list(row) ? "a list" : form_names[offer->form]);
    return STATUS_OK;
}

/* What a flag's text says; NULL: nothing that it can say. */
static const char *read_flag(const char *text, bool is_negated) {
    static const char *const yes[] = {"true", "1", "yes", "on"}, *const no[] = {"false", "0", "no", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(text, yes[i]) == 0) return is_negated ? "false" : "true";
        if (strcasecmp(text, no[i]) == 0) return is_negated ? "true" : "false";
    }
    return NULL;
}

/* How messages call an offered option. */
static void write_where(const struct option_offer *offer, char out[MAX_WHERE_BYTES]) {
    if (offer->source.path)
        snprintf(out, MAX_WHERE_BYTES, "%s:%d: %s", offer->source.path, offer->source.line, offer->name);
    else
        snprintf(out, MAX_WHERE_BYTES, "%s", offer->name);
}

static enum status set_offered(struct options *options, const struct row *row, const char *where, bool is_negated,
                               const struct option_offer *offer, struct status_note *note) {
    struct options unused = {0};
    struct option_source *source = &options->sources[row - rows];
    bool is_taken = offer->source.origin > source->origin;
    struct options *to = is_taken ? options : &unused;
    enum status status = STATUS_OK;
    if (offer->source.origin == source->origin)
        return status_fail(note, STATUS_INVALID, "%s: it is set a second time", where);
    if (is_taken) *source = offer->source;
    if (is_taken && is_list(row)) ((struct option_list *)((char *)to + row->off))->n_items = 0;
    for (int i = 0; !status && i < offer->n_texts; i++) {
        const char *text = offer->texts[i];
        if (row->kind == FLAG) text = read_flag(text, is_negated);
        if (!text) return status_fail(note, STATUS_INVALID, "%s: '%s' is not true or false", where, offer->texts[i]);
        status = set_value(to, row, where, text, note);
    }
    return status;
}

static bool is_for_command_line(const struct row *row, enum option_origin origin) {
    size_t idx = (size_t)(row - rows);
    return idx == OPTIONS_ROW_help || idx == OPTIONS_ROW_check || idx == OPTIONS_ROW_print_config ||
           (idx == OPTIONS_ROW_config && origin == OPTION_FILE);
}

enum status options_offer(struct options *options, unsigned command, const struct option_offer *offer,
                          struct status_note *note) {
    char where[MAX_WHERE_BYTES], word[MAX_NAME_BYTES + 2];
    write_where(offer, where);
    snprintf(word, sizeof word, "--%s", offer->name);
    const struct alias *alias = find_alias(word, strlen(word), command);
    const struct row *row = alias ? &rows[alias->row_idx] : find_long(offer->name, strlen(offer->name));
    if (!row || !(row->commands & command)) {
        const char *why = row ? "does not belong to this command" : "there is no such option";
        return status_fail(note, STATUS_INVALID, "%s: %s", where, why);
    }
    if (is_for_command_line(row, offer->source.origin))
        return status_fail(note, STATUS_INVALID, "%s: belongs on the command line", where);
    enum status status = check_form(row, where, offer, note);
    return status ? status : set_offered(options, row, where, alias && alias->kind == OFF, offer, note);
}

static void write_variable(const char *name, char out[MAX_NAME_BYTES + 8]) {
    size_t n = (size_t)snprintf(out, MAX_NAME_BYTES + 8, "KVICK_%s", name);
    for (size_t i = 0; i < n; i++) out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}

/* name: as typed, without "--". */
static enum status offer_variable(struct options *options, unsigned command, const char *name,
                                  struct status_note *note) {
    char variable[MAX_NAME_BYTES + 8];
    write_variable(name, variable);
    const char *text = getenv(variable);
    if (!text) return STATUS_OK;
    struct option_offer offer = {.name = name, .texts = &text, .n_texts = 1, .source = {.origin = OPTION_ENVIRONMENT}};
    enum status status = options_offer(options, command, &offer, note);
    if (status) status_note_prefix(note, variable);
    return status;
}

enum status options_offer_environment(struct options *options, unsigned command, struct status_note *note) {
    enum status status = STATUS_OK;
    for (size_t i = 0; !status && i < N_ALIASES; i++)
        if ((aliases[i].commands & command) && strncmp(aliases[i].word, "--", 2) == 0)
            status = offer_variable(options, command, aliases[i].word + 2, note);
    for (int i = 0; !status && i < N_ROWS; i++) {
        char name[MAX_NAME_BYTES];
        if (!(rows[i].commands & command) || is_for_command_line(&rows[i], OPTION_ENVIRONMENT)) continue;
        status = offer_variable(options, command, dashed(rows[i].field, name), note);
    }
    return status;
}

/* ---- what is in force, and why ---- */

static void write_source(const struct option_source *source, const char *field, char out[MAX_WHERE_BYTES]) {
    switch (source->origin) {
    case OPTION_DEFAULT: snprintf(out, MAX_WHERE_BYTES, "default"); break;
    case OPTION_FILE: snprintf(out, MAX_WHERE_BYTES, "%s:%d", source->path, source->line); break;
    case OPTION_ENVIRONMENT: write_variable(field, out); break;
    case OPTION_FLAG: snprintf(out, MAX_WHERE_BYTES, "command line"); break;
    }
}

void options_add_source(const struct options *options, struct status_note *note) {
    char where[MAX_WHERE_BYTES];
    const char *colon = strchr(note->text, ':');
    if (!colon || strncmp(note->text, "--", 2) != 0) return;
    const struct row *row = find_long(note->text + 2, (size_t)(colon - note->text) - 2);
    const struct option_source *source = row ? &options->sources[row - rows] : NULL;
    if (!source || (source->origin != OPTION_FILE && source->origin != OPTION_ENVIRONMENT)) return;
    write_source(source, row->field, where);
    status_note_prefix(note, where);
}

/* A TOML text, quoted. */
static void print_text(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < 0x20 || *text == 0x7f)
            fprintf(out, "\\u%04X", (unsigned)*text);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

static void print_list(FILE *out, const struct option_list *list) {
    fputc('[', out);
    for (int i = 0; i < list->n_items; i++) {
        if (i) fputs(", ", out);
        print_text(out, list->items[i]);
    }
    fputc(']', out);
}

static void print_value(FILE *out, const struct options *options, const struct row *row, const char *name) {
    const void *field = (const char *)options + row->off;
    const char *text = row->kind == TEXT ? *(const char *const *)field : "";
    bool is_unset = !text || (is_list(row) && ((const struct option_list *)field)->n_items == 0);
    fprintf(out, "%s%s = ", is_unset || row->kind == SECRET ? "# " : "", name);
    switch (row->kind) {
    case FLAG: fputs(*(const bool *)field ? "true" : "false", out); break;
    case INT: fprintf(out, "%ld", *(const long *)field); break;
    case REAL: fprintf(out, "%.17g", *(const double *)field); break;
    case TEXT:
        if (text) print_text(out, text);
        break;
    case LIST: print_list(out, field); break;
    case SECRET: fprintf(out, "%d, not shown", ((const struct option_list *)field)->n_items); break;
    }
}

void options_print(FILE *out, const struct options *options, unsigned command) {
    for (int i = 0; i < N_ROWS; i++) {
        char name[MAX_NAME_BYTES], where[MAX_WHERE_BYTES];
        if (!(rows[i].commands & command) || is_for_command_line(&rows[i], OPTION_FILE)) continue;
        print_value(out, options, &rows[i], dashed(rows[i].field, name));
        write_source(&options->sources[i], rows[i].field, where);
        fprintf(out, "  # %s\n", where);
    }
}

static void print_aliases(FILE *out, const struct row *row, unsigned command) {
    for (size_t i = 0; i < N_ALIASES; i++)
        if (&rows[aliases[i].row_idx] == row && (aliases[i].commands & command))
            fprintf(out, "%s %s", aliases[i].kind == OFF ? "; not" : "; also", aliases[i].word);
    fputc('\n', out);
}

void options_print_help(FILE *out, unsigned command) {
    for (const struct row *row = rows; row < rows + N_ROWS; row++) {
        char name[MAX_NAME_BYTES], left[128];
        if (!(row->commands & command)) continue;
        int n = row->letter ? snprintf(left, sizeof left, "-%c, ", row->letter) : snprintf(left, sizeof left, "    ");
        snprintf(left + n, sizeof left - (size_t)n, "--%s %s", dashed(row->field, name), row->value);
        fprintf(out, "  %-28s %s", left, row->help);
        print_aliases(out, row, command);
    }
}
