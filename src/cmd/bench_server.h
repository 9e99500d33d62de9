/* bench_server: a `kvick serve` of our own to measure: started on a free port of 127.0.0.1, ended with us. */
#ifndef KVICK_CMD_BENCH_SERVER_H
#define KVICK_CMD_BENCH_SERVER_H

#include <sys/types.h>

#include "base/options.h"

#define BENCH_SERVER_MAX_ARGUMENTS 48

struct bench_server {
    pid_t pid; /* 0: none runs */
    int fd;    /* its standard output */
    char url[64];
};

/* Extra arguments of serve, behind those that options give: a later one wins. */
struct bench_server_extra {
    const char *words[16];
    int n_words;
};

/* Returns when it can answer. options: of the bench command; those about the engine are passed on. extra: may be NULL.
 * Errors: STATUS_IO, STATUS_PEER (it ended; its own words are on stderr). */
WARN_UNUSED enum status bench_server_start(struct bench_server *server, const char *model,
                                           const struct options *options, const struct bench_server_extra *extra,
                                           struct status_note *note);

/* Ends it and waits for that. No effect if none runs. */
void bench_server_stop(struct bench_server *server);

#endif
