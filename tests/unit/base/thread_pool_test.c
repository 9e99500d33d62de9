#include "base/thread_pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "support/test.h"

#define MAX_TASKS 3000
#define N_RUNS 3000
#define IDLE_MS 300

struct work {
    int n_tasks, n_threads;
    int n_done[MAX_TASKS]; /* plain writes: the pool alone makes them visible */
    int n_inside[4];       /* per worker: worker_idx is nobody else's meanwhile */
    atomic_int n_errors;
    int per_worker[4];
};

static void do_task(void *arg, int task_idx, int worker_idx) {
    struct work *work = arg;
    if (task_idx < 0 || task_idx >= work->n_tasks || worker_idx < 0 || worker_idx >= work->n_threads ||
        ++work->n_inside[worker_idx] != 1) {
        atomic_fetch_add(&work->n_errors, 1);
        return;
    }
    work->n_done[task_idx]++;
    work->per_worker[worker_idx]++;
    work->n_inside[worker_idx]--;
}

static unsigned long long seed_of_run(void) {
    const char *asked = getenv("KVICK_SEED");
    unsigned long long seed = asked ? strtoull(asked, NULL, 10) : (unsigned long long)time(NULL);
    print_message("KVICK_SEED=%llu\n", seed);
    return seed;
}

static void run_random(int n_threads, unsigned long long seed) {
    static struct work work;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_create(&pool, n_threads), STATUS_OK);
    assert_int_equal(thread_pool_n_threads(pool), n_threads);
    long n_all = 0, n_by_others = 0;
    for (uint32_t run = 0; run < N_RUNS; run++) {
        double u = rng_uniform(seed, (uint32_t)n_threads, run);
        work = (struct work){.n_threads = n_threads};
        work.n_tasks = run % 3 ? (int)(u * 20) : (int)(u * MAX_TASKS);
        if (run % 500 == 499) usleep(2000); /* long enough for the workers to fall asleep */
        thread_pool_run(pool, do_task, &work, work.n_tasks);
        assert_int_equal(work.n_errors, 0);
        for (int i = 0; i < MAX_TASKS; i++) assert_int_equal(work.n_done[i], i < work.n_tasks);
        for (int i = 1; i < n_threads; i++) n_by_others += work.per_worker[i];
        n_all += work.n_tasks;
    }
    print_message("%d threads: %ld tasks, %ld of them not by the caller\n", n_threads, n_all, n_by_others);
    assert_true(n_threads == 1 ? n_by_others == 0 : n_by_others > 0);
    thread_pool_destroy(&pool);
    assert_null(pool);
}

static void every_task_is_done_exactly_once(void **state) {
    (void)state;
    unsigned long long seed = seed_of_run();
    for (int n_threads = 1; n_threads <= 4; n_threads++) run_random(n_threads, seed);
}

struct meeting {
    int n_expected;
    atomic_int n_present;
    atomic_bool is_late;
};

/* Returns when all are inside at once. */
static void meet(void *arg, int task_idx, int worker_idx) {
    (void)task_idx, (void)worker_idx;
    struct meeting *meeting = arg;
    int64_t start_ns = clock_now_ns();
    atomic_fetch_add(&meeting->n_present, 1);
    while (atomic_load(&meeting->n_present) < meeting->n_expected) {
        sched_yield();
        if (clock_now_ns() - start_ns < 20000000000) continue;
        atomic_store(&meeting->is_late, true);
        return;
    }
}

/* A worker that missed its wake-up would keep the others waiting for ever. */
static void all_workers_come_also_when_they_slept(void **state) {
    (void)state;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_create(&pool, 4), STATUS_OK);
    for (int i = 0; i < 300; i++) {
        struct meeting meeting = {.n_expected = 4};
        if (i % 2) usleep((useconds_t)(150 + i)); /* about as long as they spin */
        thread_pool_run(pool, meet, &meeting, 4);
        assert_false(meeting.is_late);
        assert_int_equal(meeting.n_present, 4);
    }
    thread_pool_destroy(&pool);
}

