/* merge: joins neighbouring symbols of one word, the best-ranked pair first, in O(n log n).
 *
 * The engine under both byte-pair encoding (rank = line of the merge list) and SentencePiece (rank = order of scores);
 * of equal ranks the leftmost pair goes first.   Thread: one owner.   Memory: grows to the longest word, then stays. */
#ifndef KVICK_TOKENIZER_MERGE_H
#define KVICK_TOKENIZER_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MERGE_NO_RANK UINT32_MAX
#define MERGE_NO_SYMBOL UINT32_MAX

struct merge_symbol {
    uint32_t from; /* byte offset in the word */
    uint32_t n_bytes;
    int32_t id;          /* -1: no token */
    uint32_t prev, next; /* neighbours, MERGE_NO_SYMBOL at the ends */
    uint32_t rank;       /* of the pair (this, next); MERGE_NO_RANK if it does not merge */
    int32_t merged_id;   /* what that pair becomes */
};

struct merge {
    struct merge_symbol *symbols;
    uint64_t *heap; /* rank << 32 | index of the left symbol; smallest first */
    size_t cap_symbols;
    size_t n_heap;
};

/* Rank of joining left and right, and the id of the result; MERGE_NO_RANK if they do not join. Must not depend on
 * anything but the two symbols. */
typedef uint32_t merge_pair_fn(const void *context, const struct merge_symbol *left, const struct merge_symbol *right,
                               int32_t *out_merged_id);

void merge_init(struct merge *merge);
void merge_deinit(struct merge *merge);

/* Room for n_symbols at merge->symbols, contents undefined. Errors: STATUS_NOMEM. */
WARN_UNUSED enum status merge_reserve(struct merge *merge, size_t n_symbols);

/* The caller has filled from, n_bytes and id of symbols [0, n_symbols), n_symbols >= 1 and reserved. Afterwards the
 * survivors are symbols[0], symbols[symbols[0].next], ... */
void merge_run(struct merge *merge, size_t n_symbols, merge_pair_fn *pair, const void *context);

#endif
