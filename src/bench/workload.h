/* workload: made-up requests of a kind that servers meet, as a trace: what bench serve sends.
 *
 * Thread: any. */
#ifndef KVICK_BENCH_WORKLOAD_H
#define KVICK_BENCH_WORKLOAD_H

#include "bench/trace.h"

/* XX(name, what it shows) */
#define WORKLOAD_MAP(XX)                                                                                               \
    XX(length, "short and long prompts, one at a time")                                                                \
    XX(prefix, "the same beginning in every prompt")                                                                   \
    XX(unique, "the control of prefix: equal lengths, nothing shared")                                                 \
    XX(interference, "streams read while long prompts come")                                                           \
    XX(turns, "conversations whose every turn continues the last")                                                     \
    XX(agents, "short answers to prompts that grow by what tools say")                                                 \
    XX(storm, "many long prompts at once beside short ones")

enum workload_kind {
#define XX(name, what) WORKLOAD_##name,
    WORKLOAD_MAP(XX)
#undef XX
        WORKLOAD_N_KINDS
};

/* A trace of the kind whose requests fit into max_context tokens. Errors: STATUS_NOMEM; STATUS_LIMIT if none fits. */
WARN_UNUSED enum status workload_make(struct trace *trace, enum workload_kind kind, int max_context,
                                      struct status_note *note);

const char *workload_name(enum workload_kind kind);

#endif