static double cpu_ms(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

static void an_idle_pool_costs_nothing(void **state) {
    (void)state;
    static struct work work;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_create(&pool, 3), STATUS_OK);
    work = (struct work){.n_threads = 3, .n_tasks = 100};
    thread_pool_run(pool, do_task, &work, work.n_tasks);
    double start_ms = cpu_ms();
    usleep(IDLE_MS * 1000);
    double idle_ms = cpu_ms() - start_ms;
    print_message("%.2f ms of CPU time in %d ms\n", idle_ms, IDLE_MS);
    assert_true(idle_ms < 0.01 * IDLE_MS);
    thread_pool_destroy(&pool);
}

/* With a limit only the first workers come, also when it changes before every job and after long sleeps. */
static void a_limit_is_kept(void **state) {
    (void)state;
    static struct work work;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_create(&pool, 4), STATUS_OK);
    assert_int_equal(thread_pool_limit_now(pool), 4);
    for (int i = 0; i < 300; i++) {
        int limit = 1 + i * 7 % 4;
        thread_pool_limit(pool, limit);
        if (i % 3 == 0) usleep((useconds_t)(150 + i));
        struct meeting meeting = {.n_expected = limit};
        thread_pool_run(pool, meet, &meeting, limit);
        assert_false(meeting.is_late);
        work = (struct work){.n_threads = 4, .n_tasks = 50};
        thread_pool_run(pool, do_task, &work, work.n_tasks);
    }
    thread_pool_limit(pool, 1);
    usleep(1000);
    double start_ms = cpu_ms();
    usleep(IDLE_MS * 1000);
    assert_true(cpu_ms() - start_ms < 0.01 * IDLE_MS);
    thread_pool_destroy(&pool);
}

static void count_pinned(void *arg, int task_idx, int worker_idx) {
    atomic_int *n_pinned = arg;
    cpu_set_t cpus;
    (void)task_idx;
    if (worker_idx > 0 && sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) == 1)
        atomic_fetch_add(n_pinned, 1);
    usleep(100); /* so that others come too */
}

static void workers_stay_on_their_cores_until_they_are_let_loose(void **state) {
    (void)state;
    struct thread_pool *pool;
    if (cpu_n_usable() < 2) {
        print_message("this CPU has one core: nothing can be moved\n");
        skip();
    }
    assert_int_equal(thread_pool_create(&pool, cpu_n_usable()), STATUS_OK);
    atomic_int n_pinned = 0, n_loose = 0;
    thread_pool_run(pool, count_pinned, &n_pinned, 200);
    assert_true(n_pinned > 0);
    thread_pool_unpin(pool);
    for (int i = 0; i < 5; i++) {
        n_loose = 0;
        usleep(1000); /* whoever slept wakes up for the run and looks */
        thread_pool_run(pool, count_pinned, &n_loose, 200);
    }
    assert_int_equal(n_loose, 0);
    thread_pool_destroy(&pool);
}

static void pools_come_and_go(void **state) {
    (void)state;
    static struct work work;
    for (int i = 0; i < 200; i++) {
        struct thread_pool *pool;
        assert_int_equal(thread_pool_create(&pool, 1 + i % 4), STATUS_OK);
        work = (struct work){.n_threads = 4, .n_tasks = i % 7};
        if (i % 2) thread_pool_run(pool, do_task, &work, work.n_tasks);
        thread_pool_destroy(&pool);
    }
    struct thread_pool *none = NULL;
    thread_pool_destroy(&none);
}

static void wrong_numbers_of_threads_are_refused(void **state) {
    (void)state;
    static const int wrong[] = {0, -1, THREAD_POOL_MAX_THREADS + 1};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct thread_pool *pool = (struct thread_pool *)&pool;
        assert_int_equal(thread_pool_create(&pool, wrong[i]), STATUS_INVALID);
        assert_null(pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_is_done_exactly_once),
        cmocka_unit_test(all_workers_come_also_when_they_slept),
        cmocka_unit_test(an_idle_pool_costs_nothing),
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(a_limit_is_kept),
        cmocka_unit_test(workers_stay_on_their_cores_until_they_are_let_loose),
        cmocka_unit_test(wrong_numbers_of_threads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
