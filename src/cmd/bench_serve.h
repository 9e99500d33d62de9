/* bench_serve: `kvick bench serve --url URL`, or MODEL: a server under the kinds of load that servers meet. */
#ifndef KVICK_CMD_BENCH_SERVE_H
#define KVICK_CMD_BENCH_SERVE_H

#include "base/options.h"

/* model: NULL with --url. The exit status: 1 also when requests failed otherwise than by a refusal. */
int bench_serve(const struct options *options, const char *model);

#endif
