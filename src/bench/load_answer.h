/* load_answer: what came back of one request to an OpenAI-compatible server, with the times at which it came.
 *
 * An event counts as content when it brings text, reasoning or a tool call: a role alone, pings and progress do not.
 * Thread: the load client's.   Memory: all at init, but the text grows up to LOAD_ANSWER_MAX_TEXT_BYTES. */
#ifndef KVICK_BENCH_LOAD_ANSWER_H
#define KVICK_BENCH_LOAD_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "engine/phase_stats.h"

#define LOAD_ANSWER_MAX_TEXT_BYTES ((size_t)1 << 22)

#define LOAD_END_MAP(XX)                                                                                               \
    XX(RUNNING, "running")                                                                                             \
    XX(OK, "ok")                                                                                                       \
    XX(REFUSED, "refused")           /* 429 or 503: come again */                                                      \
    XX(BAD_REQUEST, "bad request")   /* another 4xx */                                                                 \
    XX(SERVER_ERROR, "server error") /* another 5xx, or an error within the stream */                                  \
    XX(NO_SERVER, "no connection")                                                                                     \
    XX(CUT, "cut") /* the stream ended before the answer did */                                                        \
    XX(TIMEOUT, "timed out")                                                                                           \
    XX(MALFORMED, "malformed") /* what came is no stream of completions */                                             \
    XX(CANCELLED, "cancelled")

enum load_end {
#define XX(name, text) LOAD_##name,
    LOAD_END_MAP(XX)
#undef XX
        LOAD_N_ENDS
};

struct load_answer {
    enum load_end end;
    int code;          /* HTTP; 0: none came */
    int retry_after_s; /* -1: not told */
    int64_t sent_ns, ended_ns;
    int64_t *content_ns; /* [n_content] of events with content, one entry each */
    int n_content, max_content;
    int n_prompt, n_cached, n_new; /* from usage; -1: not told */
    char finish_reason[24];        /* "": none came */
    struct str text;
    uint32_t *ids; /* [n_ids] of the answer, where the server tells them */
    int n_ids;
    bool is_done;              /* [DONE] came */
    bool has_phases;           /* kvick's own table */
    double phase_ms[N_PHASES]; /* with has_phases */
    double unaccounted_ms;     /* likewise */
    char note[STATUS_NOTE_MAX_BYTES];
};

/* max_tokens: of the answer. Errors: STATUS_NOMEM. */
WARN_UNUSED enum status load_answer_init(struct load_answer *answer, int max_tokens);
void load_answer_deinit(struct load_answer *answer);

/* For another request of the same length at most. */
void load_answer_clear(struct load_answer *answer);

/* The data of one event of the stream. False: it was no such event; end and note say so, and no more should come. */
WARN_UNUSED bool load_answer_read(struct load_answer *answer, const char *data, size_t n_bytes, int64_t now_ns);

/* The error that a reply with this status tells; body need not be JSON. */
void load_answer_fail(struct load_answer *answer, int code, const char *body, size_t n_bytes);

/* From sent to the first content; -1: none came. */
double load_answer_ttft_ms(const struct load_answer *answer);

/* (last - first content) / (tokens - 1); -1 with less than two tokens. */
double load_answer_token_ms(const struct load_answer *answer);

const char *load_answer_end_name(enum load_end end);

#endif
