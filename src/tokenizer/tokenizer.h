/* tokenizer: text -> token ids, by the vocabulary inside a model file. The one entry of this folder, beside
 * detokenizer.
 *
 * Thread: any, const after open.   Memory: own copies; the gguf may be closed after open. A call takes memory
 * proportional to its longest word, at most 1 MiB of cache, and the ids.
 * Cost: O(n log n) in the longest word, O(n) in the number of words.
 * Special tokens are matched first, leftmost and longest; what lies between them is cut into words on its own. A
 * SentencePiece model with a dummy space gets one before each such piece (the "legacy" way that Llama 2 was trained).
 */
#ifndef KVICK_TOKENIZER_TOKENIZER_H
#define KVICK_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/id_list.h"

struct gguf;
struct tokenizer;

#define TOKENIZER_MAX_BYTES ((size_t)1 << 30) /* of one text */

enum tokenizer_flags {
    TOKENIZER_ADD_BOS = 1 << 0,      /* BOS in front, whatever the model's own setting says */
    TOKENIZER_PARSE_SPECIAL = 1 << 1 /* the text of control tokens becomes those tokens */
};

/* Bytes [from, to) of a text. */
struct tokenizer_span {
    size_t from, to;
    bool parse_special;
};

/* Errors: STATUS_INVALID for a missing key, an unknown tokenizer.ggml.model or .pre, STATUS_FORMAT for vocabularies
 * that contradict themselves, STATUS_NOMEM; the note names key and value. */
WARN_UNUSED enum status tokenizer_open(struct tokenizer **out_tokenizer, const struct gguf *gguf,
                                       struct status_note *note);
void tokenizer_close(struct tokenizer **tokenizer);

/* Appends the ids of text, which may hold any bytes. User-defined tokens are found in every text; control tokens, and
 * user-defined ones written like them, only with PARSE_SPECIAL.
 * Errors: STATUS_LIMIT past TOKENIZER_MAX_BYTES, out_ids->max_ids or a limit of the pattern library, STATUS_INVALID for
 * ADD_BOS without a BOS token, STATUS_NOMEM; out_ids is then as it was. */
WARN_UNUSED enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n_bytes,
                                         unsigned flags, struct id_list *out_ids, struct status_note *note);

/* The same, but control tokens are found only inside runs of touching spans with parse_special; bytes in no span allow
 * none. Where no such text occurs elsewhere, the ids are those of the whole text with PARSE_SPECIAL.
 * spans: [n_spans] ascending, not overlapping, within the text (else STATUS_INVALID). flags: ADD_BOS only. */
WARN_UNUSED enum status tokenizer_encode_spans(const struct tokenizer *tokenizer, const char *text, size_t n_bytes,
                                               const struct tokenizer_span *spans, size_t n_spans, unsigned flags,
                                               struct id_list *out_ids, struct status_note *note);

int32_t tokenizer_n_vocab(const struct tokenizer *tokenizer);

/* -1: the model has none. eot ends a turn in chats; eos ends a text. */
int32_t tokenizer_bos(const struct tokenizer *tokenizer);
int32_t tokenizer_eos(const struct tokenizer *tokenizer);
int32_t tokenizer_eot(const struct tokenizer *tokenizer);

/* The model wants BOS in front of a text that has none. */
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);

/* A text that begins with this tokenizer gets a dummy space in front. */
bool tokenizer_adds_space(const struct tokenizer *tokenizer);

/* The model is done after this token: eos, eot, and control tokens known to end turns. False for ids out of range. */
bool tokenizer_is_end_of_generation(const struct tokenizer *tokenizer, int32_t id);
/* All of them: [*out_n], borrowed. */
const int32_t *tokenizer_end_ids(const struct tokenizer *tokenizer, int *out_n);

/* A token that stands for no text: control, unknown. False for ids out of range. */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);

/* The bytes of a token (of a special one: its name), not terminated, not always whole characters; valid until close.
 * NULL and 0 bytes for ids out of range. */
const char *tokenizer_text_of(const struct tokenizer *tokenizer, int32_t id, size_t *out_n_bytes);

/* The id whose special text this is; -1 if there is none. Cost: O(n_vocab). */
int32_t tokenizer_find_special(const struct tokenizer *tokenizer, const char *text);

#endif
