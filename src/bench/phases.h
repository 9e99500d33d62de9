/* phases: prefill and decode of one server, apart: time to first token against prompt length, time per token against
 * context, both again behind a shared system prompt, and which of the two fills the time of typical requests.
 *
 * One request at a time, so that nothing but the request itself is measured; times are the client's. Each prompt is new
 * to the server from its first words on. Rounds repeat everything until the budget is used; a figure is a median.
 * Thread: the caller's.   Memory: fixed. */
#ifndef KVICK_BENCH_PHASES_H
#define KVICK_BENCH_PHASES_H

#include "bench/fit.h"
#include "bench/load_client.h"

#define PHASES_MAX_POINTS 16
#define PHASES_MAX_ROUNDS 9
#define PHASES_MAX_CASES 6
#define PHASES_MAX_SAMPLES 1024

struct phases_options {
    double budget_s;   /* what measuring may take; begun requests end */
    int max_prompt;    /* tokens; 0: what the server's context holds */
    int shared_tokens; /* of the system prompt that requests share */
};

/* One request. */
struct phases_sample {
    int series; /* enum phases_series */
    int idx;    /* of its point, or its case */
    int round;
    int n_prompt, n_cached, n_new; /* as the server counts; n_cached -1: it does not say */
    double ttft_ms, token_ms;      /* token_ms -1: too few came to tell */
    double total_ms;
    bool has_phases;
    double phase_ms[N_PHASES];
    double unaccounted_ms;
};

enum phases_series { PHASES_COLD, PHASES_SHARED, PHASES_CASE, PHASES_N_SERIES };

/* Requests of one length: medians over the rounds. */
struct phases_point {
    int n_wanted; /* prompt tokens aimed at */
    int n_prompt, n_cached;
    double ttft_ms, least_ttft_ms, most_ttft_ms;
    double token_ms; /* at this context */
    int n_samples;   /* 0: not measured, it would have taken too long */
};

/* A kind of request as users send them. */
struct phases_case {
    const char *prompt_name, *answer_name; /* "short", "long" */
    bool is_shared;
    int n_wanted, n_answer; /* tokens */
    int n_prompt, n_cached, n_new;
    double ttft_ms, decode_ms; /* decode_ms: from the first token to the last */
    int n_samples;
};

struct phases {
    struct phases_point cold[PHASES_MAX_POINTS], shared[PHASES_MAX_POINTS];
    int n_cold, n_shared;
    struct phases_case cases[PHASES_MAX_CASES];
    int n_cases;
    int shared_tokens; /* words were chosen to make so many */
    int n_rounds;
    bool is_cut; /* longer prompts than those measured would fit, but not into the budget */
    bool has_fit, has_decode_fit;
    struct fit ttft;         /* ms over prompt tokens, cold */
    struct fit decode;       /* ms per token over context, degree 1 */
    double crossover_tokens; /* N*, where the quadratic term passes the linear one; 0: it never does */
    double wall_s;
    struct phases_sample samples[PHASES_MAX_SAMPLES];
    int n_samples;
};

/* Called before each request; share: of the budget used. */
typedef void phases_progress_fn(void *owner, double share);

/* Errors: STATUS_PEER with the server's words when a request fails; STATUS_LIMIT when its context is too short or the
 * budget ends before anything can be fitted; STATUS_NOMEM. */
WARN_UNUSED enum status phases_measure(struct phases *phases, const struct load_target *target,
                                       const struct phases_options *options, phases_progress_fn *progress, void *owner,
                                       struct status_note *note);

/* Medians, fits and crossover out of the samples; phases_measure does it. */
void phases_conclude(struct phases *phases);

/* Answer tokens from which on decode takes longer than the first token took, behind a prompt like the point's; 0: not
 * known. */
double phases_even_tokens(const struct phases_point *point);

/* Cold and shared of about the same length: what the shared prompt saves, in ms; NAN without a cold partner. */
double phases_saved_ms(const struct phases *phases, const struct phases_point *shared);

/* Share of the time up to the first token, 0..1. */
double phases_prefill_share(const struct phases_case *one);

#endif
