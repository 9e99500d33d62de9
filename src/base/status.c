#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static const char *const texts[] = {
#define XX(name, text) [STATUS_##name] = text,
    STATUS_MAP(XX)
#undef XX
};

const char *status_text(enum status status) {
    size_t i = (size_t)status;
    return i < sizeof texts / sizeof texts[0] ? texts[i] : "unknown status";
}

/* The line may quote bytes of a file or a path: a terminal, a log and a JSON text must get one line of valid, printable
 * UTF-8. n is what the whole text would have needed, as snprintf tells it. */
static void make_line(struct status_note *note, int n, enum status status) {
    if (n < 0) snprintf(note->text, sizeof note->text, "%s", status_text(status));
    size_t n_bytes = strlen(note->text);
    if (n >= (int)sizeof note->text) {
        n_bytes = sizeof note->text - 4;
        n_bytes -= (size_t)utf8_open_tail(note->text, n_bytes);
        memcpy(note->text + n_bytes, "...", 4);
        n_bytes += 3;
    }
    for (size_t off = 0; off < n_bytes;) {
        uint32_t code = 0;
        int n_char = utf8_decode(note->text + off, n_bytes - off, &code);
        bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
        if (n_char && !is_control) {
            off += (size_t)n_char;
            continue;
        }
        memset(note->text + off, '?', n_char ? (size_t)n_char : 1);
        off += n_char ? (size_t)n_char : 1;
    }
}

enum status status_fail(struct status_note *note, enum status status, const char *fmt, ...) {
    if (!note) return status;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(note->text, sizeof note->text, fmt, args);
    va_end(args);
    make_line(note, n, status);
    return status;
}

void status_note_prefix(struct status_note *note, const char *prefix) {
    if (!note) return;
    char old[sizeof note->text];
    memcpy(old, note->text, sizeof old);
    make_line(note, snprintf(note->text, sizeof note->text, "%s: %s", prefix, old), STATUS_INVALID);
}

_Noreturn void status_bug(const char *file, int line, const char *fmt, ...) {
    fprintf(stderr, "kvick: BUG at %s:%d: ", file, line);
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}
