/* options: the command line as one struct, read from the rows of options.inc.
 *
 * Thread: main, const once parsed.   Memory: texts point into argv; lists are bounded by OPTIONS_MAX_LIST. */
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
    FOR_RUN_BATCH = 1 << 20,
    FOR_ALL = -1
};

enum option_class { EXACT, NUMERICS, CONTENT, SURFACE };

struct option_list {
    const char *items[OPTIONS_MAX_LIST];
    int n_items;
};

#define OPTION_FIELD_FLAG(field) bool field;
#define OPTION_FIELD_INT(field) long field;
#define OPTION_FIELD_REAL(field) double field;
#define OPTION_FIELD_TEXT(field) const char *field;
#define OPTION_FIELD_LIST(field) struct option_list field;

struct options {
#define OPTION(field, letter, kind, initial, class_, commands, value, help) OPTION_FIELD_##kind(field)
#include "base/options.inc"
#undef OPTION
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

/* One aligned line per option of the command. */
void options_print_help(FILE *out, unsigned command);

#endif
