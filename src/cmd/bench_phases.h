/* bench_phases: `kvick bench phases MODEL`, or `--url URL`: the phases of a server, as a report. */
#ifndef KVICK_CMD_BENCH_PHASES_H
#define KVICK_CMD_BENCH_PHASES_H

#include "base/options.h"

/* model: NULL with --url. The exit status. */
int bench_phases(const struct options *options, const char *model);

#endif
