#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

#define MAX_LINE_BYTES 1024

static enum log_level max_level = LOG_WARN;
static enum log_format format = LOG_TEXT;

void log_set_format(enum log_format new_format) {
    format = new_format;
}

void log_set_level(enum log_level level) {
    max_level = level;
}

/* Quoted bytes must not start a line or a terminal's escape sequence. */
static size_t make_text(enum log_level level, const char *message, char out[MAX_LINE_BYTES]) {
    static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
    int n = snprintf(out, MAX_LINE_BYTES - 1, "kvick: %s%s", words[level], message);
    if (n > MAX_LINE_BYTES - 2) n = MAX_LINE_BYTES - 2;
    for (int i = 0; i < n; i++)
        if ((unsigned char)out[i] < 0x20 || out[i] == 0x7f) out[i] = '?';
    out[n] = '\n';
    return (size_t)n + 1;
}

static size_t make_json(enum log_level level, const char *message, char out[MAX_LINE_BYTES]) {
    static const char *const words[] = {"error", "warning", "info", "debug"};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    size_t n = (size_t)snprintf(out, MAX_LINE_BYTES, "{\"time_ms\": %lld, \"level\": \"%s\", \"message\": \"",
                                (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000, words[level]);
    size_t n_message = strlen(message);
    for (size_t i = 0; i < n_message && n < MAX_LINE_BYTES - 2 * UTF8_MAX_BYTES;) {
        int n_char = utf8_decode(message + i, n_message - i, NULL);
        unsigned char byte = (unsigned char)message[i];
        if (byte == '"' || byte == '\\') out[n++] = '\\';
        if (n_char == 0 || byte < 0x20 || byte == 0x7f) {
            out[n++] = '?';
            i++;
        } else {
            for (int b = 0; b < n_char; b++) out[n++] = message[i++];
        }
    }
    return n + (size_t)snprintf(out + n, MAX_LINE_BYTES - n, "\"}\n");
}

void log_line(enum log_level level, const char *fmt, ...) {
    if (level > max_level) return;
    char message[MAX_LINE_BYTES], line[MAX_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    size_t n = format == LOG_JSON ? make_json(level, message, line) : make_text(level, message, line);
    if (write(STDERR_FILENO, line, n) < 0) return; /* nowhere left to complain */
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
