/* cycle_counter: the clock cycles that the calling thread has run, where the system lets one count them.
 *
 * Virtual machines and containers often do not; time alone must do then.
 * Thread: opened, read and closed by the thread it counts. */
#ifndef KVICK_PLANNER_CYCLE_COUNTER_H
#define KVICK_PLANNER_CYCLE_COUNTER_H

#include <stdbool.h>
#include <stdint.h>

struct cycle_counter {
    int fd; /* -1: nothing can be counted */
};

/* False, and nothing to close, if the system refuses. */
bool cycle_counter_open(struct cycle_counter *counter);
void cycle_counter_close(struct cycle_counter *counter);

/* Cycles in user mode since open; 0 when nothing is counted. */
uint64_t cycle_counter_read(const struct cycle_counter *counter);

#endif
