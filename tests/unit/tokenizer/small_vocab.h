/* small_vocab: vocabularies made in memory as the bytes of a GGUF file, so that a lone clone proves the main path. */
#ifndef KVICK_TESTS_UNIT_TOKENIZER_SMALL_VOCAB_H
#define KVICK_TESTS_UNIT_TOKENIZER_SMALL_VOCAB_H

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "support/test.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf.h"

#define SMALL_MAX_BYTES 65536
#define SMALL_MAX_TOKENS 600

struct small_vocab {
    const char *model, *pre; /* NULL: key absent */
    int n_tokens, n_merges, n_types, n_scores;
    char tokens[SMALL_MAX_TOKENS][48];
    int32_t types[SMALL_MAX_TOKENS];
    float scores[SMALL_MAX_TOKENS];
    char merges[SMALL_MAX_TOKENS][48];
    int bos, eos; /* -1: absent */
    uint8_t bytes[SMALL_MAX_BYTES];
    size_t n_bytes;
};

/* ---- writing ---- */

static inline void small_put(struct small_vocab *vocab, const void *bytes, size_t n_bytes) {
    assert_true(vocab->n_bytes + n_bytes <= sizeof vocab->bytes);
    memcpy(vocab->bytes + vocab->n_bytes, bytes, n_bytes);
    vocab->n_bytes += n_bytes;
}

static inline void small_put_u32(struct small_vocab *vocab, uint32_t value) {
    small_put(vocab, &value, 4);
}

static inline void small_put_text(struct small_vocab *vocab, const char *text) {
    uint64_t n_bytes = strlen(text);
    small_put(vocab, &n_bytes, 8);
    small_put(vocab, text, n_bytes);
}

static inline void small_put_array(struct small_vocab *vocab, const char *key, uint32_t item_type, int n_items) {
    uint64_t n = (uint64_t)n_items;
    small_put_text(vocab, key);
    small_put_u32(vocab, GGUF_ARRAY);
    small_put_u32(vocab, item_type);
    small_put(vocab, &n, 8);
}

static inline void small_put_key_text(struct small_vocab *vocab, const char *key, const char *text) {
    small_put_text(vocab, key);
    small_put_u32(vocab, GGUF_TEXT);
    small_put_text(vocab, text);
}

static inline void small_put_key_u32(struct small_vocab *vocab, const char *key, uint32_t value) {
    small_put_text(vocab, key);
    small_put_u32(vocab, GGUF_U32);
    small_put_u32(vocab, value);
}

/* The file as it stands; 3 keys always, the others if they are given. */
static inline void small_write(struct small_vocab *vocab) {
    uint64_t n_keys = 1u + (vocab->model != NULL) + (vocab->pre != NULL) + (vocab->n_merges > 0) +
                      (vocab->n_types > 0) + (vocab->n_scores > 0) + (vocab->bos >= 0) + (vocab->eos >= 0);
    uint64_t n_tensors = 0;
    vocab->n_bytes = 0;
    small_put(vocab, "GGUF", 4);
    small_put_u32(vocab, 3);
    small_put(vocab, &n_tensors, 8);
    small_put(vocab, &n_keys, 8);
    if (vocab->model) small_put_key_text(vocab, "tokenizer.ggml.model", vocab->model);
    if (vocab->pre) small_put_key_text(vocab, "tokenizer.ggml.pre", vocab->pre);
    small_put_array(vocab, "tokenizer.ggml.tokens", GGUF_TEXT, vocab->n_tokens);
    for (int i = 0; i < vocab->n_tokens; i++) small_put_text(vocab, vocab->tokens[i]);
    if (vocab->n_types) small_put_array(vocab, "tokenizer.ggml.token_type", GGUF_I32, vocab->n_types);
    small_put(vocab, vocab->types, (size_t)vocab->n_types * 4);
    if (vocab->n_scores) small_put_array(vocab, "tokenizer.ggml.scores", GGUF_F32, vocab->n_scores);
    small_put(vocab, vocab->scores, (size_t)vocab->n_scores * 4);
    if (vocab->n_merges) small_put_array(vocab, "tokenizer.ggml.merges", GGUF_TEXT, vocab->n_merges);
    for (int i = 0; i < vocab->n_merges; i++) small_put_text(vocab, vocab->merges[i]);
    if (vocab->bos >= 0) small_put_key_u32(vocab, "tokenizer.ggml.bos_token_id", (uint32_t)vocab->bos);
    if (vocab->eos >= 0) small_put_key_u32(vocab, "tokenizer.ggml.eos_token_id", (uint32_t)vocab->eos);
}

