/* clock: monotonic time, replaceable in tests.   Thread: any; set_fake only before threads start. */
#ifndef KVICK_BASE_CLOCK_H
#define KVICK_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds from an arbitrary start, never going back. */
int64_t clock_now_ns(void);

/* Tests: clock_now_ns returns *now_ns from now on; NULL goes back to the system's clock. */
void clock_set_fake(const int64_t *now_ns);

#endif
