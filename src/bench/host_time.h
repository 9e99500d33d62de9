/* host_time: time that others took from this process: the host below the machine, other processes on it.
 *
 * Thread: any.   Source: proc(5): /proc/stat steal, /proc/PID/task/TID/schedstat run delay. */
#ifndef KVICK_BENCH_HOST_TIME_H
#define KVICK_BENCH_HOST_TIME_H

struct host_time {
    double stolen_ms; /* all CPUs, since boot; -1: the system does not tell */
    double waited_ms; /* this process's threads but those of low priority, able to run but not running; -1: the same */
};

void host_time_read(struct host_time *out);

/* after - before; -1 if either is unknown. */
double host_time_between_ms(double before_ms, double after_ms);

#endif
