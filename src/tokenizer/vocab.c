#include "tokenizer/vocab.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tokenizer/text_hash.h"
#include "weights/gguf.h"

#define N_ALPHABET 324            /* code points 0..323; 68 bytes have no printable character of their own */
#define SPACE_MARK "\xe2\x96\x81" /* U+2581, SentencePiece's written space */

/* ---- bytes of one token ---- */

static bool is_printable(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
}

/* Code point -> byte: printable Latin-1 stands for itself, the other 68 bytes in ascending order for 256, 257, ... */
static int alphabet_byte(uint32_t code_point) {
    if (code_point < 256) return is_printable((int)code_point) ? (int)code_point : -1;
    int nth = (int)code_point - 256; /* ranges without a printable character: 0..32, 127..160, 173 */
    if (nth < 33) return nth;
    if (nth < 67) return nth - 33 + 127;
    return nth == 67 ? 173 : -1;
}

size_t vocab_decode_alphabet(const char *text, size_t n_bytes, char *out) {
    const unsigned char *p = (const unsigned char *)text, *end = p + n_bytes;
    char *start = out;
    while (p < end) {
        uint32_t code_point = *p++;
        if (code_point >= 0x80) { /* two bytes of UTF-8 reach past the alphabet's last character */
            if (code_point < 0xc2 || code_point > 0xdf || p == end || (*p & 0xc0) != 0x80) return SIZE_MAX;
            code_point = (code_point & 0x1f) << 6 | (*p++ & 0x3f);
        }
        int byte = alphabet_byte(code_point);
        if (byte < 0) return SIZE_MAX;
        *out++ = (char)byte;
    }
    return (size_t)(out - start);
}

