#include "base/thread.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define LOW_PRIORITY 15 /* a thirtieth of a core that somebody else wants */

struct start {
    thread_fn *fn;
    void *arg;
    char name[16];
};

void thread_set_float_state(void) {
#if defined(__x86_64__)
    _mm_setcsr(0x1f80); /* all exceptions masked, nearest even, no flush to zero, denormals are values */
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, xzr");
#endif
}

static void *enter(void *raw) {
    struct start start = *(struct start *)raw;
    mem_free(raw);
    sigset_t all;
    sigfillset(&all); /* signals are for the main thread, whose waits they end; faults still kill */
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_setname_np(pthread_self(), start.name);
    thread_set_float_state();
    start.fn(start.arg);
    return NULL;
}

enum status thread_start(struct thread *thread, const char *name, thread_fn *fn, void *arg) {
    struct start *start = mem_alloc(sizeof *start);
    if (!start) return STATUS_NOMEM;
    *start = (struct start){.fn = fn, .arg = arg};
    snprintf(start->name, sizeof start->name, "%s", name);
    if (pthread_create(&thread->handle, NULL, enter, start) == 0) return STATUS_OK;
    mem_free(start);
    return STATUS_LIMIT;
}

void thread_join(struct thread *thread) {
    pthread_join(thread->handle, NULL);
}

void thread_sleep_ms(int n_ms) {
    poll(NULL, 0, n_ms);
}

void thread_give_way(void) {
    /* 0 is the calling thread: Linux keeps this number for each. Refused, it works all the same. */
    int is_refused = setpriority(PRIO_PROCESS, 0, LOW_PRIORITY);
    (void)is_refused;
}

void thread_pin(int cpu_idx) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    int n_seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || n_seen++ != cpu_idx) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

void thread_unpin(void) {
    cpu_set_t all;
    if (sched_getaffinity(getpid(), sizeof all, &all) == 0) pthread_setaffinity_np(pthread_self(), sizeof all, &all);
}
