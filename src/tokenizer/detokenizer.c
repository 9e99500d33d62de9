#include "tokenizer/detokenizer.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer, unsigned flags) {
    *detokenizer = (struct detokenizer){
        .tokenizer = tokenizer,
        .drops_space = flags & DETOKENIZER_AT_START && tokenizer_adds_space(tokenizer),
        .shows_special = flags & DETOKENIZER_SHOW_SPECIAL,
    };
}

/* One more byte: held grows, becomes a character of out, or turns out not to be one. */
static enum status push_byte(struct detokenizer *detokenizer, char byte, struct str *out) {
    enum status status = STATUS_OK;
    detokenizer->held[detokenizer->n_held++] = byte;
    size_t n_held = (size_t)detokenizer->n_held;
    if (utf8_decode(detokenizer->held, n_held, NULL)) {
        detokenizer->n_held = 0;
        return str_append(out, detokenizer->held, n_held);
    }
    if (utf8_open_tail(detokenizer->held, n_held) == detokenizer->n_held) return STATUS_OK;
    detokenizer->n_held = 0;
    status = str_append(out, REPLACEMENT, 3);
    /* The byte that broke the character off may begin the next one. */
    if (!status && n_held > 1) status = push_byte(detokenizer, byte, out);
    return status;
}

enum status detokenizer_push(struct detokenizer *detokenizer, int32_t id, struct str *out) {
    size_t n_bytes, from = 0;
    const char *bytes = tokenizer_text_of(detokenizer->tokenizer, id, &n_bytes);
    if (!bytes) return STATUS_INVALID;
    bool is_special = tokenizer_is_special(detokenizer->tokenizer, id);
    if (n_bytes == 0 || (is_special && !detokenizer->shows_special)) return STATUS_OK;
    if (!is_special) {
        from = detokenizer->drops_space && bytes[0] == ' ';
        detokenizer->drops_space = false;
    }
    while (from < n_bytes) {
        if (detokenizer->n_held == 0) {
            size_t n_valid = utf8_valid_prefix(bytes + from, n_bytes - from);
            enum status status = str_append(out, bytes + from, n_valid);
            if (status) return status;
            from += n_valid;
            if (from == n_bytes) break;
        }
        enum status status = push_byte(detokenizer, bytes[from++], out);
        if (status) return status;
    }
    return STATUS_OK;
}

enum status detokenizer_finish(struct detokenizer *detokenizer, struct str *out) {
    if (detokenizer->n_held == 0) return STATUS_OK;
    detokenizer->n_held = 0;
    return str_append(out, REPLACEMENT, 3);
}
