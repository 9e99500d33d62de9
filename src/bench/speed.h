/* speed: how fast an engine fills a prompt and decodes, and how much work and reading that was.
 *
 * Thread: the engine's one client. */
#ifndef KVICK_BENCH_SPEED_H
#define KVICK_BENCH_SPEED_H

#include "engine/engine.h"

struct speed_plan {
    int n_prefill; /* prompt tokens, random, never cached; at least 1 */
    int n_decode;  /* tokens after the first; 0: decode is not measured */
    int n_streams; /* answers decoded at a time; the prefill is always that of one prompt */
    int n_rounds;  /* after one warm-up */
};

/* Medians over the rounds. */
struct speed_rates {
    double prefill_tok_s; /* prompt tokens / wall time from the first to the last step of the prompt */
    double decode_tok_s;  /* all streams together, while all of them decode; 0 if not measured */
};

/* Tokens that one stream's context must hold; several streams need more, the more they differ in their starts. */
int speed_context_tokens(const struct speed_plan *plan);

/* Errors: as a request was refused, with its note; STATUS_NOMEM. */
WARN_UNUSED enum status speed_measure(struct engine *engine, const struct speed_plan *plan,
                                      struct speed_rates *out_rates, struct status_note *note);

/* Multiply-adds with weights that a prefill must do: every layer's matrices for every token, but of the last layer only
 * K and V; what follows them, and the output layer, for the one row whose logits are asked. Attention's own products
 * are not counted. */
double speed_prefill_macs(const struct model_config *config, int n_tokens);

/* Bytes of K and V that one stream reads per decoded token, mean over the plan. */
double speed_kv_bytes(const struct model_config *config, const struct speed_plan *plan, enum dtype kv_dtype);

#endif
