/* grammar: which tokens may come next, so that an answer has the form that was asked for.
 *
 * A grammar is made on any thread, then used by the engine's through its token_mask, one state per choice. What fails
 * underway allows no token at all, never every token. Memory: of the bridge, until destroy; the vocabulary is shared.
 * Source: llguidance. */
#ifndef KVICK_GRAMMAR_GRAMMAR_H
#define KVICK_GRAMMAR_GRAMMAR_H

#include "engine/message.h"
#include "tokenizer/tokenizer.h"

enum grammar_kind { GRAMMAR_NONE, GRAMMAR_JSON_SCHEMA, GRAMMAR_REGEX, GRAMMAR_LARK, GRAMMAR_CHOICES };

struct grammar_vocab;
struct grammar;

/* Errors: STATUS_INVALID (built without the bridge), STATUS_NOMEM. */
WARN_UNUSED enum status grammar_vocab_create(struct grammar_vocab **out_vocab, const struct tokenizer *tokenizer,
                                             struct status_note *note);
void grammar_vocab_destroy(struct grammar_vocab **vocab);

/* text: [n_bytes] a JSON schema, a regular expression, a Lark grammar, or a JSON list of texts.
 * Errors: STATUS_INVALID with the keyword that cannot be honoured, STATUS_NOMEM. */
WARN_UNUSED enum status grammar_create(struct grammar **out_grammar, const struct grammar_vocab *vocab,
                                       enum grammar_kind kind, const char *text, size_t n_bytes, int n_choices,
                                       struct status_note *note);
void grammar_destroy(struct grammar **grammar);

/* For the request; borrows the grammar. */
struct token_mask grammar_mask(struct grammar *grammar);

/* Why an answer ended early; NULL: it did not. After the choice's end was told. */
const char *grammar_fault(const struct grammar *grammar);

#endif
