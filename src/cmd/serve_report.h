/* serve_report: what serve says it will do: pools, limits and what binds them, and what that means for answers. */
#ifndef KVICK_CMD_SERVE_REPORT_H
#define KVICK_CMD_SERVE_REPORT_H

#include "cmd/cmd_engine.h"
#include "cmd/serve_config.h"

/* What is known of the model before it is loaded, or afterwards. */
struct serve_facts {
    const struct serve_config *config;
    const struct cmd_engine *model;
    struct cost_model cost; /* without a source: see has_cost */
    bool has_cost;          /* steps are bounded in time, so what they cost is known */
    struct step_limits limits;
    size_t weight_bytes, kv_bytes;
    int n_keys; /* that may ask; 0: everybody */
};

/* From the file's header alone; the cost is what was measured before, else a guess. Errors: as forward_read_config. */
WARN_UNUSED enum status serve_report_expect(struct serve_facts *out, const struct serve_config *config,
                                            const struct cmd_engine *model, struct status_note *note);

/* From the engine, which can answer. */
void serve_report_read(struct serve_facts *out, const struct serve_config *config, const struct cmd_engine *model);

/* What bounds the longest context: "option", "memory" or "model". */
const char *serve_report_bound_by(const struct serve_config *config, const struct cmd_engine *model);

/* On standard output: the pools and limits, the step's bound and predicted times. */
void serve_report_print(const struct serve_facts *facts);

/* On the log: SLOs that cannot be met, and a door that is open. */
void serve_report_warn(const struct serve_facts *facts);

#endif
