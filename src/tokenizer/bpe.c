#include "tokenizer/bpe.h"

#include <string.h>

#include "base/mem.h"
#include "tokenizer/text_hash.h"
#include "weights/gguf.h"

#define MAX_SHORT_BYTES 24 /* up to here looking through all pairs beats a heap */
#define MAX_MERGE_BYTES 4096
#define N_LINES_AT_ONCE 16

static const char merges_key[] = "tokenizer.ggml.merges";

/* ---- the table of pairs ---- */

static uint64_t first_slot(const struct bpe *bpe, uint64_t pair) {
    return text_hash_mix(pair) >> 7 & bpe->slot_mask;
}

static struct bpe_slot *find_pair(const struct bpe *bpe, uint64_t pair) {
    for (uint64_t i = first_slot(bpe, pair);; i = (i + 1) & bpe->slot_mask) {
        struct bpe_slot *slot = &bpe->slots[i];
        if (slot->pair == pair || slot->pair == UINT64_MAX) return slot;
    }
}

static uint64_t pair_of(int32_t left_id, int32_t right_id) {
    return (uint64_t)(uint32_t)left_id << 32 | (uint32_t)right_id;
}

static uint32_t pair_rank(const struct bpe *bpe, int32_t left_id, int32_t right_id, int32_t *out_merged_id) {
    if (left_id < 0 || right_id < 0) return MERGE_NO_RANK;
    const struct bpe_slot *slot = find_pair(bpe, pair_of(left_id, right_id));
    if (slot->pair == UINT64_MAX) return MERGE_NO_RANK;
    *out_merged_id = slot->merged_id;
    return slot->rank;
}

/* A line of the merge list on its way into the table: its left, right and joined text. */
struct line {
    struct gguf_text text;
    uint32_t rank;
    size_t n_left, n_right;
    uint32_t hashes[3];
    int32_t ids[3];
    char bytes[MAX_MERGE_BYTES]; /* left, then right */
};

static enum status bad_merge(struct status_note *note, const struct line *line, const char *why) {
    size_t n_bytes = line->text.n_bytes;
    return status_fail(note, STATUS_FORMAT, "%s: line %u '%.*s' %s", merges_key, (unsigned)line->rank,
                       (int)(n_bytes < 60 ? n_bytes : 60), line->text.ptr, why);
}

static enum status split_line(struct line *line, struct status_note *note) {
    const char *text = line->text.ptr;
    size_t n_bytes = line->text.n_bytes;
    if (n_bytes > MAX_MERGE_BYTES) return bad_merge(note, line, "is too long");
    /* A space is never part of the byte alphabet, so the first one divides the pair. */
    const char *space = n_bytes ? memchr(text, ' ', n_bytes) : NULL;
    if (!space) return bad_merge(note, line, "is no pair");
    size_t n_left_text = (size_t)(space - text);
    line->n_left = vocab_decode_alphabet(text, n_left_text, line->bytes);
    if (line->n_left == SIZE_MAX) return bad_merge(note, line, "leaves the byte alphabet");
    line->n_right = vocab_decode_alphabet(space + 1, n_bytes - n_left_text - 1, line->bytes + line->n_left);
    if (line->n_right == SIZE_MAX) return bad_merge(note, line, "leaves the byte alphabet");
    return STATUS_OK;
}

/* Part 0, 1, 2 of a line: left, right, joined. */
static const char *part_of(const struct line *line, int part, size_t *out_n_bytes) {
    *out_n_bytes = part == 0 ? line->n_left : part == 1 ? line->n_right : line->n_left + line->n_right;
    return line->bytes + (part == 1 ? line->n_left : 0);
}

/* Each table is far larger than the caches: every step is done for all lines before the next, so that their memory
 * accesses overlap. */
static enum status add_lines(struct bpe *bpe, struct line *lines, int n_lines, struct status_note *note) {
    const struct vocab *vocab = bpe->vocab;
    size_t n_bytes;
    for (int i = 0; i < n_lines; i++) {
        enum status status = split_line(&lines[i], note);
        if (status) return status;
        for (int part = 0; part < 3; part++) {
            const char *bytes = part_of(&lines[i], part, &n_bytes);
            vocab_prefetch_slot(vocab, lines[i].hashes[part] = vocab_hash(bytes, n_bytes));
        }
    }
    for (int i = 0; i < n_lines; i++)
        for (int part = 0; part < 3; part++) vocab_prefetch_bytes(vocab, lines[i].hashes[part]);
    for (int i = 0; i < n_lines; i++) {
        for (int part = 0; part < 3; part++) {
            const char *bytes = part_of(&lines[i], part, &n_bytes);
            lines[i].ids[part] = vocab_find_hashed(vocab, bytes, n_bytes, lines[i].hashes[part]);
            if (lines[i].ids[part] < 0) return bad_merge(note, &lines[i], "names a text that is no token");
        }
        __builtin_prefetch(&bpe->slots[first_slot(bpe, pair_of(lines[i].ids[0], lines[i].ids[1]))]);
    }
    for (int i = 0; i < n_lines; i++) { /* of equal pairs the first one counts */
        uint64_t pair = pair_of(lines[i].ids[0], lines[i].ids[1]);
        struct bpe_slot *slot = find_pair(bpe, pair);
        if (slot->pair == UINT64_MAX) *slot = (struct bpe_slot){pair, lines[i].rank, lines[i].ids[2]};
    }
    return STATUS_OK;
}

