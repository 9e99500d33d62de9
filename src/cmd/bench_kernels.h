/* bench_kernels: `kvick bench kernels`: every kernel against the machine's limits, measured in the same run.
 *
 * Thread: main. */
#ifndef KVICK_CMD_BENCH_KERNELS_H
#define KVICK_CMD_BENCH_KERNELS_H

#include "base/options.h"

/* Prints a table or JSON. Returns the process's exit status; a target that is not reached is no failure. */
int bench_kernels(const struct options *options);

#endif
