/* detokenizer: token ids -> text, one by one, never cutting a UTF-8 character.
 *
 * The text of a stream does not depend on how it was asked for: pushed one by one or all at once it is the same.
 * Thread: one owner.   Memory: none of its own; the tokenizer must outlive it. */
#ifndef KVICK_TOKENIZER_DETOKENIZER_H
#define KVICK_TOKENIZER_DETOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

enum detokenizer_flags {
    DETOKENIZER_AT_START = 1 << 0,    /* the ids begin a text: the dummy space of SentencePiece is left out */
    DETOKENIZER_SHOW_SPECIAL = 1 << 1 /* control tokens give their name instead of nothing */
};

struct detokenizer {
    const struct tokenizer *tokenizer;
    char held[UTF8_MAX_BYTES]; /* the start of a character whose other bytes are still to come */
    int n_held;
    bool drops_space; /* the next text loses one leading space */
    bool shows_special;
};

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer, unsigned flags);

/* Appends what is certain after this token: whole characters only, perhaps nothing. Bytes that cannot be UTF-8 become
 * U+FFFD, one for each maximal start of a character (Unicode 15, 3.9, "substitution of maximal subparts").
 * Errors: those of str_append, STATUS_INVALID for an id out of range; the stream cannot go on then. */
WARN_UNUSED enum status detokenizer_push(struct detokenizer *detokenizer, int32_t id, struct str *out);

/* The stream is over: a character that is still incomplete becomes one U+FFFD. Errors: those of str_append. */
WARN_UNUSED enum status detokenizer_finish(struct detokenizer *detokenizer, struct str *out);

#endif
