/* bpe: byte-pair encoding of one word by a ranked list of merges.
 *
 * Thread: any, const after load; struct merge is the caller's.
 * Source: Sennrich et al. 2016, algorithm 1; the byte level of Radford et al. 2019. */
#ifndef KVICK_TOKENIZER_BPE_H
#define KVICK_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/id_list.h"
#include "tokenizer/merge.h"
#include "tokenizer/vocab.h"

struct gguf;

struct bpe_slot {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank;
    int32_t merged_id;
};

struct bpe {
    const struct vocab *vocab;
    struct bpe_slot *slots;
    uint64_t slot_mask;
    bool takes_whole_words; /* a word that is a token is that token, whatever the merges say */
};

/* vocab must outlive bpe. Errors: STATUS_INVALID without tokenizer.ggml.merges, STATUS_FORMAT for a merge that is no
 * pair of tokens or gives none (line and text in note), STATUS_NOMEM. */
WARN_UNUSED enum status bpe_load(struct bpe *bpe, const struct vocab *vocab, const struct gguf *gguf,
                                 bool takes_whole_words, struct status_note *note);
void bpe_deinit(struct bpe *bpe);

/* Appends the ids of one word. Bytes without a token are left out. Cost: O(n log n).
 * Errors: those of id_list_push, STATUS_NOMEM. */
WARN_UNUSED enum status bpe_encode_word(const struct bpe *bpe, struct merge *merge, const char *word, size_t n_bytes,
                                        struct id_list *out_ids);

#endif
