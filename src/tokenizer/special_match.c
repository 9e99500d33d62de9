#include "tokenizer/special_match.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static bool starts_and_ends(const char *bytes, size_t n_bytes, const char *start, const char *end) {
    size_t n_start = strlen(start), n_end = strlen(end);
    return n_bytes >= n_start + n_end && memcmp(bytes, start, n_start) == 0 &&
           memcmp(bytes + n_bytes - n_end, end, n_end) == 0;
}

bool special_match_is_control(const struct vocab *vocab, int32_t id) {
    int type = vocab->types[id];
    if (type == VOCAB_CONTROL || type == VOCAB_UNKNOWN) return true;
    size_t n_bytes;
    const char *bytes = vocab_bytes(vocab, id, &n_bytes);
    return type == VOCAB_USER && (starts_and_ends(bytes, n_bytes, "<|", "|>") ||
                                  starts_and_ends(bytes, n_bytes, "<\xef\xbd\x9c", "\xef\xbd\x9c>"));
}

static int compare_tokens(const struct vocab *vocab, int32_t a, int32_t b) {
    size_t n_a, n_b;
    const char *bytes_a = vocab_bytes(vocab, a, &n_a), *bytes_b = vocab_bytes(vocab, b, &n_b);
    int order = memcmp(bytes_a, bytes_b, n_a < n_b ? n_a : n_b);
    if (order) return order;
    if (n_a != n_b) return n_a < n_b ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int compare_ids(const void *a, const void *b, void *vocab) {
    return compare_tokens(vocab, *(const int32_t *)a, *(const int32_t *)b);
}

/* Of tokens with equal bytes the first one stays. */
static void drop_duplicates(struct special_match *match) {
    int32_t n_kept = 0;
    for (int32_t i = 0; i < match->n_ids; i++) {
        if (n_kept) {
            size_t n_a, n_b;
            const char *a = vocab_bytes(match->vocab, match->ids[n_kept - 1], &n_a);
            const char *b = vocab_bytes(match->vocab, match->ids[i], &n_b);
            if (n_a == n_b && memcmp(a, b, n_a) == 0) continue;
        }
        match->ids[n_kept++] = match->ids[i];
    }
    match->n_ids = n_kept;
}

static void index_first_bytes(struct special_match *match) {
    int32_t i = 0;
    for (int byte = 0; byte < 256; byte++) {
        match->first_from[byte] = i;
        for (size_t n; i < match->n_ids && (unsigned char)*vocab_bytes(match->vocab, match->ids[i], &n) == byte;) i++;
    }
    match->first_from[256] = i;
}

enum status special_match_init(struct special_match *match, const struct vocab *vocab, struct status_note *note) {
    *match = (struct special_match){.vocab = vocab};
    size_t n_special = 0, n_bytes;
    for (int32_t id = 0; id < vocab->n_tokens; id++) n_special += vocab->types[id] != VOCAB_NORMAL;
    match->ids = mem_alloc_array(n_special, sizeof *match->ids);
    if (!match->ids) return status_fail(note, STATUS_NOMEM, "tokenizer.ggml.tokens: out of memory");
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        int type = vocab->types[id];
        if (type != VOCAB_CONTROL && type != VOCAB_USER && type != VOCAB_UNKNOWN) continue;
        vocab_bytes(vocab, id, &n_bytes);
        if (n_bytes == 0) continue;
        if (n_bytes > SPECIAL_MATCH_MAX_BYTES) {
            special_match_deinit(match);
            return status_fail(note, STATUS_FORMAT, "tokenizer.ggml.tokens: special token %d has %zu bytes, at most %d",
                               (int)id, n_bytes, SPECIAL_MATCH_MAX_BYTES);
        }
        match->ids[match->n_ids++] = id;
    }
    qsort_r(match->ids, (size_t)match->n_ids, sizeof *match->ids, compare_ids, (void *)vocab);
    drop_duplicates(match);
    index_first_bytes(match);
    return STATUS_OK;
}

void special_match_deinit(struct special_match *match) {
    mem_free(match->ids);
    *match = (struct special_match){0};
}

/* First index in [from, to) whose token has a byte >= want at position at; all of them are longer than at and agree
 * before it. */
static int32_t lower_bound(const struct special_match *match, int32_t from, int32_t to, size_t at, int want) {
    while (from < to) {
        int32_t middle = from + (to - from) / 2;
        size_t n_bytes;
        const char *bytes = vocab_bytes(match->vocab, match->ids[middle], &n_bytes);
        if ((unsigned char)bytes[at] < want)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

int32_t special_match_at(const struct special_match *match, const char *text, size_t n_bytes, size_t n_control) {
    int32_t best = -1, from, to;
    if (n_bytes == 0) return -1;
    from = match->first_from[(unsigned char)text[0]];
    to = match->first_from[(unsigned char)text[0] + 1];
    for (size_t depth = 1; from < to; depth++) {
        /* All of [from, to) begin with the first depth bytes of text; a token of just these bytes comes first. */
        size_t n;
        vocab_bytes(match->vocab, match->ids[from], &n);
        if (n == depth) {
            int32_t id = match->ids[from++];
            if (depth <= n_control || !special_match_is_control(match->vocab, id)) best = id;
        }
        if (depth == n_bytes) break;
        int next = (unsigned char)text[depth];
        from = lower_bound(match, from, to, depth, next);
        to = lower_bound(match, from, to, depth, next + 1);
    }
    return best;
}
