/* words: made-up texts of a wanted length, for servers that are asked in words and count in tokens.
 *
 * Common English words with a space in front: in most vocabularies each is one token. Equal numbers give equal texts,
 * different ones differ from the first words on.   Thread: any. */
#ifndef KVICK_BENCH_WORDS_H
#define KVICK_BENCH_WORDS_H

#include <stdint.h>

#include "base/str.h"

/* Appends n words of text number text_idx. Errors: those of str_append. */
WARN_UNUSED enum status words_append(struct str *out, uint64_t seed, uint32_t text_idx, int n_words);

#endif
