/* phase_stats: where the time of one request went; every part has its own two stamps, none is a remainder.
 *
 * Thread: written by the engine until the request goes home, read by its owner afterwards. */
#ifndef KVICK_ENGINE_PHASE_STATS_H
#define KVICK_ENGINE_PHASE_STATS_H

#include <stdint.h>

struct phase_stats {
    int64_t submitted_ns; /* by the client, before the inbox */
    int64_t admitted_ns;
    int64_t prefill_start_ns, prefill_end_ns; /* first and last step with a part of the prompt */
    int64_t prefill_own_ns;                   /* sum of those steps */
    int64_t first_token_ns;                   /* sampled */
    int64_t last_token_ns;
    int64_t decode_own_ns; /* sum of the steps that made the tokens after the first */
    int64_t finished_ns;
    int n_prompt_tokens, n_cached_tokens, n_new_tokens;
    int n_prefill_steps;
};

static inline double phase_stats_ms(int64_t from_ns, int64_t to_ns) {
    return (double)(to_ns - from_ns) / 1e6;
}

#endif
