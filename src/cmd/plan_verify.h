/* plan_verify: loads a model as `kvick serve` would and holds what was planned against what is: memory against the
 * system's own count, times against prompts that no calibration ran.
 *
 * Thread: main, for seconds. */
#ifndef KVICK_CMD_PLAN_VERIFY_H
#define KVICK_CMD_PLAN_VERIFY_H

#include "base/options.h"
#include "sched/step_cost.h"
#include "weights/gguf.h"
#include "weights/model_sizes.h"

/* The costs that serving this model measured on this machine earlier, if any; a small file is read. False: none.
 * options: as `kvick plan` has them. */
bool plan_verify_find_cost(const struct options *options, struct gguf *gguf, struct step_cost *out_cost);

/* Prints each line with PASS or short. Returns the process's exit status: 0 if all pass. */
int plan_verify_run(const struct options *options, const char *model, const struct model_sizes *sizes, int n_tokens);

#endif
