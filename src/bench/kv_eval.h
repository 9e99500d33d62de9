/* kv_eval: what a type of KV cache costs in answers, against the same model with float KV.
 *
 * Texts that the model wrote itself with float KV are read by both: perplexity, and the divergence of their next-token
 * distributions. Then both solve kv_tasks; a task counts only where float KV solves at least half of it.
 * Thread: one owner.   Memory: the float logits of the texts, at most KV_EVAL_MAX_BYTES. */
#ifndef KVICK_BENCH_KV_EVAL_H
#define KVICK_BENCH_KV_EVAL_H

#include "bench/kv_tasks.h"
#include "engine/engine_client.h"
#include "tokenizer/tokenizer.h"

#define KV_EVAL_VERSION 1 /* of tasks, bounds and quantized types: records of another one say nothing */
#define KV_EVAL_N_TEXTS 4
#define KV_EVAL_TEXT_TOKENS 160
#define KV_EVAL_MAX_BYTES ((size_t)256 << 20)

/* How much worse may it be: tests/bounds.json holds the same figures and says where they are from. */
#define KV_EVAL_MAX_PPL_RATIO 1.02
#define KV_EVAL_MAX_KL 0.01
#define KV_EVAL_MAX_LOSS 0.1      /* share of a task's cases, or one case */
#define KV_EVAL_MAX_ALL_LOSS 0.05 /* share of the cases of all tasks that count */

/* What one KV type did. */
struct kv_eval_run {
    int n_cases[KV_N_TASKS]; /* 0: longer than the model's context */
    bool is_right[KV_N_TASKS][KV_TASKS_MAX_CASES];
    double nll; /* mean over the rows of all texts */
};

struct kv_eval {
    uint32_t texts[KV_EVAL_N_TEXTS][KV_EVAL_TEXT_TOKENS];
    int n_rows; /* last ones of each text that are compared */
    int n_vocab;
    float *logits; /* [KV_EVAL_N_TEXTS][n_rows][n_vocab] with float KV */
    double mean_kl;
    struct kv_eval_run by_float, by_type;
};

struct kv_eval_task_result {
    int n_cases, n_float, n_type;
    bool is_counted, is_good;
};

struct kv_eval_result {
    double ppl_float, ppl_type, ppl_ratio, mean_kl;
    bool is_ppl_good, is_kl_good;
    struct kv_eval_task_result tasks[KV_N_TASKS];
    struct kv_eval_task_result all; /* of the tasks that count */
    bool is_passed;
};

/* Errors: STATUS_NOMEM. */
WARN_UNUSED enum status kv_eval_init(struct kv_eval *eval, int n_vocab);
void kv_eval_deinit(struct kv_eval *eval);

/* With float KV, which comes first. The engine takes one request at a time. Errors: as requests. */
WARN_UNUSED enum status kv_eval_reference(struct kv_eval *eval, struct engine *engine,
                                          const struct tokenizer *tokenizer, struct status_note *note);

/* With the type in question. */
WARN_UNUSED enum status kv_eval_compare(struct kv_eval *eval, struct engine *engine, const struct tokenizer *tokenizer,
                                        struct status_note *note);

void kv_eval_judge(const struct kv_eval *eval, struct kv_eval_result *out);

#endif
