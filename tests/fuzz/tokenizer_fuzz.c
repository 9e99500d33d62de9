/* The first byte holds the flags; the rest is a model file, and its last 400 bytes are also the text to encode. Ids
 * must be in range and what comes back must be UTF-8. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static struct tokenizer *open_bytes(const uint8_t *bytes, size_t n_bytes) {
    struct gguf *gguf;
    struct tokenizer *tokenizer = NULL;
    struct status_note note;
    if (gguf_open_bytes(&gguf, bytes, n_bytes, &note)) return NULL;
    if (tokenizer_open(&tokenizer, gguf, &note)) tokenizer = NULL;
    gguf_close(&gguf);
    return tokenizer;
}

static void encode_and_back(const struct tokenizer *tokenizer, const char *text, size_t n_bytes, unsigned flags) {
    struct id_list ids;
    struct str back;
    struct detokenizer detokenizer;
    struct status_note note;
    id_list_init(&ids, 1 << 20);
    str_init(&back, 1 << 24);
    detokenizer_init(&detokenizer, tokenizer, DETOKENIZER_AT_START);
    if (tokenizer_encode(tokenizer, text, n_bytes, flags, &ids, &note) == STATUS_OK) {
        for (size_t i = 0; i < ids.n_ids; i++) /* the text may grow past its bound, an id never leaves the vocabulary */
            if (detokenizer_push(&detokenizer, ids.ids[i], &back) == STATUS_INVALID) abort();
        if (detokenizer_finish(&detokenizer, &back) == STATUS_INVALID) abort();
        if (utf8_valid_prefix(back.ptr, back.n_bytes) != back.n_bytes) abort();
    }
    str_deinit(&back);
    id_list_deinit(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    if (n_bytes < 2) return 0;
    unsigned flags = data[0] & (TOKENIZER_ADD_BOS | TOKENIZER_PARSE_SPECIAL);
    struct tokenizer *tokenizer = open_bytes(data + 1, n_bytes - 1);
    if (!tokenizer) return 0;
    size_t n_text = n_bytes < 400 ? n_bytes : 400;
    encode_and_back(tokenizer, (const char *)data + n_bytes - n_text, n_text, flags);
    tokenizer_close(&tokenizer);
    return 0;
}
