#include "base/progress.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define MAX_LINE_BYTES 80
#define N_BAR 30
#define REDRAW_NS 100000000

static volatile sig_atomic_t is_stopped;

void progress_format(const struct progress *progress, int64_t now_ns, char *out, int out_bytes) {
    double share = progress->total_bytes ? (double)progress->done_bytes / (double)progress->total_bytes : 1;
    double took_s = (double)(now_ns - progress->start_ns) * 1e-9;
    double rate = took_s > 0 ? (double)progress->done_bytes / took_s : 0;
    char bar[N_BAR + 1];
    for (int i = 0; i < N_BAR; i++) bar[i] = i < (int)(share * N_BAR) ? '#' : '.';
    bar[N_BAR] = 0;
    int n = snprintf(out, (size_t)out_bytes, "%.20s  [%s] %3d %%", progress->what, bar, (int)(100 * share));
    if (!progress->has_steps && n > 0 && n < out_bytes)
        n += snprintf(out + n, (size_t)(out_bytes - n), "  %.0f MB/s", rate * 1e-6);
    if (rate > 0 && n > 0 && n < out_bytes)
        snprintf(out + n, (size_t)(out_bytes - n), "  %.0f s left",
                 (double)(progress->total_bytes - progress->done_bytes) / rate);
}

static void show(struct progress *progress, int64_t now_ns) {
    char line[MAX_LINE_BYTES];
    progress_format(progress, now_ns, line, sizeof line);
    fprintf(stderr, "\r\x1b[K%s", line);
    fflush(stderr);
    progress->shown_ns = now_ns;
}

void progress_start(struct progress *progress, const char *what, uint64_t total_bytes) {
    int64_t now_ns = clock_now_ns();
    *progress = (struct progress){what, total_bytes, 0, now_ns, now_ns, isatty(STDERR_FILENO) == 1, false};
    if (progress->is_shown) show(progress, now_ns);
}

void progress_start_steps(struct progress *progress, const char *what, uint64_t n_steps) {
    progress_start(progress, what, n_steps);
    progress->has_steps = true;
}

void progress_set(struct progress *progress, uint64_t n_done) {
    int64_t now_ns = clock_now_ns();
    progress->done_bytes = n_done < progress->total_bytes ? n_done : progress->total_bytes;
    if (progress->is_shown && now_ns - progress->shown_ns >= REDRAW_NS) show(progress, now_ns);
}

enum status progress_add(struct progress *progress, uint64_t n_bytes, struct status_note *note) {
    uint64_t left_bytes = progress->total_bytes - progress->done_bytes;
    progress->done_bytes += n_bytes < left_bytes ? n_bytes : left_bytes;
    if (is_stopped) return status_fail(note, STATUS_CANCELLED, "stopped by a signal; nothing was written");
    if (!progress->is_shown) return STATUS_OK;
    int64_t now_ns = clock_now_ns();
    if (now_ns - progress->shown_ns >= REDRAW_NS) show(progress, now_ns);
    return STATUS_OK;
}

static void stop(int signal_number) {
    (void)signal_number;
    is_stopped = 1;
}

void progress_stop_on_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) sigaction(signals[i], &action, NULL);
}

void progress_end(struct progress *progress) {
    if (progress->is_shown) fputs("\r\x1b[K", stderr);
    progress->is_shown = false;
}