static size_t resolve_spaces(const char *text, size_t n_bytes, char *out) {
    size_t n_out = 0;
    for (size_t i = 0; i < n_bytes;) {
        if (n_bytes - i >= 3 && memcmp(text + i, SPACE_MARK, 3) == 0) {
            out[n_out++] = ' ';
            i += 3;
        } else {
            out[n_out++] = text[i++];
        }
    }
    return n_out;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The byte that "<0xE2>" stands for; -1 if text has another form. */
static int named_byte(const char *text, size_t n_bytes) {
    if (n_bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Writes what token id stands for at out; *out_is_ordinary: it takes part in merging. */
static size_t resolve_token(struct vocab *vocab, int32_t id, struct gguf_text text, char *out, bool *out_is_ordinary) {
    int type = vocab->types[id], byte;
    *out_is_ordinary = type == VOCAB_NORMAL || type == VOCAB_UNUSED;
    if (type == VOCAB_BYTE && (byte = named_byte(text.ptr, text.n_bytes)) >= 0) {
        if (vocab->byte_ids[byte] < 0) vocab->byte_ids[byte] = id;
        *out = (char)byte;
        return 1;
    }
    if (*out_is_ordinary) {
        if (vocab->model == VOCAB_SPM) return resolve_spaces(text.ptr, text.n_bytes, out);
        size_t n = vocab_decode_alphabet(text.ptr, text.n_bytes, out);
        if (n != SIZE_MAX) return n;
        *out_is_ordinary = false; /* no sequence of byte symbols can ever become it */
    }
    if (text.n_bytes) memcpy(out, text.ptr, text.n_bytes);
    return text.n_bytes;
}

/* ---- lookup table ---- */

static struct vocab_slot *find_slot(const struct vocab *vocab, const char *bytes, size_t n_bytes, uint32_t hash) {
    for (uint32_t i = hash & vocab->slot_mask;; i = (i + 1) & vocab->slot_mask) {
        struct vocab_slot *slot = &vocab->slots[i];
        if (slot->id < 0) return slot;
        if (slot->hash != hash) continue;
        uint32_t from = vocab->offs[slot->id];
        if (vocab->offs[slot->id + 1] - from == n_bytes && memcmp(vocab->bytes + from, bytes, n_bytes) == 0)
            return slot;
    }
}

static void add_to_table(struct vocab *vocab, int32_t id, uint32_t hash) {
    size_t n_bytes;
    const char *bytes = vocab_bytes(vocab, id, &n_bytes);
    struct vocab_slot *slot = find_slot(vocab, bytes, n_bytes, hash);
    if (slot->id >= 0) return;
    *slot = (struct vocab_slot){hash, id};
    if (n_bytes > vocab->max_bytes) vocab->max_bytes = (uint32_t)n_bytes;
}

uint32_t vocab_hash(const char *bytes, size_t n_bytes) {
    return (uint32_t)text_hash(bytes, n_bytes);
}

void vocab_prefetch_slot(const struct vocab *vocab, uint32_t hash) {
    __builtin_prefetch(&vocab->slots[hash & vocab->slot_mask]);
}

void vocab_prefetch_bytes(const struct vocab *vocab, uint32_t hash) {
    int32_t id = vocab->slots[hash & vocab->slot_mask].id;
    if (id >= 0) __builtin_prefetch(vocab->bytes + vocab->offs[id]);
}

int32_t vocab_find_hashed(const struct vocab *vocab, const char *bytes, size_t n_bytes, uint32_t hash) {
    if (n_bytes == 0 || n_bytes > vocab->max_bytes) return -1;
    return find_slot(vocab, bytes, n_bytes, hash)->id;
}

int32_t vocab_find(const struct vocab *vocab, const char *bytes, size_t n_bytes) {
    if (n_bytes == 0 || n_bytes > vocab->max_bytes) return -1;
    return find_slot(vocab, bytes, n_bytes, vocab_hash(bytes, n_bytes))->id;
}

/* Tokens on their way into the table, oldest first; their lines are being fetched. */
struct waiting {
    int32_t ids[16];
    uint32_t hashes[16];
    unsigned n_added, n_done;
};

static void add_oldest(struct vocab *vocab, struct waiting *waiting) {
    unsigned i = waiting->n_done++ % 16;
    add_to_table(vocab, waiting->ids[i], waiting->hashes[i]);
}

static void add_later(struct vocab *vocab, struct waiting *waiting, int32_t id) {
    size_t n_bytes;
    const char *bytes = vocab_bytes(vocab, id, &n_bytes);
    if (n_bytes == 0) return;
    if (waiting->n_added - waiting->n_done == 16) add_oldest(vocab, waiting);
    unsigned i = waiting->n_added++ % 16;
    waiting->ids[i] = id;
    waiting->hashes[i] = vocab_hash(bytes, n_bytes);
    vocab_prefetch_slot(vocab, waiting->hashes[i]);
}

int32_t vocab_find_special(const struct vocab *vocab, const char *text) {
    size_t want = strlen(text), n_bytes;
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        if (vocab->types[id] == VOCAB_NORMAL) continue;
        const char *bytes = vocab_bytes(vocab, id, &n_bytes);
        if (n_bytes == want && memcmp(bytes, text, want) == 0) return id;
    }
    return -1;
}

const char *vocab_bytes(const struct vocab *vocab, int32_t id, size_t *out_n_bytes) {
    *out_n_bytes = vocab->offs[id + 1] - vocab->offs[id];
    return vocab->bytes + vocab->offs[id];
}

/* ---- loading ---- */

static enum status get_array(const struct gguf *gguf, const char *key, struct gguf_array *out, uint64_t n_items,
                             struct status_note *note) {
    enum status status = gguf_get_array(gguf, key, out, note);
    if (status) return status;
    if (out->n_items != n_items)
        return status_fail(note, STATUS_FORMAT, "%s: %llu items for %llu tokens", key, (unsigned long long)out->n_items,
                           (unsigned long long)n_items);
    return STATUS_OK;
}

static enum status load_scores(struct vocab *vocab, const struct gguf *gguf, struct status_note *note) {
    static const char key[] = "tokenizer.ggml.scores";
    struct gguf_array array;
    enum status status = get_array(gguf, key, &array, (uint64_t)vocab->n_tokens, note);
    if (status) return status;
    if (array.item_type != GGUF_F32 && array.item_type != GGUF_F64)
        return status_fail(note, STATUS_FORMAT, "%s: items of type %d, not real numbers", key, (int)array.item_type);
    vocab->scores = mem_alloc_array((size_t)vocab->n_tokens, sizeof *vocab->scores);
    if (!vocab->scores) return status_fail(note, STATUS_NOMEM, "%s: out of memory", key);
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        double score = gguf_array_real(&array, (uint64_t)id);
        if (!isfinite(score)) return status_fail(note, STATUS_FORMAT, "%s: token %d has no finite score", key, (int)id);
        vocab->scores[id] = (float)score;
    }
    return STATUS_OK;
}

static enum status load_id(const struct vocab *vocab, const struct gguf *gguf, const char *key, int32_t *out_id,
                           struct status_note *note) {
    uint64_t id;
    *out_id = -1;
    if (!gguf_has(gguf, key)) return STATUS_OK;
    enum status status = gguf_get_u64(gguf, key, &id, note);
    if (status) return status;
    if (id >= (uint64_t)vocab->n_tokens)
        return status_fail(note, STATUS_FORMAT, "%s: %llu, but there are %d tokens", key, (unsigned long long)id,
                           (int)vocab->n_tokens);
    *out_id = (int32_t)id;
    return STATUS_OK;
}

static enum status load_bool(const struct gguf *gguf, const char *key, bool initial, bool *out,
                             struct status_note *note) {
    *out = initial;
    return gguf_has(gguf, key) ? gguf_get_bool(gguf, key, out, note) : STATUS_OK;
}

static enum status load_settings(struct vocab *vocab, const struct gguf *gguf, struct status_note *note) {
    const struct {
        const char *key;
        int32_t *out_id;
    } rows[] = {
        {"tokenizer.ggml.bos_token_id", &vocab->bos_id},         {"tokenizer.ggml.eos_token_id", &vocab->eos_id},
        {"tokenizer.ggml.eot_token_id", &vocab->eot_id},         {"tokenizer.ggml.eom_token_id", &vocab->eom_id},
        {"tokenizer.ggml.unknown_token_id", &vocab->unknown_id},
    };
    enum status status;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((status = load_id(vocab, gguf, rows[i].key, rows[i].out_id, note))) return status;
    bool is_spm = vocab->model == VOCAB_SPM;
    if ((status = load_bool(gguf, "tokenizer.ggml.add_bos_token", is_spm, &vocab->adds_bos, note))) return status;
    return load_bool(gguf, "tokenizer.ggml.add_space_prefix", is_spm, &vocab->adds_space, note);
}

/* After the settings: without types in the file, what begins and ends a text is known to be no text. */
static enum status load_types(struct vocab *vocab, const struct gguf *gguf, struct status_note *note) {
    static const char key[] = "tokenizer.ggml.token_type";
    struct gguf_array array;
    memset(vocab->types, VOCAB_NORMAL, (size_t)vocab->n_tokens);
    if (!gguf_has(gguf, key)) {
        if (vocab->bos_id >= 0) vocab->types[vocab->bos_id] = VOCAB_CONTROL;
        if (vocab->eos_id >= 0) vocab->types[vocab->eos_id] = VOCAB_CONTROL;
        return STATUS_OK;
    }
    enum status status = get_array(gguf, key, &array, (uint64_t)vocab->n_tokens, note);
    if (status) return status;
    if (array.item_type == GGUF_TEXT || array.item_type == GGUF_F32 || array.item_type == GGUF_F64)
        return status_fail(note, STATUS_FORMAT, "%s: items of type %d, not whole numbers", key, (int)array.item_type);
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        int64_t type = gguf_array_int(&array, (uint64_t)id);
        if (type < 0 || type > VOCAB_BYTE)
            return status_fail(note, STATUS_FORMAT, "%s: token %d has unknown type %lld", key, (int)id,
                               (long long)type);
        vocab->types[id] = (uint8_t)(type ? type : VOCAB_NORMAL);
    }
    return STATUS_OK;
}

