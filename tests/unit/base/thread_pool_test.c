#include "base/thread_pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "support/test.h"

#define MAX_TASKS 3000

static int written[MAX_TASKS];       /* by the task, without atomics: the pool makes it visible */
static atomic_int n_runs[MAX_TASKS]; /* relaxed: counts */
static atomic_int n_inside[THREAD_POOL_MAX_THREADS];
static int n_threads_now;

static void task(void *arg, int task_idx, int worker_idx) {
    assert_in_range(worker_idx, 0, n_threads_now - 1);
    if (atomic_fetch_add(&n_inside[worker_idx], 1) != 0) abort(); /* two at a time under one index */
    written[task_idx] = *(int *)arg + task_idx;
    atomic_fetch_add_explicit(&n_runs[task_idx], 1, memory_order_relaxed);
    atomic_fetch_sub(&n_inside[worker_idx], 1);
}

static void check_runs(int n_threads, int n_rounds) {
    struct thread_pool *pool;
    n_threads_now = n_threads;
    assert_int_equal(thread_pool_create(&pool, n_threads), STATUS_OK);
    assert_int_equal(thread_pool_n_threads(pool), n_threads);
    for (int round = 0; round < n_rounds; round++) {
        uint32_t counter[4] = {(uint32_t)round, (uint32_t)n_threads, 0, 0}, random[4];
        rng_philox(1, counter, random);
        int n_tasks = (int)(random[0] % (random[1] % 8 ? 20 : MAX_TASKS + 1)), base = (int)(random[2] % 1000);
        memset(n_runs, 0, sizeof n_runs);
        if (random[3] % 64 == 0) usleep(400); /* long enough for workers to fall asleep */
        thread_pool_run(pool, task, &base, n_tasks);
        for (int i = 0; i < n_tasks; i++) {
            assert_int_equal(n_runs[i], 1);
            assert_int_equal(written[i], base + i);
        }
        assert_int_equal(n_runs[n_tasks < MAX_TASKS ? n_tasks : 0], n_tasks < MAX_TASKS ? 0 : 1);
    }
    thread_pool_destroy(&pool);
    assert_null(pool);
}

static void every_task_runs_once(void **state) {
    (void)state;
    for (int n_threads = 1; n_threads <= 5; n_threads++) check_runs(n_threads, 2000);
    check_runs(16, 100);
}

static void bad_sizes_are_refused(void **state) {
    struct thread_pool *pool;
    (void)state;
    assert_int_equal(thread_pool_create(&pool, 0), STATUS_INVALID);
    assert_null(pool);
    assert_int_equal(thread_pool_create(&pool, -1), STATUS_INVALID);
    assert_int_equal(thread_pool_create(&pool, THREAD_POOL_MAX_THREADS + 1), STATUS_INVALID);
    thread_pool_destroy(&pool);
}

static double cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* < 1 % of a core over 300 ms. */
static void an_idle_pool_sleeps(void **state) {
    struct thread_pool *pool;
    int base = 0;
    (void)state;
    n_threads_now = 4;
    assert_int_equal(thread_pool_create(&pool, 4), STATUS_OK);
    thread_pool_run(pool, task, &base, 100);
    usleep(100000);
    double before_ms = cpu_ms();
    usleep(300000);
    double used_ms = cpu_ms() - before_ms;
    if (used_ms >= 3) fail_msg("%g ms of CPU time in 300 ms", used_ms);
    thread_pool_run(pool, task, &base, 100); /* and wakes */
    thread_pool_destroy(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(bad_sizes_are_refused),
        cmocka_unit_test(an_idle_pool_sleeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
