#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static enum log_level max_level = LOG_WARN;

void log_set_level(enum log_level level) {
    max_level = level;
}

void log_line(enum log_level level, const char *fmt, ...) {
    static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
    if (level > max_level) return;
    char line[1024];
    int n = snprintf(line, sizeof line, "kvick: %s", words[level]);
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, args);
    va_end(args);
    if (more > 0) n += more;
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    /* Quoted bytes must not start a line or a terminal's escape sequence. */
    for (int i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) line[i] = '?';
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0) return; /* nowhere left to complain */
}

void log_raw(const char *line, size_t n_bytes) {
    static atomic_int n_lost; /* relaxed: only a count */
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    /* A pipe that is ready takes PIPE_BUF bytes without waiting. */
    if (n_bytes > LOG_MAX_RAW_BYTES || poll(&fd, 1, 0) != 1 || !(fd.revents & POLLOUT)) {
        atomic_fetch_add_explicit(&n_lost, 1, memory_order_relaxed);
        return;
    }
    int n = atomic_exchange_explicit(&n_lost, 0, memory_order_relaxed);
    if (n) {
        log_line(LOG_WARN, "%d lines of the request log were lost: standard error was not read", n);
        if (poll(&fd, 1, 0) != 1 || !(fd.revents & POLLOUT)) {
            atomic_fetch_add_explicit(&n_lost, 1, memory_order_relaxed);
            return;
        }
    }
    ssize_t n_written = write(STDERR_FILENO, line, n_bytes);
    (void)n_written; /* a reader that is gone is nobody's fault */
}
