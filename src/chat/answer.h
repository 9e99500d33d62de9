/* answer: what a model has said, told apart into reasoning, text and tool calls, in the order in which it came.
 *
 * A part is of another kind than the one before it, but for calls. A stream's reader tells what is new and marks it so.
 * Thread: one owner.   Memory: the texts are mem, freed by answer_deinit. */
#ifndef KVICK_CHAT_ANSWER_H
#define KVICK_CHAT_ANSWER_H

#include <stdbool.h>

#include "base/str.h"

#define ANSWER_MAX_CALLS 32
#define ANSWER_MAX_PARTS (2 * ANSWER_MAX_CALLS + 2) /* reasoning, and text around each call */
#define ANSWER_MAX_BYTES ((size_t)64 << 20)

enum answer_kind { ANSWER_IS_REASONING, ANSWER_IS_TEXT, ANSWER_IS_CALL };

struct answer_part {
    enum answer_kind kind;
    struct str text; /* what is certain of it; of a call its arguments */
    struct str name; /* of a call */
    char id[32];     /* of a call: whoever reads gives it; "" until then */
    int n_tokens;    /* of the answer when it last grew; whoever reads counts */
    /* By a stream: that it began, how much of its text, how many of the answer's tokens. */
    bool is_told;
    size_t n_told_bytes;
    int n_told_tokens;
};

struct answer {
    struct answer_part parts[ANSWER_MAX_PARTS]; /* [n_parts] */
    int n_parts, n_calls;                       /* calls beyond ANSWER_MAX_CALLS are text */
};

void answer_init(struct answer *answer);
void answer_deinit(struct answer *answer);

/* The last part; NULL: nothing was said. */
struct answer_part *answer_last(struct answer *answer);

/* Behind the last part: an empty one. At most ANSWER_MAX_CALLS calls. */
struct answer_part *answer_begin(struct answer *answer, enum answer_kind kind);

/* Text or reasoning goes on, or begins; no bytes are nothing. Errors: those of str_append. */
WARN_UNUSED enum status answer_say(struct answer *answer, enum answer_kind kind, const char *bytes, size_t n_bytes);

/* Appends all of a kind to out, as forms without an order of parts tell it; is_new: only what was not told yet.
 * Errors: those of str_append. */
WARN_UNUSED enum status answer_join(const struct answer *answer, enum answer_kind kind, bool is_new, struct str *out);

/* Something was not told yet; all of it is. */
bool answer_has_news(const struct answer *answer);
void answer_mark_told(struct answer *answer);

#endif
