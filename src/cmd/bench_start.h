/* bench_start: `kvick bench start MODEL`: from a process's start to the first token of the answer to "Hi", as a person
 * meets it: each run is a `kvick run` of its own.
 *
 * Thread: main. */
#ifndef KVICK_CMD_BENCH_START_H
#define KVICK_CMD_BENCH_START_H

#include "base/options.h"

/* Prints where the time goes, medians over --rounds runs, as a table or JSON. Returns the process's exit status; a
 * target (--target-ms) that is not reached is no failure. */
int bench_start(const struct options *options, const char *model);

#endif
