/* options: the command line as one struct, read from the rows of options.inc.
 *
 * A value comes from the command line, else from what options_offer is given for lower origins, else from the row.
 * Thread: main, const once parsed.   Memory: texts point into argv or to where they were offered from; lists are
 * bounded by OPTIONS_MAX_LIST. */
#ifndef KVICK_BASE_OPTIONS_H
#define KVICK_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

#define OPTIONS_MAX_LIST 64

/* One bit per command of cmd/commands.inc. */
enum options_for {
    FOR_RUN = 1 << 0,
    FOR_TOKENIZE = 1 << 1,
    FOR_RENDER = 1 << 2,
    FOR_INSPECT = 1 << 3,
    FOR_EVAL = 1 << 4,
    FOR_BENCH = 1 << 5,
    FOR_CPU = 1 << 6,
    FOR_VERIFY = 1 << 7,
    FOR_REPLAY = 1 << 8,
    FOR_SIM = 1 << 9,
    FOR_SERVE = 1 << 10,
    FOR_SYNTH = 1 << 11,
    FOR_QUANTIZE = 1 << 12,
    FOR_KEY = 1 << 13,
    FOR_PLAN = 1 << 16,
    FOR_RUN_BATCH = 1 << 20,
    FOR_DIAGNOSE = 1 << 21,
    FOR_ALL = -1
};

enum option_class { EXACT, NUMERICS, CONTENT, SURFACE };

struct option_list {
    const char *items[OPTIONS_MAX_LIST];
    int n_items;
};

/* Rows by name: OPTIONS_ROW_<field>. */
enum options_row_idx {
#define OPTION(field, letter, kind, initial, class_, commands, value, help) OPTIONS_ROW_##field,
#include "base/options.inc"
#undef OPTION
    OPTIONS_N_ROWS
};

/* The later one wins. */
enum option_origin { OPTION_DEFAULT, OPTION_FILE, OPTION_ENVIRONMENT, OPTION_FLAG };

struct option_source {
    enum option_origin origin;
    const char *path; /* of the file; NULL: none */
    int line;
};

#define OPTION_FIELD_FLAG(field) bool field;
#define OPTION_FIELD_INT(field) long field;
#define OPTION_FIELD_REAL(field) double field;
#define OPTION_FIELD_TEXT(field) const char *field;
#define OPTION_FIELD_LIST(field) struct option_list field;
#define OPTION_FIELD_SECRET(field) struct option_list field;

struct options {
#define OPTION(field, letter, kind, initial, class_, commands, value, help) OPTION_FIELD_##kind(field)
#include "base/options.inc"
#undef OPTION
    struct option_source sources[OPTIONS_N_ROWS]; /* by enum options_row_idx */
};

/* A row of options.inc as the equiv suite sees it. */
struct option_row {
    const char *name; /* as typed, without "--" */
    enum option_class class_;
    unsigned commands;
};

int options_n_rows(void);
struct option_row options_row(int row_idx);

/* Reads argv[0..n_args) for the command with this bit. Words that are no option are gathered, in order, in out_words
 * [n_args]. "--" ends the options; "--name=value" and "--name value" are equal.
 * Errors: STATUS_INVALID with a note that names the option, for an unknown one, one of another command, a missing or
 * malformed value. */
WARN_UNUSED enum status options_parse(struct options *options, unsigned command, int n_args, char **argv,
                                      const char **out_words, int *out_n_words, struct status_note *note);

/* How an offered value was written: as a text to be read whatever it holds (environment), or in a form that has types.
 */
enum option_form { OPTION_FORM_ANY, OPTION_FORM_TEXT, OPTION_FORM_WHOLE, OPTION_FORM_REAL, OPTION_FORM_FLAG };

struct option_offer {
    const char *name;         /* as typed, without "--"; the long ones of option_aliases.inc too */
    const char *const *texts; /* [n_texts] of one form; flags as true or false */
    int n_texts;
    bool is_list;
    enum option_form form;
    struct option_source source;
};

/* Sets what has no value from this origin or a higher one; checks it in any case.
 * Errors: STATUS_INVALID with "PATH:LINE: name" or the variable in front: unknown, of another command, wrong type. */
WARN_UNUSED enum status options_offer(struct options *options, unsigned command, const struct option_offer *offer,
                                      struct status_note *note);

/* Offers what the environment has as KVICK_<NAME>; items of a list are apart by white space. */
WARN_UNUSED enum status options_offer_environment(struct options *options, unsigned command, struct status_note *note);

/* A note that begins with "--name:" gets where the value came from, if that was not the command line. */
void options_add_source(const struct options *options, struct status_note *note);

/* One aligned line per option of the command. */
void options_print_help(FILE *out, unsigned command);

/* "name = value  # source", TOML that can be read again. Secrets are counted only. */
void options_print(FILE *out, const struct options *options, unsigned command);

#endif
