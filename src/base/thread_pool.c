#include "base/thread_pool.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/thread.h"

/* The ticket word: epoch, number of tasks, next unclaimed task. One fetch_add claims a task and tells of which job, so
 * a late worker can never mix two jobs. The next field cannot overflow into the count: see the two maxima. */
#define NEXT_BITS 20
#define COUNT_BITS 20
#define NEXT_OF(word) ((int)((word) & ((1u << NEXT_BITS) - 1)))
#define COUNT_OF(word) ((int)((word) >> NEXT_BITS & ((1u << COUNT_BITS) - 1)))
#define EPOCH_OF(word) ((word) >> (NEXT_BITS + COUNT_BITS))

#define SPIN_NS 200000 /* longer than the gap between two operations of a step */
#define SPINS_PER_CLOCK_READ 64

struct job {
    thread_pool_fn *fn;
    void *arg;
    _Alignas(64) atomic_int n_done;
};

struct worker {
    struct thread_pool *pool;
    struct thread thread;
    int idx;
};

struct thread_pool {
    int n_threads;
    uint64_t epoch;
    /* A job is reused two epochs later, when all its tasks have been done: nobody can still hold a claim on it. */
    struct job jobs[2];
    _Alignas(64) _Atomic uint64_t word;
    _Alignas(64) atomic_uint wake_seq;
    atomic_int n_sleepers;
    atomic_bool is_ending, is_pinned;
    _Alignas(64) atomic_int limit; /* workers from here on wait on it as a futex; written by the caller between jobs */
    struct worker workers[THREAD_POOL_MAX_THREADS];
};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool has_work(const struct thread_pool *pool) {
    uint64_t word = atomic_load_explicit(&pool->word, memory_order_seq_cst);
    return NEXT_OF(word) < COUNT_OF(word);
}

/* Claims and runs tasks until none is left. */
static void work(struct thread_pool *pool, int worker_idx) {
    while (has_work(pool)) {
        /* acquire: pairs with the release of the word in thread_pool_run and makes the job's fields visible */
        uint64_t ticket = atomic_fetch_add_explicit(&pool->word, 1, memory_order_acq_rel);
        if (NEXT_OF(ticket) >= COUNT_OF(ticket)) return;
        struct job *job = &pool->jobs[EPOCH_OF(ticket) & 1];
        job->fn(job->arg, NEXT_OF(ticket), worker_idx);
        atomic_fetch_add_explicit(&job->n_done, 1, memory_order_release);
    }
}

