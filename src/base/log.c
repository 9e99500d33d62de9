#include "base/log.h"

#include <stdarg.h>
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
