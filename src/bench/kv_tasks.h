/* kv_tasks: small tasks with one right answer each, made by code, that show what a KV cache's type costs: JSON,
 * arguments of tools, answers that a passage holds, a fact far back in a long text.
 *
 * A prompt is plain text that shows how it is done and ends where the answer begins, so that models without a chat
 * template can be asked. Equal numbers give equal prompts.   Thread: any. */
#ifndef KVICK_BENCH_KV_TASKS_H
#define KVICK_BENCH_KV_TASKS_H

#include <stdbool.h>

#include "base/str.h"

enum kv_task {
    KV_TASK_JSON,         /* the answer is a JSON object; nothing but the model sees to that */
    KV_TASK_TOOL,         /* a call's JSON has exactly the arguments that were asked for */
    KV_TASK_PASSAGE,      /* the place that the passage names, and no other of it */
    KV_TASK_NEEDLE_SHORT, /* a number told once, at several depths of filler, between others of its kind */
    KV_TASK_NEEDLE_MIDDLE,
    KV_TASK_NEEDLE_LONG,
    KV_N_TASKS
};

#define KV_TASKS_MAX_CASES 16

const char *kv_tasks_name(enum kv_task task);
int kv_tasks_n_cases(enum kv_task task);
int kv_tasks_max_new(enum kv_task task); /* tokens that an answer may need */

/* case_idx: 0 .. kv_tasks_n_cases - 1. Errors: those of str_append. */
WARN_UNUSED enum status kv_tasks_prompt(enum kv_task task, int case_idx, struct str *out);

/* answer: what the model wrote after the prompt, terminated; what comes after its first line is not looked at. */
bool kv_tasks_is_right(enum kv_task task, int case_idx, const char *answer);

#endif
