#include "tokenizer/spm.h"

#include <string.h>

#include "base/utf8.h"

void spm_init(struct spm *spm, const struct vocab *vocab) {
    *spm = (struct spm){.vocab = vocab};
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        size_t n_bytes;
        const char *bytes = vocab_bytes(vocab, id, &n_bytes);
        if (vocab->types[id] != VOCAB_NORMAL && vocab->types[id] != VOCAB_UNUSED) continue;
        for (size_t i = 1; i < n_bytes; i++)
            if (bytes[i] == ' ' && bytes[i - 1] != ' ') spm->may_precede_space[(unsigned char)bytes[i - 1]] = true;
    }
}

size_t spm_next_piece(const struct spm *spm, const char *text, size_t n_bytes) {
    size_t i = 1;
    while (i < n_bytes) {
        const char *space = memchr(text + i, ' ', n_bytes - i);
        if (!space) return n_bytes;
        i = (size_t)(space - text);
        if (text[i - 1] != ' ' && !spm->may_precede_space[(unsigned char)text[i - 1]]) return i;
        i++;
    }
    return n_bytes;
}

/* Ascending order of the result is descending order of the scores. */
static uint32_t rank_of_score(float score) {
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are equal scores */
    memcpy(&bits, &score, sizeof bits);
    return ~(bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u));
}

struct piece {
    const struct spm *spm;
    const char *text;
};

static uint32_t merge_pair(const void *context, const struct merge_symbol *left, const struct merge_symbol *right,
                           int32_t *out_merged_id) {
    const struct piece *piece = context;
    const struct vocab *vocab = piece->spm->vocab;
    int32_t id = vocab_find(vocab, piece->text + left->from, left->n_bytes + right->n_bytes);
    if (id < 0) return MERGE_NO_RANK;
    *out_merged_id = id;
    return rank_of_score(vocab->scores[id]);
}

static enum status push_bytes(const struct vocab *vocab, const char *bytes, size_t n_bytes, struct id_list *out_ids) {
    int32_t ids[UTF8_MAX_BYTES];
    size_t n_ids = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        int32_t id = vocab->byte_ids[(unsigned char)bytes[i]];
        if (id < 0) { /* one unknown token for the character, not one per byte */
            ids[0] = vocab->unknown_id;
            n_ids = vocab->unknown_id >= 0;
            break;
        }
        ids[n_ids++] = id;
    }
    return id_list_push_all(out_ids, ids, n_ids);
}

enum status spm_encode_piece(const struct spm *spm, struct merge *merge, const char *text, size_t n_bytes,
                             struct id_list *out_ids) {
    size_t n_symbols = 0;
    enum status status = merge_reserve(merge, n_bytes);
    if (status || n_bytes == 0) return status;
    for (size_t i = 0; i < n_bytes; n_symbols++) {
        int n = utf8_decode(text + i, n_bytes - i, NULL);
        size_t n_char = n ? (size_t)n : 1; /* a byte that is no UTF-8 is a character of its own */
        merge->symbols[n_symbols] = (struct merge_symbol){
            .from = (uint32_t)i, .n_bytes = (uint32_t)n_char, .id = vocab_find(spm->vocab, text + i, n_char)};
        i += n_char;
    }
    struct piece piece = {spm, text};
    merge_run(merge, n_symbols, merge_pair, &piece);
    for (uint32_t i = 0; i != MERGE_NO_SYMBOL; i = merge->symbols[i].next) {
        const struct merge_symbol *symbol = &merge->symbols[i];
        if (symbol->id >= 0)
            status = id_list_push(out_ids, symbol->id);
        else
            status = push_bytes(spm->vocab, text + symbol->from, symbol->n_bytes, out_ids);
        if (status) return status;
    }
    return STATUS_OK;
}