static enum status load_model(struct vocab *vocab, const struct gguf *gguf, struct status_note *note) {
    static const char key[] = "tokenizer.ggml.model";
    struct gguf_text text;
    enum status status = gguf_get_text(gguf, key, &text, note);
    if (status) return status;
    if (text.n_bytes == 4 && memcmp(text.ptr, "gpt2", 4) == 0)
        vocab->model = VOCAB_BPE;
    else if (text.n_bytes == 5 && memcmp(text.ptr, "llama", 5) == 0)
        vocab->model = VOCAB_SPM;
    else
        return status_fail(note, STATUS_INVALID, "%s: '%.*s' is not known (gpt2, llama)", key,
                           (int)(text.n_bytes < 40 ? text.n_bytes : 40), text.ptr);
    return STATUS_OK;
}

static enum status reserve_tables(struct vocab *vocab, const struct gguf_array *tokens, struct status_note *note) {
    struct gguf_text text;
    uint64_t n_bytes = 0;
    for (size_t cursor = 0; gguf_array_next_text(tokens, &cursor, &text);) n_bytes += text.n_bytes;
    if (n_bytes >= UINT32_MAX)
        return status_fail(note, STATUS_FORMAT, "tokenizer.ggml.tokens: %llu bytes of text",
                           (unsigned long long)n_bytes);
    uint32_t n_slots = 16;
    while (n_slots < 2 * (uint64_t)vocab->n_tokens) n_slots *= 2;
    vocab->slot_mask = n_slots - 1;
    vocab->offs = mem_alloc_array((size_t)vocab->n_tokens + 1, sizeof *vocab->offs);
    vocab->bytes = mem_alloc((size_t)n_bytes + 1);
    vocab->types = mem_alloc((size_t)vocab->n_tokens);
    vocab->slots = mem_alloc_array(n_slots, sizeof *vocab->slots);
    if (!vocab->offs || !vocab->bytes || !vocab->types || !vocab->slots)
        return status_fail(note, STATUS_NOMEM, "tokenizer.ggml.tokens: out of memory");
    for (uint32_t i = 0; i < n_slots; i++) vocab->slots[i].id = -1;
    memset(vocab->byte_ids, 0xff, sizeof vocab->byte_ids);
    return STATUS_OK;
}

