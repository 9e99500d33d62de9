/* load_target: finds out which model a server has and what it understands.   Thread: one owner. */
#ifndef KVICK_BENCH_LOAD_TARGET_H
#define KVICK_BENCH_LOAD_TARGET_H

#include "bench/load_client.h"

/* What the user fixes; the rest is asked for. */
struct load_target_wishes {
    const char *url;      /* with or without /v1 */
    const char *model;    /* NULL: the first that the server lists */
    const char *api_key;  /* NULL: none; borrowed by the target */
    const char *endpoint; /* "chat", "completions"; NULL: chat where the server can, else completions */
    int max_context;      /* 0: as the server says */
};

/* Asks the server for its models and for two short answers. The target must stay where it is while clients use it.
 * Errors: STATUS_INVALID for wishes that make no sense, STATUS_PEER when the server does not answer as OpenAI's do,
 * STATUS_TIMEOUT, STATUS_NOMEM, all with a note. */
WARN_UNUSED enum status load_target_find(struct load_target *target, const struct load_target_wishes *wishes,
                                         struct status_note *note);

#endif
