/* word_cache: the ids of short words met before in the same text.
 *
 * Direct-mapped: a new word takes the place of an old one. Made per call, so that a tokenizer stays const and its
 * memory bounded.   Thread: one owner. */
#ifndef KVICK_TOKENIZER_WORD_CACHE_H
#define KVICK_TOKENIZER_WORD_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define WORD_CACHE_MAX_BYTES 18 /* of a word; with 10 ids an entry fills one cache line */
#define WORD_CACHE_MAX_IDS 10

struct word_cache_entry {
    uint32_t hash;
    uint8_t n_bytes; /* 0: empty */
    uint8_t n_ids;
    char bytes[WORD_CACHE_MAX_BYTES];
    int32_t ids[WORD_CACHE_MAX_IDS];
};

struct word_cache {
    struct word_cache_entry *entries;
    uint32_t mask;
};

/* Sized for a text of this many bytes: 64 to 16,384 entries (1 MiB). Errors: STATUS_NOMEM. */
WARN_UNUSED enum status word_cache_init(struct word_cache *cache, size_t text_bytes);
void word_cache_deinit(struct word_cache *cache);

/* The entry where the word is or would be; n_bytes in 1..WORD_CACHE_MAX_BYTES. *out_is_hit tells which. */
struct word_cache_entry *word_cache_find(struct word_cache *cache, const char *word, size_t n_bytes, int *out_is_hit);

/* Remembers the word in the entry that find gave for it; does nothing with more than WORD_CACHE_MAX_IDS ids. */
void word_cache_put(struct word_cache_entry *entry, const char *word, size_t n_bytes, const int32_t *ids, size_t n_ids);

#endif
