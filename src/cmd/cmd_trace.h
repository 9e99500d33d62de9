/* cmd_trace: what replay and sim share: a trace, the work that a cost model sees in it, and the printed result. */
#ifndef KVICK_CMD_CMD_TRACE_H
#define KVICK_CMD_CMD_TRACE_H

#include "base/options.h"
#include "bench/simulate.h"
#include "bench/work.h"
#include "cmd/cmd_engine.h"
#include "engine/engine.h"
#include "planner/cost_model.h"

struct cmd_trace {
    struct trace trace;
    struct work *work; /* [n_requests] */
    int64_t *solo_ns;  /* [n_requests] */
    double scale;      /* of the arrivals */
    double busy_ns;    /* what the machine takes for all requests when they are there at once */
    double n_bound;    /* requests that could be in time at most; -1: not known */
    const char *cost_source;
};

/* One of cmd_engine_open, which loads the model, and cmd_engine_open_file. */
typedef enum status cmd_trace_open_fn(struct cmd_engine *model, const char *name, const struct options *options,
                                      const struct cmd_engine_needs *needs, struct status_note *note);
typedef enum status cmd_trace_fn(const struct options *options, struct cmd_trace *opened,
                                 const struct cmd_engine *model, struct status_note *note);

/* A command over words TRACE [MODEL]: opens both, runs, and closes. Returns the exit status. */
int cmd_trace_run(const char *command, cmd_trace_open_fn *open_model, cmd_trace_fn *run, const struct options *options,
                  int n_words, const char **words);

/* How an engine with these options is simulated. */
struct simulate_options cmd_trace_simulation(const struct engine_options *options, const struct cost_model *cost,
                                             int n_vocab);

/* Finds work, capacity, scale and bound. source: of the costs in how. Errors: STATUS_NOMEM, as simulate_run. */
WARN_UNUSED enum status cmd_trace_weigh(struct cmd_trace *opened, const struct simulate_options *how,
                                        enum cost_model_source source, struct status_note *note);

/* Errors: STATUS_NOMEM. */
WARN_UNUSED enum status cmd_trace_print(const struct cmd_trace *opened, const struct outcomes *outcomes,
                                        bool with_requests);

#endif