/* ---- contents ---- */

static inline int small_add(struct small_vocab *vocab, const char *text, int type, float score) {
    int id = vocab->n_tokens++;
    assert_true(id < SMALL_MAX_TOKENS && strlen(text) < sizeof vocab->tokens[0]);
    memcpy(vocab->tokens[id], text, strlen(text) + 1);
    vocab->types[id] = type;
    vocab->scores[id] = score;
    vocab->n_types = vocab->n_tokens;
    return id;
}

/* A merge and its token. left, right: as in the file (byte alphabet). Returns the token's id. */
static inline int small_merge(struct small_vocab *vocab, const char *left, const char *right) {
    char text[48];
    int n = vocab->n_merges++;
    snprintf(vocab->merges[n], sizeof vocab->merges[0], "%s %s", left, right);
    snprintf(text, sizeof text, "%s%s", left, right);
    return small_add(vocab, text, 1, 0);
}

#define SMALL_START 256 /* ids of the specials that small_bpe makes */
#define SMALL_END 257
#define SMALL_USER 258
#define SMALL_HELLO 262

/* Byte-level BPE: ids 0..255 are the bytes, then <|start|> <|end|> (control), "[user]" (user-defined), then
 * he, ll, hell, hello (262), and "\xC4\xA0h" (space h). */
static inline void small_bpe(struct small_vocab *vocab) {
    memset(vocab, 0, sizeof *vocab);
    vocab->model = "gpt2";
    vocab->pre = "gpt-2";
    vocab->bos = SMALL_START;
    vocab->eos = SMALL_END;
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; byte++) {
        char text[8] = {0};
        int is_printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        utf8_encode(is_printable ? byte : next++, text);
        small_add(vocab, text, 1, 0);
    }
    small_add(vocab, "<|start|>", 3, 0);
    small_add(vocab, "<|end|>", 3, 0);
    small_add(vocab, "[user]", 4, 0);
    small_merge(vocab, "h", "e");
    small_merge(vocab, "l", "l");
    small_merge(vocab, "he", "ll");
    assert_int_equal(small_merge(vocab, "hell", "o"), SMALL_HELLO);
    small_merge(vocab, "\xc4\xa0", "h");
}

/* SentencePiece: 0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes, then pieces with scores. */
static inline void small_spm(struct small_vocab *vocab) {
    static const char *const pieces[] = {"\xe2\x96\x81",
                                         "a",
                                         "b",
                                         "ab",
                                         "\xe2\x96\x81"
                                         "a",
                                         "aba",
                                         "\xe2\x96\x81\xe2\x96\x81",
                                         "ba"};
    memset(vocab, 0, sizeof *vocab);
    vocab->model = "llama";
    vocab->pre = "default";
    vocab->bos = 1;
    vocab->eos = 2;
    small_add(vocab, "<unk>", 2, 0);
    small_add(vocab, "<s>", 3, 0);
    small_add(vocab, "</s>", 3, 0);
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        small_add(vocab, text, 6, 0);
    }
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) small_add(vocab, pieces[i], 1, -(float)i);
    vocab->n_scores = vocab->n_tokens;
}

static inline enum status small_open(struct small_vocab *vocab, struct tokenizer **out_tokenizer,
                                     struct status_note *note) {
    struct gguf *gguf;
    *out_tokenizer = NULL;
    enum status status = gguf_open_bytes(&gguf, vocab->bytes, vocab->n_bytes, note);
    if (status) return status;
    status = tokenizer_open(out_tokenizer, gguf, note);
    gguf_close(&gguf);
    return status;
}

#endif
