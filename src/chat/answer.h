/* answer: what a model has said, told apart: text, reasoning, tool calls.
 *
 * Thread: one owner. */
#ifndef KVICK_CHAT_ANSWER_H
#define KVICK_CHAT_ANSWER_H

#include <stdbool.h>

#include "base/str.h"

#define ANSWER_MAX_CALLS 32
#define ANSWER_MAX_BYTES ((size_t)64 << 20)

struct answer_call {
    char id[32]; /* whoever reads gives it; "" until then */
    struct str name, arguments;
    bool is_told; /* a stream told of its name */
};

/* What is certain; of a stream, what is new. */
struct answer {
    struct str text, reasoning;
    struct answer_call calls[ANSWER_MAX_CALLS]; /* later ones are text */
    int n_calls;
};

void answer_init(struct answer *answer);
void answer_deinit(struct answer *answer);

/* A stream's reader has told all that is new. */
bool answer_has_news(const struct answer *answer);
void answer_clear(struct answer *answer);

#endif
