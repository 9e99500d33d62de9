/* cmd: what the commands share. Each command returns the process's exit status: 0, 1 failure, 2 wrong usage. */
#ifndef KVICK_CMD_CMD_H
#define KVICK_CMD_CMD_H

#include "base/options.h"

/* words: [n_words] the arguments that are no options, without the command's own name. */
typedef int cmd_fn(const struct options *options, int n_words, const char **words);

#define COMMAND(name, bit, arguments, summary) cmd_fn cmd_##name;
#include "cmd/commands.inc"
#undef COMMAND

#define CMD_EXIT_FAILURE 1
#define CMD_EXIT_USAGE 2

/* One line on stderr, "kvick: WHAT: NOTE"; what may be NULL. Returns CMD_EXIT_FAILURE. */
int cmd_fail(const char *what, enum status status, const struct status_note *note);

/* One line on stderr and the way to the help. Returns CMD_EXIT_USAGE. */
int cmd_usage(const char *command, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
