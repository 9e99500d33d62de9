/* cmd_trace: what replay and sim share: a trace, the work that a cost model sees in it, and the printed result. */
#ifndef KVICK_CMD_CMD_TRACE_H
#define KVICK_CMD_CMD_TRACE_H

#include "base/options.h"
#include "bench/simulate.h"
#include "bench/work.h"
#include "engine/engine.h"
#include "planner/cost_model.h"

#define CMD_TRACE_DEFAULT_MODEL "smollm2"

struct cmd_trace {
    struct trace trace;
    struct work *work; /* [n_requests] */
    int64_t *solo_ns;  /* [n_requests] */
    double scale;      /* of the arrivals */
    double busy_ns;    /* what the machine takes for all requests when they are there at once */
    double n_bound;    /* requests that could be in time at most; -1: not known */
    const char *cost_source;
};

/* Whether the words and options make sense; prints the usage and returns its exit status if not, else 0. */
int cmd_trace_check(const char *command, const struct options *options, int n_words);

/* Errors: as trace_read, with the path in note. */
WARN_UNUSED enum status cmd_trace_open(struct cmd_trace *opened, const char *path, struct status_note *note);
void cmd_trace_close(struct cmd_trace *opened);

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
