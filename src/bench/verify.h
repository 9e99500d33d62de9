/* verify: the same questions in every way the engine can compute them, and whether the answers agree bit for bit.
 *
 * Each case is a prompt, its greedy answer, and a follow-up (prompt, answer, a fixed tail) whose last logits are
 * wanted, so that K and V written by decode are read again. A combination's digest is SHA-256 over all ids and logits.
 * Thread: the caller's; every combination of chunk, threads and pool has an engine of its own, one at a time. */
#ifndef KVICK_BENCH_VERIFY_H
#define KVICK_BENCH_VERIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/hash.h"
#include "engine/engine.h"

#define VERIFY_MAX_RUNS 96

enum verify_company {
    VERIFY_ALONE,     /* one request at a time */
    VERIFY_BATCHED,   /* all cases at the same time */
    VERIFY_PREEMPTED, /* likewise, and a pool so small that some lose their blocks, which is checked */
    VERIFY_N_COMPANIES
};

struct verify_run {
    int chunk; /* 0: whole prompts */
    int n_threads;
    bool is_cached; /* the follow-up finds the earlier turn in the cache, which is checked */
    enum verify_company company;
    uint8_t digest[HASH_SHA256_BYTES];
};

/* Where two runs differ first: a sampled id, or a value of the logits. */
struct verify_difference {
    int run_a, run_b; /* into runs */
    int case_idx, n_prompt;
    int position; /* of the row or the token in its sequence */
    bool is_token;
    uint32_t token_a, token_b;
    int column;
    float logit_a, logit_b;
};

struct verify_report {
    struct verify_run runs[VERIFY_MAX_RUNS];
    int n_runs, n_distinct;
    struct verify_difference difference; /* meaningful when n_distinct > 1 */
};

/* base: the engine's options; chunk, threads, context, sequences, pool and cache are set here.
 * progress: gets a line per engine, or NULL.
 * Errors: as engine_create; STATUS_LIMIT when a run that must hit the cache or preempt did not, or the model's context
 * is too short; STATUS_NOMEM. */
WARN_UNUSED enum status verify_model(const struct engine_options *base, int model_context, FILE *progress,
                                     struct verify_report *report, struct status_note *note);

const char *verify_company_name(enum verify_company company);

#endif