static enum status load_tokens(struct vocab *vocab, const struct gguf *gguf, struct status_note *note) {
    static const char key[] = "tokenizer.ggml.tokens";
    struct gguf_array tokens;
    struct gguf_text text;
    enum status status = gguf_get_array(gguf, key, &tokens, note);
    if (status) return status;
    if (tokens.item_type != GGUF_TEXT)
        return status_fail(note, STATUS_FORMAT, "%s: items of type %d, not texts", key, (int)tokens.item_type);
    if (tokens.n_items == 0 || tokens.n_items > INT32_MAX / 4)
        return status_fail(note, STATUS_FORMAT, "%s: %llu tokens", key, (unsigned long long)tokens.n_items);
    vocab->n_tokens = (int32_t)tokens.n_items;
    if ((status = reserve_tables(vocab, &tokens, note))) return status;
    if ((status = load_settings(vocab, gguf, note))) return status;
    if ((status = load_types(vocab, gguf, note))) return status;
    struct waiting waiting = {.n_added = 0};
    size_t cursor = 0;
    for (int32_t id = 0; id < vocab->n_tokens && gguf_array_next_text(&tokens, &cursor, &text); id++) {
        bool is_ordinary;
        size_t n = resolve_token(vocab, id, text, vocab->bytes + vocab->offs[id], &is_ordinary);
        vocab->offs[id + 1] = vocab->offs[id] + (uint32_t)n;
        if (is_ordinary) add_later(vocab, &waiting, id);
    }
    while (waiting.n_done != waiting.n_added) add_oldest(vocab, &waiting);
    for (int byte = 0; vocab->model == VOCAB_BPE && byte < 256; byte++) {
        char one = (char)byte;
        vocab->byte_ids[byte] = vocab_find(vocab, &one, 1);
    }
    return STATUS_OK;
}

enum status vocab_load(struct vocab *vocab, const struct gguf *gguf, struct status_note *note) {
    *vocab = (struct vocab){0};
    enum status status = load_model(vocab, gguf, note);
    if (!status) status = load_tokens(vocab, gguf, note);
    if (!status && vocab->model == VOCAB_SPM) status = load_scores(vocab, gguf, note);
    if (status) vocab_deinit(vocab);
    return status;
}

void vocab_deinit(struct vocab *vocab) {
    mem_free(vocab->offs);
    mem_free(vocab->bytes);
    mem_free(vocab->types);
    mem_free(vocab->scores);
    mem_free(vocab->slots);
    *vocab = (struct vocab){0};
}