static enum status add_merges(struct bpe *bpe, const struct gguf_array *merges, struct status_note *note) {
    struct line *lines = mem_alloc_array(N_LINES_AT_ONCE, sizeof *lines);
    if (!lines) return status_fail(note, STATUS_NOMEM, "%s: out of memory", merges_key);
    enum status status = STATUS_OK;
    size_t cursor = 0;
    uint32_t rank = 0;
    for (int n_lines = 1; !status && n_lines;) {
        n_lines = 0;
        while (n_lines < N_LINES_AT_ONCE && gguf_array_next_text(merges, &cursor, &lines[n_lines].text))
            lines[n_lines++].rank = rank++;
        status = add_lines(bpe, lines, n_lines, note);
    }
    mem_free(lines);
    return status;
}

enum status bpe_load(struct bpe *bpe, const struct vocab *vocab, const struct gguf *gguf, bool takes_whole_words,
                     struct status_note *note) {
    struct gguf_array merges;
    *bpe = (struct bpe){.vocab = vocab, .takes_whole_words = takes_whole_words};
    enum status status = gguf_get_array(gguf, merges_key, &merges, note);
    if (status) return status;
    if (merges.item_type != GGUF_TEXT || merges.n_items > INT32_MAX / 4)
        return status_fail(note, STATUS_FORMAT, "%s: %llu items of type %d, not a list of texts", merges_key,
                           (unsigned long long)merges.n_items, (int)merges.item_type);
    uint64_t n_slots = 16;
    while (n_slots < 2 * merges.n_items) n_slots *= 2;
    bpe->slot_mask = n_slots - 1;
    bpe->slots = mem_alloc_array(n_slots, sizeof *bpe->slots);
    if (!bpe->slots) return status_fail(note, STATUS_NOMEM, "%s: out of memory", merges_key);
    for (uint64_t i = 0; i < n_slots; i++) bpe->slots[i].pair = UINT64_MAX;
    status = add_merges(bpe, &merges, note);
    if (status) bpe_deinit(bpe);
    return status;
}

void bpe_deinit(struct bpe *bpe) {
    mem_free(bpe->slots);
    *bpe = (struct bpe){0};
}

/* ---- one word ---- */

static uint32_t merge_pair(const void *context, const struct merge_symbol *left, const struct merge_symbol *right,
                           int32_t *out_merged_id) {
    return pair_rank(context, left->id, right->id, out_merged_id);
}

static enum status encode_long(const struct bpe *bpe, struct merge *merge, const char *word, size_t n_bytes,
                               struct id_list *out_ids) {
    enum status status = merge_reserve(merge, n_bytes);
    if (status) return status;
    for (size_t i = 0; i < n_bytes; i++)
        merge->symbols[i] = (struct merge_symbol){
            .from = (uint32_t)i, .n_bytes = 1, .id = bpe->vocab->byte_ids[(unsigned char)word[i]]};
    merge_run(merge, n_bytes, merge_pair, bpe);
    for (uint32_t i = 0; i != MERGE_NO_SYMBOL; i = merge->symbols[i].next) {
        if (merge->symbols[i].id < 0) continue;
        if ((status = id_list_push(out_ids, merge->symbols[i].id))) return status;
    }
    return STATUS_OK;
}

/* The same result as encode_long: always the leftmost pair of the lowest rank. */
static enum status encode_short(const struct bpe *bpe, const char *word, size_t n_bytes, struct id_list *out_ids) {
    int32_t ids[MAX_SHORT_BYTES], merged_ids[MAX_SHORT_BYTES];
    uint32_t ranks[MAX_SHORT_BYTES]; /* of (i, i + 1); the last one has none */
    size_t n = n_bytes;
    for (size_t i = 0; i < n; i++) ids[i] = bpe->vocab->byte_ids[(unsigned char)word[i]];
    for (size_t i = 0; i + 1 < n; i++) ranks[i] = pair_rank(bpe, ids[i], ids[i + 1], &merged_ids[i]);
    ranks[n - 1] = MERGE_NO_RANK;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == MERGE_NO_RANK) break;
        ids[best] = merged_ids[best];
        size_t n_after = n - best - 2;
        memmove(ids + best + 1, ids + best + 2, n_after * sizeof *ids);
        memmove(ranks + best + 1, ranks + best + 2, n_after * sizeof *ranks);
        memmove(merged_ids + best + 1, merged_ids + best + 2, n_after * sizeof *merged_ids);
        n--;
        ranks[best] = best + 1 < n ? pair_rank(bpe, ids[best], ids[best + 1], &merged_ids[best]) : MERGE_NO_RANK;
        if (best) ranks[best - 1] = pair_rank(bpe, ids[best - 1], ids[best], &merged_ids[best - 1]);
    }
    size_t n_known = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0) ids[n_known++] = ids[i];
    return id_list_push_all(out_ids, ids, n_known);
}

enum status bpe_encode_word(const struct bpe *bpe, struct merge *merge, const char *word, size_t n_bytes,
                            struct id_list *out_ids) {
    if (n_bytes == 0) return STATUS_OK;
    if (bpe->takes_whole_words) {
        int32_t id = vocab_find(bpe->vocab, word, n_bytes);
        if (id >= 0) return id_list_push(out_ids, id);
    }
    if (n_bytes <= MAX_SHORT_BYTES) return encode_short(bpe, word, n_bytes, out_ids);
    return encode_long(bpe, merge, word, n_bytes, out_ids);
}
