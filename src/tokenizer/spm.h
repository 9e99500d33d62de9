/* spm: SentencePiece's byte-pair model: characters are joined to tokens, the best score first, and what is no token
 * falls back to byte tokens.
 *
 * Works on text whose spaces are plain (U+2581 resolved, dummy space already in front).   Thread: any, const after
 * init. Source: Kudo and Richardson 2018 (SentencePiece), bpe_model. */
#ifndef KVICK_TOKENIZER_SPM_H
#define KVICK_TOKENIZER_SPM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/id_list.h"
#include "tokenizer/merge.h"
#include "tokenizer/vocab.h"

struct spm {
    const struct vocab *vocab;
    /* Bytes that stand before a space inside some token. No token crosses any other such place, so the text may be cut
     * there without changing a single id. */
    bool may_precede_space[256];
};

/* vocab (with scores) must outlive spm. Cost: O(bytes of the vocabulary). */
void spm_init(struct spm *spm, const struct vocab *vocab);

/* Bytes of the first piece of text that can be encoded alone: 1..n_bytes, n_bytes >= 1. */
size_t spm_next_piece(const struct spm *spm, const char *text, size_t n_bytes);

/* Appends the ids of one piece. Cost: O(n log n). A character that is no token becomes its byte tokens, the unknown
 * token where those are missing, or nothing if there is neither. Errors: those of id_list_push, STATUS_NOMEM. */
WARN_UNUSED enum status spm_encode_piece(const struct spm *spm, struct merge *merge, const char *piece, size_t n_bytes,
                                         struct id_list *out_ids);

#endif
