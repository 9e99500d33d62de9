/* sim_world: the scheduler with a fake model and a fake clock: a step takes what the cost model says, or that times
 * noise. Requests come at given times; what became of each stands in sim_request afterwards.
 * Every step is checked: its bound, its rows, and that no block is lost. */
#ifndef KVICK_SUPPORT_SIM_WORLD_H
#define KVICK_SUPPORT_SIM_WORLD_H

#include "base/rng.h"
#include "sched/admission.h"

#define SIM_MS INT64_C(1000000)
#define SIM_S INT64_C(1000000000)

struct sim_options {
    enum policy_kind policy;
    struct plan_limits limits;
    struct admission_limits admission;
    int n_blocks, block_tokens;
    double noise; /* a step takes up to this share more or less than predicted */
    bool has_index;
    uint64_t seed;
};

struct sim_request {
    /* Given: */
    int64_t at_ns;
    int n_prompt, max_new;
    enum terms_class service_class;
    uint64_t tenant;
    double weight;
    int64_t patience_ns; /* deadline of the first token after arrival; 0: none */
    int64_t cancel_ns;   /* after arrival; 0: never */
    uint64_t prefix;     /* requests with the same prefix number begin alike */
    int n_prefix;
    bool is_forced; /* taken even if admission refuses it for its time, with the estimate as promise */
    /* Filled: */
    struct admission_answer answer;
    struct terms terms;
    int64_t first_token_ns, end_ns; /* 0: not reached */
    int64_t longest_gap_ns;         /* between two tokens */
    bool is_cancelled;
};

struct sim_slot;

struct sim_world {
    struct sim_options options;
    struct kv_groups groups;
    struct plan plan;
    struct plan_state state;
    struct admission admission;
    struct sim_slot *slots; /* [max_sequences] */
    int64_t now_ns, busy_ns;
    uint32_t n_draws;
    long n_steps, n_rows, n_over_bound, n_mixed, n_several;
    long n_prompt_tokens; /* run */
    int64_t longest_wait_ns;
};

/* A plausible machine: 12 ms for a row, about 1,200 prompt tokens a second. */
void sim_cost(struct step_cost *cost);

/* limits with a bound of 50 ms (60 when nobody decodes). */
struct plan_limits sim_limits(int max_sequences, int max_chunk);

void sim_open(struct sim_world *world, const struct sim_options *options);
void sim_close(struct sim_world *world);

/* Plays requests (by at_ns, ascending) until all are done, or until end_ns if it is not 0; then what is left is
 * cancelled. */
void sim_play(struct sim_world *world, struct sim_request *requests, int n_requests, int64_t end_ns);

double sim_uniform(struct sim_world *world);

/* Exponentially distributed with mean 1, from a uniform number in [0, 1). */
double sim_exponential(double uniform);

/* Of values[n], sorted in place. */
int64_t sim_percentile(int64_t *values, int n, double share);

/* Machine time of a prompt at best: in the cheapest chunks, alone. */
int64_t sim_least_work_ns(const struct step_cost *cost, int n_prompt);

#endif
