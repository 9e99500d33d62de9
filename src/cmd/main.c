/* main: the command table. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cmd/cmd.h"

struct command {
    const char *name;
    unsigned bit;
    cmd_fn *run;
    const char *arguments, *summary;
};

static const struct command commands[] = {
#define COMMAND(name, bit, arguments, summary) {#name, bit, cmd_##name, arguments, summary},
#include "cmd/commands.inc"
#undef COMMAND
};

#define N_COMMANDS ((int)(sizeof commands / sizeof commands[0]))

#define MAX_NAME_BYTES 32

/* As it is typed. */
static const char *spell(const struct command *command, char out[MAX_NAME_BYTES]) {
    size_t i = 0;
    for (; command->name[i] && i + 1 < MAX_NAME_BYTES; i++) out[i] = command->name[i] == '_' ? '-' : command->name[i];
    out[i] = 0;
    return out;
}

static void print_help(FILE *out) {
    char name[MAX_NAME_BYTES];
    fputs("kvick: an LLM server whose subject is the first token\n\nusage: kvick COMMAND [ARGUMENTS] [OPTIONS]\n\n",
          out);
    for (int i = 0; i < N_COMMANDS; i++) fprintf(out, "  %-10s %s\n", spell(&commands[i], name), commands[i].summary);
    fputs("\n'kvick COMMAND --help' shows a command's options.\n", out);
}

static const struct command *find_command(const char *name) {
    char spelled[MAX_NAME_BYTES];
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(spell(&commands[i], spelled), name) == 0) return &commands[i];
    return NULL;
}

static int run_command(const struct command *command, int n_args, char **argv) {
    const char **words = calloc((size_t)n_args + 1, sizeof *words);
    if (!words) return cmd_fail(NULL, STATUS_NOMEM, NULL);
    struct options options;
    struct status_note note = {0};
    char name[MAX_NAME_BYTES];
    int n_words, exit_code;
    if (options_parse(&options, command->bit, n_args, argv, words, &n_words, &note)) {
        exit_code = cmd_usage(spell(command, name), "%s", note.text);
    } else if (options.help) {
        printf("usage: kvick %s %s [OPTIONS]\n%s\n\n", spell(command, name), command->arguments, command->summary);
        options_print_help(stdout, command->bit);
        exit_code = 0;
    } else {
        if (options.verbose) log_set_level(LOG_INFO);
        exit_code = command->run(&options, n_words, words);
    }
    free(words);
    return exit_code;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves is a write error, not a death */
    if (argc < 2) {
        print_help(stderr);
        return CMD_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("kvick " KVICK_VERSION);
        return 0;
    }
    const struct command *command = find_command(argv[1]);
    if (!command) {
        struct status_note note;
        status_fail(&note, STATUS_INVALID, "unknown command '%s' (see: kvick --help)", argv[1]);
        cmd_fail(NULL, STATUS_INVALID, &note);
        return CMD_EXIT_USAGE;
    }
    int exit_code = run_command(command, argc - 2, argv + 2);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "kvick: cannot write to standard output\n");
        return CMD_EXIT_FAILURE;
    }
    return exit_code;
}
