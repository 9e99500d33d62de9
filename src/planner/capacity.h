/* capacity: how much memory and how many threads this process may use, and what they are given to.
 *
 * Memory: the smallest of what the machine has available and what the process's control groups (v2 memory.max, v1
 * memory.limit_in_bytes, its own and those above) leave. Threads: cpu_n_usable.
 * Thread: main.   Memory: plain values.   Source: cgroups(7), Documentation/admin-guide/cgroup-v2.rst of Linux. */
#ifndef KVICK_PLANNER_CAPACITY_H
#define KVICK_PLANNER_CAPACITY_H

#include <stddef.h>
#include <stdio.h>

#include "base/status.h"
#include "model/model_config.h"

#define CAPACITY_MARGIN_SHARE 0.1 /* of what may be used: left for everybody else in the same group */

struct capacity_limits {
    size_t memory_bytes;     /* may still be used */
    char memory_source[128]; /* "the machine" or the control group's file */
};

/* root: "" on a real system; a folder with proc/ and sys/ below it in tests. */
void capacity_read_limits(struct capacity_limits *limits, const char *root);

/* What is asked for. */
struct capacity_request {
    size_t weight_bytes; /* of the model file: what packing it will take, nearly */
    enum dtype kv_dtype;
    int block_tokens;
    int max_context, max_sequences;
    int max_running;              /* at a time; max_sequences are those whose whole contexts fit */
    int usual_tokens;             /* of each of max_running, which fit too; 0: only the whole contexts count */
    int max_chunk;                /* prompt tokens of a step */
    int max_rows, max_logit_rows; /* of a step */
    size_t kv_bytes;              /* as told by the operator; 0: to be found */
};

struct capacity {
    struct capacity_limits limits;
    struct capacity_request request;
    size_t activation_bytes, logit_bytes, margin_bytes;
    size_t kv_bytes; /* layers with windows hold fewer tokens */
    int kv_tokens;   /* whole blocks */
};

/* Blocks of layers with a window where the others have n_blocks: twice what max_running sequences can see at a time, so
 * that as much again stays findable. */
int capacity_windowed_blocks(int window, int n_blocks, int max_running, int max_chunk, int block_tokens);

/* The pool: all that max_sequences full contexts or max_running usual requests can need, or what memory leaves; the
 * operator's kv_bytes, if he gives them.
 * n_vocab: config may not know it yet. Errors: STATUS_LIMIT when not even one full context fits, with the numbers;
 * those of kv_layers_init and kv_layout_init. */
WARN_UNUSED enum status capacity_plan(struct capacity *out, const struct capacity_limits *limits,
                                      const struct capacity_request *request, const struct model_config *config,
                                      int n_vocab, struct status_note *note);

/* The longest context, at most the request's, of which max_sequences fit into the pool; 0 if not even a block of each
 * does. */
int capacity_max_context(const struct capacity_limits *limits, const struct capacity_request *request,
                         const struct model_config *config, int n_vocab);

/* A table, one line per pool. */
void capacity_print(FILE *out, const struct capacity *capacity, int n_threads);

#endif
