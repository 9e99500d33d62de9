/* thread: start, join and identity of threads.
 *
 * Every thread of ours starts here, so that names and floating-point state are the same everywhere. */
#ifndef KVICK_BASE_THREAD_H
#define KVICK_BASE_THREAD_H

#include <pthread.h>

#include "base/status.h"

struct thread {
    pthread_t handle;
};

typedef void thread_fn(void *arg);

/* name: at most 15 bytes, shown by ps and perf. Signals stay with the main thread. Errors: STATUS_LIMIT when the system
 * refuses another thread. */
WARN_UNUSED enum status thread_start(struct thread *thread, const char *name, thread_fn *fn, void *arg);
void thread_join(struct thread *thread);

/* Rounds to nearest and keeps denormals (MXCSR, FPCR) in the calling thread: exactness rule 8. thread_start does it for
 * new threads, main() for the first. */
void thread_set_float_state(void);

/* The calling thread sleeps; for waits that no event ends. */
void thread_sleep_ms(int n_ms);

/* The calling thread runs when others leave a core free, and a little beside them. */
void thread_give_way(void);

/* Binds the calling thread to the n-th CPU of its affinity mask; without effect if there is none. */
void thread_pin(int cpu_idx);

/* The calling thread may run wherever the process's first thread may. */
void thread_unpin(void);

#endif
