/* cost_model: what steps cost on this machine with this model: measured once, kept on disk (cost_file), corrected while
 * it runs.
 *
 * It fills the plain coefficients of sched/step_cost.h. Before anything is measured it guesses, so that nobody waits.
 * Rows are corrected in three regimes apart, because kernels change with the rows of a step, and keys apart from rows,
 * because far into a long prompt they are nearly all that a step does.
 * Thread: the owner's (engine), calls that measure keep it busy.   Memory: a plain value.
 * docs/internals/cost_model.md says what is measured and how the file looks. */
#ifndef KVICK_PLANNER_COST_MODEL_H
#define KVICK_PLANNER_COST_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hash.h"
#include "kernels/kernel_table.h"
#include "model/model_config.h"
#include "sched/step_bound.h"

#define COST_MODEL_KEY_BYTES 512
#define COST_MODEL_N_REGIMES 3 /* up to 16 rows, up to 96, above */
#define COST_MODEL_N_RECENT 5

/* What is corrected apart: the regimes, then keys. */
enum { COST_MODEL_PREFILL_KEYS = COST_MODEL_N_REGIMES, COST_MODEL_DECODE_KEYS, COST_MODEL_N_PARTS };

enum cost_model_source { COST_MODEL_GUESSED, COST_MODEL_READ, COST_MODEL_MEASURED };

struct cost_model {
    char key[COST_MODEL_KEY_BYTES]; /* what it is valid for, one line */
    enum cost_model_source source;
    bool is_disturbed; /* the measurement's repeats disagree: something else ran; good for now, to be measured anew at
                          the next start */
    struct step_cost base; /* as measured, read or guessed */
    /* Measured by predicted, of late, of steps that consist mostly of this part. */
    struct {
        double recent[COST_MODEL_N_RECENT];
        int n_seen;
        double correction;
    } parts[COST_MODEL_N_PARTS];
    double slowness; /* corrected by base, over the steps of the last second or so */
};

/* What the figures depend on beside the model. */
struct cost_model_setup {
    const char *tier; /* of the kernels */
    int n_threads;
    const char *kv_type, *activations;
    double peak_macs_per_ns;            /* of one thread, for the guess; 0: it is measured */
    uint8_t weights[HASH_SHA256_BYTES]; /* identity of the model file */
};

/* Starts with a guess: from the model's size, a moment of peak_dots, and what memory usually gives.
 * weight_bytes: read by a step. */
void cost_model_init(struct cost_model *model, const struct cost_model_setup *setup, const struct model_config *config,
                     const struct kernel_table *kernels, size_t weight_bytes);

/* A step that is run to be measured: n_sequences with n_rows rows each, the first of them at position pos, and logits
 * for n_logit_rows of all rows. */
struct cost_model_probe {
    int n_sequences, n_rows, pos, n_logit_rows;
};

/* Runs a probe and returns how long it took. Each sequence has blocks of its own. Whatever a probe reads, an earlier
 * one has written. */
typedef int64_t cost_model_run_fn(void *arg, const struct cost_model_probe *probe);

struct cost_model_limits {
    int max_rows; /* of a probe */
    int max_pos;  /* the last position that a probe may have */
    int max_sequences;
    int max_logit_rows;
    int64_t budget_ns; /* every point is measured once; again only within this. Writing what is read later counts */
};

/* Measures; the corrections start anew.   Cost: budget_ns, or one run of each point if that is more. */
void cost_model_measure(struct cost_model *model, const struct cost_model_limits *limits, cost_model_run_fn *run,
                        void *arg);

/* The coefficients, corrections applied. */
void cost_model_fill(const struct cost_model *model, struct step_cost *out);

/* A step of this shape was predicted by what cost_model_fill gave, and took measured_ns. The difference is put down to
 * what the step mostly consists of: rows of its regime, or keys. One odd step changes nothing: the median of the last
 * five moves the part's correction by an eighth of its distance. */
void cost_model_observe(struct cost_model *model, const struct step_shape *shape, int64_t predicted_ns,
                        int64_t measured_ns);

/* Predicted time of a prompt's first token on an idle machine, cached tokens of it found. max_chunk: rows of a step;
 * steps are as long as they may be, by limits if there are any. */
int64_t cost_model_ttft_ns(const struct step_cost *cost, int n_prompt, int n_cached, int max_chunk,
                           const struct step_limits *limits);

#endif
