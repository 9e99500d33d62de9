/* status: how a call ended, and the one line that says why.
 *
 * A fallible function returns enum status and is WARN_UNUSED. Cold paths that parse or load also fill a status_note,
 * once, at the point of failure: it names the field and the value at fault; the caller puts the file in front.
 * Thread: any.   Memory: caller's. */
#ifndef KVICK_BASE_STATUS_H
#define KVICK_BASE_STATUS_H

#define WARN_UNUSED __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))

#define STATUS_MAP(XX)                                                                                                 \
    XX(OK, "ok")                                                                                                       \
    XX(NOMEM, "out of memory")                                                                                         \
    XX(IO, "input/output error")                                                                                       \
    XX(FORMAT, "malformed data")                                                                                       \
    XX(LIMIT, "limit reached")                                                                                         \
    XX(INVALID, "invalid argument")                                                                                    \
    XX(BUSY, "busy")                                                                                                   \
    XX(CANCELLED, "cancelled")                                                                                         \
    XX(PEER, "peer failed")                                                                                            \
    XX(TIMEOUT, "timed out")

enum status {
#define XX(name, text) STATUS_##name,
    STATUS_MAP(XX)
#undef XX
};

#define STATUS_NOTE_MAX_BYTES 320

/* One line of valid UTF-8 without a final newline, whatever bytes it quotes (bad and control ones become '?'); longer
 * texts end in "...". */
struct status_note {
    char text[STATUS_NOTE_MAX_BYTES];
};

/* The fixed words for a status, for example "malformed data". */
const char *status_text(enum status status);

/* Fills note (which may be NULL) and returns status, so that a failing line reads `return status_fail(note, ...)`. */
enum status status_fail(struct status_note *note, enum status status, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts "prefix: " in front of what note already says, for a caller that knows the file or the outer field. */
void status_note_prefix(struct status_note *note, const char *prefix);

/* A broken invariant of ours: prints the place and aborts. Never for bytes from files, sockets or peers. */
#define BUG(...) status_bug(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void status_bug(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* An assertion that stays in release builds; for contracts on entry, not for inner loops. */
#define REQUIRE(cond)                                                                                                  \
    do {                                                                                                               \
        if (!(cond)) BUG("requirement broken: %s", #cond);                                                             \
    } while (0)

#endif
