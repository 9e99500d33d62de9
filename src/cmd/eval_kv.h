/* eval_kv: kvick eval kv MODEL. */
#ifndef KVICK_CMD_EVAL_KV_H
#define KVICK_CMD_EVAL_KV_H

#include "base/options.h"

/* Returns the process's exit status: 0 where the type passes. */
int eval_kv_run(const struct options *options, const char *model);

#endif
