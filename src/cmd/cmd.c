#include "cmd/cmd.h"

#include <stdarg.h>
#include <stdio.h>

#define MAX_LINE_BYTES 8192

/* One line, whatever bytes a file's name or an argument brings in. */
static void print_line(const char *fmt, ...) PRINTF_LIKE(1, 2);
static void print_line(const char *fmt, ...) {
    char line[MAX_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    for (char *at = line; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
    fprintf(stderr, "%s\n", line);
}

int cmd_fail(const char *what, enum status status, const struct status_note *note) {
    const char *why = note && note->text[0] ? note->text : status_text(status);
    if (what)
        print_line("kvick: %s: %s", what, why);
    else
        print_line("kvick: %s", why);
    return CMD_EXIT_FAILURE;
}

int cmd_usage(const char *command, const char *fmt, ...) {
    char why[MAX_LINE_BYTES / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    print_line("kvick %s: %s (see: kvick %s --help)", command, why, command);
    return CMD_EXIT_USAGE;
}
