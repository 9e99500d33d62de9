/* plan_sheet: what `kvick plan` says about models, side by side: verdicts first, then the table, or JSON.
 *
 * Thread: main.   Memory: caller's. */
#ifndef KVICK_CMD_PLAN_SHEET_H
#define KVICK_CMD_PLAN_SHEET_H

#include <stdio.h>

#include "planner/advise.h"
#include "sched/step_bound.h"

#define PLAN_SHEET_MAX_MODELS 6
#define PLAN_SHEET_N_PROMPTS 3

struct plan_sheet {
    const struct model_sizes *models[PLAN_SHEET_MAX_MODELS];
    int n_models;
    struct hw_rates rates;
    double memory_bytes;
    const char *memory_source;
    enum dtype kv_dtype;
    const char *kv_name;
    int block_tokens, n_sessions;
    int n_tokens[PLAN_SHEET_MAX_MODELS]; /* of a session, per model */
    /* What steps were measured to cost with this model on this machine, or NULL: then the machine's limits tell. */
    const struct step_cost *costs[PLAN_SHEET_MAX_MODELS];
    int max_chunk; /* prompt rows of a step, for times from costs; and how long it may take */
    struct step_limits limits;
    double target_ttft_ms, target_itl_ms;
};

/* How far a time that was measured in other steps may be off, to either side. */
#define PLAN_SHEET_MEASURED_SHARE 0.15

void plan_sheet_print(FILE *out, const struct plan_sheet *sheet);

/* Everything that print shows, and flops_linear, flops_attention, flops_logits of a prompt as long as a session.
 * Errors: STATUS_NOMEM. */
WARN_UNUSED enum status plan_sheet_print_json(FILE *out, const struct plan_sheet *sheet);

#endif
