/* bench_controls: `kvick bench phases MODEL --controls`: what each idea of the server buys, by taking it away. */
#ifndef KVICK_CMD_BENCH_CONTROLS_H
#define KVICK_CMD_BENCH_CONTROLS_H

#include "base/options.h"

/* The exit status: 1 also when a control's ids differ. */
int bench_controls(const struct options *options, const char *model);

#endif
