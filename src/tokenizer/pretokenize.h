/* pretokenize: cuts a text into the words that byte-pair encoding may merge within, by the published regular
 * expressions.
 *
 * Thread: pretokenize any, const after init; the session one owner.
 * Bytes that are not UTF-8 count as one symbol character each (neither letter, digit nor space). */
#ifndef KVICK_TOKENIZER_PRETOKENIZE_H
#define KVICK_TOKENIZER_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PRETOKENIZE_MAX_STAGES 6

struct pretokenize {
    void *codes[PRETOKENIZE_MAX_STAGES]; /* compiled PCRE2 patterns */
    void *memory;                        /* PCRE2's way to mem_alloc */
    int n_stages;
    bool has_jit;
    bool takes_whole_words; /* a word that is a token as a whole is not merged */
};

/* One text at a time; keeps memory between texts. */
struct pretokenize_session {
    const struct pretokenize *pretokenize;
    void *match, *limits;
    char *clean; /* copy of a text with invalid bytes, those replaced */
    size_t cap_clean;
    uint32_t max_steps; /* PCRE2's match limit; 0: in proportion to the text. Tests set it. */
};

/* A word at byte offset from of the text. Its failure ends the cutting. */
typedef enum status pretokenize_word_fn(void *context, size_t from, size_t n_bytes);

/* name: [n_bytes] a value of tokenizer.ggml.pre. Errors: STATUS_INVALID for an unknown name (named in note),
 * STATUS_NOMEM. */
WARN_UNUSED enum status pretokenize_init(struct pretokenize *pretokenize, const char *name, size_t n_bytes,
                                         struct status_note *note);
void pretokenize_deinit(struct pretokenize *pretokenize);

/* pretokenize must outlive the session. Errors: STATUS_NOMEM. */
WARN_UNUSED enum status pretokenize_session_init(struct pretokenize_session *session,
                                                 const struct pretokenize *pretokenize);
void pretokenize_session_deinit(struct pretokenize_session *session);

/* Gives every byte of text to word, in order, in words of at least one byte.
 * Errors: those of word; STATUS_LIMIT when a limit of PCRE2 was reached (named in note), STATUS_NOMEM. */
WARN_UNUSED enum status pretokenize_words(struct pretokenize_session *session, const char *text, size_t n_bytes,
                                          pretokenize_word_fn *word, void *context, struct status_note *note);

#endif
