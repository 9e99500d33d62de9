#include "base/clock.h"

#include <stddef.h>
#include <time.h>

static const int64_t *fake_now_ns;

int64_t clock_now_ns(void) {
    if (fake_now_ns) return *fake_now_ns;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void clock_set_fake(const int64_t *now_ns) {
    fake_now_ns = now_ns;
}
