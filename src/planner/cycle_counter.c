#include "planner/cycle_counter.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

bool cycle_counter_open(struct cycle_counter *counter) {
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_HW_CPU_CYCLES,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    counter->fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    return counter->fd >= 0;
}

void cycle_counter_close(struct cycle_counter *counter) {
    if (counter->fd >= 0) close(counter->fd);
    counter->fd = -1;
}

uint64_t cycle_counter_read(const struct cycle_counter *counter) {
    uint64_t n = 0;
    if (counter->fd < 0 || read(counter->fd, &n, sizeof n) != (ssize_t)sizeof n) return 0;
    return n;
}