static void sleep_until_woken(struct thread_pool *pool) {
    unsigned seen = atomic_load_explicit(&pool->wake_seq, memory_order_seq_cst);
    /* seq_cst on both sides: either the caller sees this sleeper, or this thread sees the new word */
    atomic_fetch_add_explicit(&pool->n_sleepers, 1, memory_order_seq_cst);
    if (!has_work(pool) && !atomic_load_explicit(&pool->is_ending, memory_order_seq_cst))
        syscall(SYS_futex, &pool->wake_seq, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub_explicit(&pool->n_sleepers, 1, memory_order_seq_cst);
}

/* Waits while the worker is beyond the limit. One that reads an old limit may still do a task of the next job, which
 * costs nothing but its core. */
static void wait_for_limit(struct thread_pool *pool, int worker_idx) {
    int limit = atomic_load_explicit(&pool->limit, memory_order_seq_cst);
    if (worker_idx < limit) return;
    syscall(SYS_futex, &pool->limit, FUTEX_WAIT_PRIVATE, limit, NULL, NULL, 0);
}

static void worker_main(void *arg) {
    struct worker *worker = arg;
    struct thread_pool *pool = worker->pool;
    bool is_pinned = atomic_load_explicit(&pool->is_pinned, memory_order_relaxed);
    if (is_pinned) thread_pin(worker->idx);
    int64_t idle_since_ns = clock_now_ns();
    while (!atomic_load_explicit(&pool->is_ending, memory_order_relaxed)) {
        if (is_pinned && !atomic_load_explicit(&pool->is_pinned, memory_order_relaxed)) {
            thread_unpin();
            is_pinned = false;
        }
        if (worker->idx >= atomic_load_explicit(&pool->limit, memory_order_relaxed)) {
            wait_for_limit(pool, worker->idx);
            continue;
        }
        if (has_work(pool)) {
            work(pool, worker->idx);
            idle_since_ns = clock_now_ns();
            continue;
        }
        for (int i = 0; i < SPINS_PER_CLOCK_READ && !has_work(pool); i++) relax();
        if (clock_now_ns() - idle_since_ns > SPIN_NS) {
            sleep_until_woken(pool);
            idle_since_ns = clock_now_ns();
        }
    }
}

static void wake_sleepers(struct thread_pool *pool) {
    if (atomic_load_explicit(&pool->n_sleepers, memory_order_seq_cst) == 0) return;
    atomic_fetch_add_explicit(&pool->wake_seq, 1, memory_order_seq_cst);
    syscall(SYS_futex, &pool->wake_seq, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void set_limit(struct thread_pool *pool, int limit) {
    atomic_store_explicit(&pool->limit, limit, memory_order_seq_cst);
    syscall(SYS_futex, &pool->limit, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

enum status thread_pool_create(struct thread_pool **out_pool, int n_threads) {
    *out_pool = NULL;
    if (n_threads < 1 || n_threads > THREAD_POOL_MAX_THREADS) return STATUS_INVALID;
    struct thread_pool *pool = mem_map_pages(sizeof *pool); /* cache-line aligned */
    if (!pool) return STATUS_NOMEM;
    pool->n_threads = 1;
    atomic_store_explicit(&pool->limit, n_threads, memory_order_relaxed);
    atomic_store_explicit(&pool->is_pinned, n_threads == cpu_n_usable(), memory_order_relaxed);
    for (int i = 1; i < n_threads; i++) {
        struct worker *worker = &pool->workers[i];
        char name[32];
        *worker = (struct worker){.pool = pool, .idx = i};
        snprintf(name, sizeof name, "worker%d", i);
        enum status status = thread_start(&worker->thread, name, worker_main, worker);
        if (status) {
            thread_pool_destroy(&pool);
            return status;
        }
        pool->n_threads++;
    }
    *out_pool = pool;
    return STATUS_OK;
}

void thread_pool_limit(struct thread_pool *pool, int n_threads) {
    REQUIRE(n_threads >= 1 && n_threads <= pool->n_threads);
    if (n_threads != thread_pool_limit_now(pool)) set_limit(pool, n_threads);
}

int thread_pool_limit_now(const struct thread_pool *pool) {
    return atomic_load_explicit(&pool->limit, memory_order_relaxed);
}

void thread_pool_unpin(struct thread_pool *pool) {
    atomic_store_explicit(&pool->is_pinned, false, memory_order_relaxed);
}

void thread_pool_destroy(struct thread_pool **pool_ptr) {
    struct thread_pool *pool = *pool_ptr;
    if (!pool) return;
    atomic_store_explicit(&pool->is_ending, true, memory_order_seq_cst);
    set_limit(pool, THREAD_POOL_MAX_THREADS + 1);
    atomic_fetch_add_explicit(&pool->wake_seq, 1, memory_order_seq_cst);
    syscall(SYS_futex, &pool->wake_seq, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    for (int i = 1; i < pool->n_threads; i++) thread_join(&pool->workers[i].thread);
    mem_unmap_pages(pool, sizeof *pool);
    *pool_ptr = NULL;
}

int thread_pool_n_threads(const struct thread_pool *pool) {
    return pool->n_threads;
}

void thread_pool_run(struct thread_pool *pool, thread_pool_fn *fn, void *arg, int n_tasks) {
    REQUIRE(n_tasks >= 0 && n_tasks <= THREAD_POOL_MAX_TASKS);
    if (n_tasks <= 1 || thread_pool_limit_now(pool) == 1) {
        for (int i = 0; i < n_tasks; i++) fn(arg, i, 0);
        return;
    }
    uint64_t epoch = ++pool->epoch;
    struct job *job = &pool->jobs[epoch & 1];
    job->fn = fn;
    job->arg = arg;
    atomic_store_explicit(&job->n_done, 0, memory_order_relaxed);
    uint64_t word = epoch << (NEXT_BITS + COUNT_BITS) | (uint64_t)n_tasks << NEXT_BITS;
    atomic_store_explicit(&pool->word, word, memory_order_seq_cst);
    wake_sleepers(pool);
    work(pool, 0);
    /* acquire: every task's writes happen before the caller goes on */
    while (atomic_load_explicit(&job->n_done, memory_order_acquire) < n_tasks) relax();
}
