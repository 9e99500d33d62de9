#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const texts[] = {
#define XX(name, text) [STATUS_##name] = text,
    STATUS_MAP(XX)
#undef XX
};

const char *status_text(enum status status) {
    size_t i = (size_t)status;
    return i < sizeof texts / sizeof texts[0] ? texts[i] : "unknown status";
}

static void mark_cut(struct status_note *note) {
    memcpy(note->text + sizeof note->text - 4, "...", 4);
}

enum status status_fail(struct status_note *note, enum status status, const char *fmt, ...) {
    if (!note) return status;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(note->text, sizeof note->text, fmt, args);
    va_end(args);
    if (n >= (int)sizeof note->text) mark_cut(note);
    /* The line may quote bytes of a file: a terminal or a log must get one line of printable text. */
    for (char *p = note->text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    return status;
}

void status_note_prefix(struct status_note *note, const char *prefix) {
    if (!note) return;
    char old[sizeof note->text];
    memcpy(old, note->text, sizeof old);
    int n = snprintf(note->text, sizeof note->text, "%s: %s", prefix, old);
    if (n >= (int)sizeof note->text) mark_cut(note);
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
