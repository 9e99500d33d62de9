#include "cmd/cmd.h"

#include <stdarg.h>
#include <stdio.h>

int cmd_fail(const char *what, enum status status, const struct status_note *note) {
    const char *why = note && note->text[0] ? note->text : status_text(status);
    if (what)
        fprintf(stderr, "kvick: %s: %s\n", what, why);
    else
        fprintf(stderr, "kvick: %s\n", why);
    return CMD_EXIT_FAILURE;
}

int cmd_usage(const char *command, const char *fmt, ...) {
    fprintf(stderr, "kvick %s: ", command);
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, " (see: kvick %s --help)\n", command);
    return CMD_EXIT_USAGE;
}
