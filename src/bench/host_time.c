#include "bench/host_time.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static double read_stolen_ms(void) {
    long long ticks = -1;
    FILE *file = fopen("/proc/stat", "re");
    if (!file) return -1;
    int n_read = fscanf(file, "cpu %*d %*d %*d %*d %*d %*d %*d %lld", &ticks);
    fclose(file);
    return n_read == 1 ? (double)ticks * 1e3 / (double)sysconf(_SC_CLK_TCK) : -1;
}

static double read_waited_ms(void) {
    double sum_ms = -1;
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char path[64];
        long long waited_ns = 0;
        int thread_id = 0;
        if (sscanf(entry->d_name, "%d", &thread_id) != 1) continue;
        /* Who gives way waits of its own accord. */
        if (getpriority(PRIO_PROCESS, (id_t)thread_id) > 0) continue;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", entry->d_name);
        FILE *file = fopen(path, "re");
        if (!file) continue;
        if (fscanf(file, "%*d %lld", &waited_ns) == 1) sum_ms = (sum_ms < 0 ? 0 : sum_ms) + (double)waited_ns / 1e6;
        fclose(file);
    }
    if (folder) closedir(folder);
    return sum_ms;
}

void host_time_read(struct host_time *out) {
    *out = (struct host_time){read_stolen_ms(), read_waited_ms()};
}

double host_time_between_ms(double before_ms, double after_ms) {
    return before_ms < 0 || after_ms < 0 ? -1 : after_ms - before_ms;
}
