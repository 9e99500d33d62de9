/* vocab: the tokens of a model: id <-> bytes, types, scores, special ids.
 *
 * Thread: any, const after load.   Memory: own copies; the gguf may be closed afterwards.
 * Source: the GGUF specification (ggml docs/gguf.md), keys tokenizer.ggml.*; the byte alphabet of GPT-2's vocabulary
 * (Radford et al. 2019, encoder.py). */
#ifndef KVICK_TOKENIZER_VOCAB_H
#define KVICK_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct gguf;

enum vocab_model { VOCAB_BPE, VOCAB_SPM };

enum vocab_type {
    VOCAB_NORMAL = 1,
    VOCAB_UNKNOWN = 2,
    VOCAB_CONTROL = 3,
    VOCAB_USER = 4, /* matched in every text, before anything else */
    VOCAB_UNUSED = 5,
    VOCAB_BYTE = 6
};

struct vocab_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

struct vocab {
    enum vocab_model model;
    int32_t n_tokens;
    uint32_t *offs; /* [n_tokens + 1] token i is bytes [offs[i], offs[i + 1]) */
    char *bytes;    /* what each token stands for: the byte alphabet and SentencePiece's U+2581 are resolved */
    uint8_t *types; /* [n_tokens] enum vocab_type */
    float *scores;  /* [n_tokens], SPM only */
    struct vocab_slot *slots;
    uint32_t slot_mask;
    uint32_t max_bytes;                                 /* of the longest token that find can give */
    int32_t byte_ids[256];                              /* the token of one byte, -1 if there is none */
    int32_t bos_id, eos_id, eot_id, eom_id, unknown_id; /* -1 if there is none */
    bool adds_bos;                                      /* the model wants BOS in front of a text */
    bool adds_space;                                    /* SPM: a text gets a dummy space in front */
};

/* Errors: STATUS_INVALID for a missing key or an unknown model, STATUS_FORMAT for counts that disagree, ids out of
 * range, bad types or scores, STATUS_NOMEM; the note names key and value, and vocab needs no deinit then. */
WARN_UNUSED enum status vocab_load(struct vocab *vocab, const struct gguf *gguf, struct status_note *note);
void vocab_deinit(struct vocab *vocab);

/* Id of the ordinary token with exactly these bytes; -1 if there is none. Special and byte tokens are never found: text
 * that looks like one stays text. Of equal tokens the first one counts. */
int32_t vocab_find(const struct vocab *vocab, const char *bytes, size_t n_bytes);

/* The two halves of vocab_find, for callers that look up many: between them memory can be fetched ahead. */
uint32_t vocab_hash(const char *bytes, size_t n_bytes);
int32_t vocab_find_hashed(const struct vocab *vocab, const char *bytes, size_t n_bytes, uint32_t hash);

/* Starts fetching the table's line for a hash; after that has come, the bytes of the token there. */
void vocab_prefetch_slot(const struct vocab *vocab, uint32_t hash);
void vocab_prefetch_bytes(const struct vocab *vocab, uint32_t hash);

/* Id of a token of any type but NORMAL with this text; -1 if there is none. Cost: O(n_tokens). */
int32_t vocab_find_special(const struct vocab *vocab, const char *text);

/* The bytes of a token, not terminated. 0 <= id < n_tokens. */
const char *vocab_bytes(const struct vocab *vocab, int32_t id, size_t *out_n_bytes);

/* Resolves GPT-2's byte alphabet: out holds at least n_bytes. Returns how many bytes there are; SIZE_MAX if text holds
 * a character outside the alphabet. */
size_t vocab_decode_alphabet(const char *text, size_t n_bytes, char *out);

#endif
