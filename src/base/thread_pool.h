/* thread_pool: runs one function over task numbers on all workers.
 *
 * The caller is worker 0. Tasks are claimed one at a time from a counter, so a worker whose core the host takes away
 * costs one task, not a share. Workers spin briefly after work, then sleep on a futex. Where the pool takes all cores
 * that the process may use, each worker stays on its own.
 * Thread: one caller at a time, always the same thread.   Memory: fixed at create. */
#ifndef KVICK_BASE_THREAD_POOL_H
#define KVICK_BASE_THREAD_POOL_H

#include "base/status.h"

#define THREAD_POOL_MAX_THREADS 256
#define THREAD_POOL_MAX_TASKS 500000

struct thread_pool;

/* worker_idx: 0..n_threads-1, stable within a task: scratch memory may be indexed by it. */
typedef void thread_pool_fn(void *arg, int task_idx, int worker_idx);

/* n_threads: 1..THREAD_POOL_MAX_THREADS, the caller included. Errors: STATUS_NOMEM, STATUS_LIMIT, STATUS_INVALID. */
WARN_UNUSED enum status thread_pool_create(struct thread_pool **out_pool, int n_threads);
void thread_pool_destroy(struct thread_pool **pool);

int thread_pool_n_threads(const struct thread_pool *pool);

/* The next runs use the first n_threads of the pool's threads only, the caller included; the others sleep. */
void thread_pool_limit(struct thread_pool *pool, int n_threads);
int thread_pool_limit_now(const struct thread_pool *pool);

/* Workers are moved between cores as the system likes. */
void thread_pool_unpin(struct thread_pool *pool);

/* Returns when fn has returned for every task 0..n_tasks-1; all their writes are visible to the caller.
 * Not reentrant: fn must not call it. */
void thread_pool_run(struct thread_pool *pool, thread_pool_fn *fn, void *arg, int n_tasks);

#endif
