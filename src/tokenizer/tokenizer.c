#include "tokenizer/tokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/special_match.h"
#include "tokenizer/spm.h"
#include "tokenizer/vocab.h"
#include "tokenizer/word_cache.h"
#include "weights/gguf.h"

#define MAX_END_IDS 32
#define SPACE_MARK "\xe2\x96\x81"

struct tokenizer {
    struct vocab vocab;
    struct special_match special;
    struct pretokenize pretokenize; /* BPE */
    struct bpe bpe;
    struct spm spm; /* SPM */
    int32_t end_ids[MAX_END_IDS];
    int n_end_ids;
};

/* ---- opening ---- */

/* Names of control tokens after which a model is done, as model cards and generation configs give them; a file's own
 * eos id often is another one. The first n_turn_ends end a turn in chats. */
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<|end|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end_of_turn|>",
    "<EOT>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|return|>",
    "<|call|>",
    "<eos>",
    "</s>",
    "<｜end▁of▁sentence｜>",
};
static const size_t n_turn_ends = 7;

static void add_end_id(struct tokenizer *tokenizer, int32_t id) {
    if (id < 0 || tokenizer->n_end_ids == MAX_END_IDS || tokenizer_is_end_of_generation(tokenizer, id)) return;
    tokenizer->end_ids[tokenizer->n_end_ids++] = id;
}

static void find_end_ids(struct tokenizer *tokenizer) {
    struct vocab *vocab = &tokenizer->vocab;
    add_end_id(tokenizer, vocab->eos_id);
    add_end_id(tokenizer, vocab->eot_id);
    add_end_id(tokenizer, vocab->eom_id);
    for (size_t i = 0; i < sizeof end_texts / sizeof end_texts[0]; i++) {
        int32_t id = vocab_find_special(vocab, end_texts[i]);
        if (id < 0 || !special_match_is_control(vocab, id)) continue;
        add_end_id(tokenizer, id);
        if (i < n_turn_ends && vocab->eot_id < 0) vocab->eot_id = id;
    }
}

static enum status open_bpe(struct tokenizer *tokenizer, const struct gguf *gguf, struct status_note *note) {
    struct gguf_text name;
    enum status status = gguf_get_text(gguf, "tokenizer.ggml.pre", &name, note);
    if (status) return status;
    if ((status = pretokenize_init(&tokenizer->pretokenize, name.ptr, name.n_bytes, note))) return status;
    /* Files made before the key existed: the models that take whole words (Llama 3 and kin) all want BOS. */
    if (!gguf_has(gguf, "tokenizer.ggml.add_bos_token"))
        tokenizer->vocab.adds_bos = tokenizer->pretokenize.takes_whole_words && tokenizer->vocab.bos_id >= 0;
    return bpe_load(&tokenizer->bpe, &tokenizer->vocab, gguf, tokenizer->pretokenize.takes_whole_words, note);
}

enum status tokenizer_open(struct tokenizer **out_tokenizer, const struct gguf *gguf, struct status_note *note) {
    *out_tokenizer = NULL;
    struct tokenizer *tokenizer = mem_alloc(sizeof *tokenizer);
    if (!tokenizer) return status_fail(note, STATUS_NOMEM, "tokenizer: out of memory");
    enum status status = vocab_load(&tokenizer->vocab, gguf, note);
    if (!status) status = special_match_init(&tokenizer->special, &tokenizer->vocab, note);
    if (!status && tokenizer->vocab.model == VOCAB_BPE) status = open_bpe(tokenizer, gguf, note);
    if (!status && tokenizer->vocab.model == VOCAB_SPM) spm_init(&tokenizer->spm, &tokenizer->vocab);
    if (status) {
        tokenizer_close(&tokenizer);
        return status;
    }
    find_end_ids(tokenizer);
    *out_tokenizer = tokenizer;
    return STATUS_OK;
}

void tokenizer_close(struct tokenizer **tokenizer) {
    if (!*tokenizer) return;
    bpe_deinit(&(*tokenizer)->bpe);
    pretokenize_deinit(&(*tokenizer)->pretokenize);
    special_match_deinit(&(*tokenizer)->special);
    vocab_deinit(&(*tokenizer)->vocab);
    mem_free(*tokenizer);
    *tokenizer = NULL;
}

/* ---- encoding ---- */

/* One call of encode. */
struct encoder {
    const struct tokenizer *tokenizer;
    struct id_list *ids;
    struct status_note *note;
    struct pretokenize_session words;
    struct word_cache cache;
    struct merge merge;
    struct str plain;     /* SPM: a fragment with its dummy space and resolved marks */
    const char *fragment; /* what the offsets of words refer to */
};

static enum status encode_uncached(struct encoder *encoder, const char *word, size_t n_bytes) {
    const struct tokenizer *tokenizer = encoder->tokenizer;
    if (tokenizer->vocab.model == VOCAB_BPE)
        return bpe_encode_word(&tokenizer->bpe, &encoder->merge, word, n_bytes, encoder->ids);
    return spm_encode_piece(&tokenizer->spm, &encoder->merge, word, n_bytes, encoder->ids);
}

static enum status encode_word(void *context, size_t from, size_t n_bytes) {
    struct encoder *encoder = context;
    struct id_list *ids = encoder->ids;
    const char *word = encoder->fragment + from;
    if (n_bytes > WORD_CACHE_MAX_BYTES) return encode_uncached(encoder, word, n_bytes);
    int is_hit;
    struct word_cache_entry *entry = word_cache_find(&encoder->cache, word, n_bytes, &is_hit);
    if (is_hit) return id_list_push_all(ids, entry->ids, entry->n_ids);
    size_t n_before = ids->n_ids;
    enum status status = encode_uncached(encoder, word, n_bytes);
    if (!status) word_cache_put(entry, word, n_bytes, ids->ids + n_before, ids->n_ids - n_before);
    return status;
}

/* SPM: spaces and their written form U+2581 are one and the same to the model. */
static enum status resolve_marks(struct str *plain, const char *text, size_t n_bytes) {
    enum status status = STATUS_OK;
    while (!status && n_bytes) {
        const char *mark = memmem(text, n_bytes, SPACE_MARK, 3);
        size_t n_before = mark ? (size_t)(mark - text) : n_bytes;
        status = str_append(plain, text, n_before);
        if (!mark) break;
        if (!status) status = str_append(plain, " ", 1);
        text += n_before + 3;
        n_bytes -= n_before + 3;
    }
    return status;
}

static enum status encode_spm(struct encoder *encoder, const char *text, size_t n_bytes, bool follows_special) {
    const struct spm *spm = &encoder->tokenizer->spm;
    struct str *plain = &encoder->plain;
    enum status status = STATUS_OK;
    str_clear(plain);
    if (spm->vocab->adds_space && follows_special) status = str_append(plain, " ", 1);
    if (!status) status = resolve_marks(plain, text, n_bytes);
    encoder->fragment = plain->ptr;
    for (size_t from = 0, n; !status && from < plain->n_bytes; from += n) {
        n = spm_next_piece(spm, plain->ptr + from, plain->n_bytes - from);
        status = encode_word(encoder, from, n);
    }
    return status;
}

/* Text between special tokens (or the ends of the text). */
static enum status encode_fragment(struct encoder *encoder, const char *text, size_t n_bytes, bool follows_special) {
    if (n_bytes == 0) return STATUS_OK;
    if (encoder->tokenizer->vocab.model == VOCAB_SPM) return encode_spm(encoder, text, n_bytes, follows_special);
    encoder->fragment = text;
    return pretokenize_words(&encoder->words, text, n_bytes, encode_word, encoder, encoder->note);
}

/* Walks the spans beside the text: where the run of touching parse_special spans around a position ends. */
struct span_walk {
    const struct tokenizer_span *spans;
    size_t n_spans, span_idx;
    size_t run_from, run_to; /* the run at or after the last position asked for; empty at the end */
};

static size_t control_bytes_at(struct span_walk *walk, size_t at) {
    while (at >= walk->run_to && walk->span_idx < walk->n_spans) {
        const struct tokenizer_span *span = &walk->spans[walk->span_idx++];
        if (!span->parse_special) continue;
        walk->run_from = span->from;
        walk->run_to = span->to;
        while (walk->span_idx < walk->n_spans && walk->spans[walk->span_idx].parse_special &&
               walk->spans[walk->span_idx].from == walk->run_to)
            walk->run_to = walk->spans[walk->span_idx++].to;
    }
    return at >= walk->run_from && at < walk->run_to ? walk->run_to - at : 0;
}

static enum status encode_text(struct encoder *encoder, const char *text, size_t n_bytes, struct span_walk *walk) {
    const struct special_match *special = &encoder->tokenizer->special;
    size_t from = 0, at = 0;
    bool follows_special = true;
    enum status status = STATUS_OK;
    while (!status && at < n_bytes) {
        unsigned char first = (unsigned char)text[at];
        int32_t id = -1;
        if (special->first_from[first] != special->first_from[first + 1])
            id = special_match_at(special, text + at, n_bytes - at, control_bytes_at(walk, at));
        if (id < 0) {
            at++;
            continue;
        }
        status = encode_fragment(encoder, text + from, at - from, follows_special);
        if (!status) status = id_list_push(encoder->ids, id);
        size_t n_token;
        vocab_bytes(&encoder->tokenizer->vocab, id, &n_token);
        from = at += n_token;
        follows_special = true;
    }
    return status ? status : encode_fragment(encoder, text + from, n_bytes - from, follows_special);
}

static enum status encoder_init(struct encoder *encoder, const struct tokenizer *tokenizer, size_t n_bytes) {
    merge_init(&encoder->merge);
    str_init(&encoder->plain, TOKENIZER_MAX_BYTES + 1);
    enum status status = word_cache_init(&encoder->cache, n_bytes);
    if (!status && tokenizer->vocab.model == VOCAB_BPE)
        status = pretokenize_session_init(&encoder->words, &tokenizer->pretokenize);
    return status;
}

static void encoder_deinit(struct encoder *encoder) {
    pretokenize_session_deinit(&encoder->words);
    word_cache_deinit(&encoder->cache);
    merge_deinit(&encoder->merge);
    str_deinit(&encoder->plain);
}

static enum status check_spans(const struct tokenizer_span *spans, size_t n_spans, size_t n_bytes,
                               struct status_note *note) {
    size_t last = 0;
    for (size_t i = 0; i < n_spans; i++) {
        if (spans[i].from < last || spans[i].to < spans[i].from || spans[i].to > n_bytes)
            return status_fail(note, STATUS_INVALID, "span %zu: bytes %zu to %zu of a text of %zu, after byte %zu", i,
                               spans[i].from, spans[i].to, n_bytes, last);
        last = spans[i].to;
    }
    return STATUS_OK;
}

/* A note for failures that have none yet. */
static enum status explain(const struct encoder *encoder, enum status status) {
    if (status == STATUS_LIMIT && encoder->note && !encoder->note->text[0])
        return status_fail(encoder->note, status, "the text has more than %zu tokens", encoder->ids->max_ids);
    if (status == STATUS_NOMEM) return status_fail(encoder->note, status, "tokenizer: out of memory");
    return status;
}

enum status tokenizer_encode_spans(const struct tokenizer *tokenizer, const char *text, size_t n_bytes,
                                   const struct tokenizer_span *spans, size_t n_spans, unsigned flags,
                                   struct id_list *out_ids, struct status_note *note) {
    if (note) note->text[0] = 0;
    if (n_bytes > TOKENIZER_MAX_BYTES)
        return status_fail(note, STATUS_LIMIT, "the text has %zu bytes, at most %zu", n_bytes, TOKENIZER_MAX_BYTES);
    enum status status = check_spans(spans, n_spans, n_bytes, note);
    if (status) return status;
    if (flags & TOKENIZER_ADD_BOS && tokenizer->vocab.bos_id < 0)
        return status_fail(note, STATUS_INVALID, "tokenizer.ggml.bos_token_id: the model has no BOS token");
    size_t n_before = out_ids->n_ids;
    struct encoder encoder = {.tokenizer = tokenizer, .ids = out_ids, .note = note};
    struct span_walk walk = {.spans = spans, .n_spans = n_spans};
    status = encoder_init(&encoder, tokenizer, n_bytes);
    if (!status && flags & TOKENIZER_ADD_BOS) status = id_list_push(out_ids, tokenizer->vocab.bos_id);
    if (!status) status = encode_text(&encoder, text, n_bytes, &walk);
    if (status) {
        out_ids->n_ids = n_before;
        status = explain(&encoder, status);
    }
    encoder_deinit(&encoder);
    return status;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n_bytes, unsigned flags,
                             struct id_list *out_ids, struct status_note *note) {
    struct tokenizer_span whole = {0, n_bytes, flags & TOKENIZER_PARSE_SPECIAL};
    return tokenizer_encode_spans(tokenizer, text, n_bytes, &whole, 1, flags & TOKENIZER_ADD_BOS, out_ids, note);
}

/* ---- questions ---- */

int32_t tokenizer_n_vocab(const struct tokenizer *tokenizer) {
    return tokenizer->vocab.n_tokens;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer) {
    return tokenizer->vocab.bos_id;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer) {
    return tokenizer->vocab.eos_id;
}

int32_t tokenizer_eot(const struct tokenizer *tokenizer) {
    return tokenizer->vocab.eot_id;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer) {
    return tokenizer->vocab.adds_bos;
}

bool tokenizer_adds_space(const struct tokenizer *tokenizer) {
    return tokenizer->vocab.adds_space;
}

bool tokenizer_is_end_of_generation(const struct tokenizer *tokenizer, int32_t id) {
    for (int i = 0; i < tokenizer->n_end_ids; i++)
        if (tokenizer->end_ids[i] == id) return true;
    return false;
}

const int32_t *tokenizer_end_ids(const struct tokenizer *tokenizer, int *out_n) {
    *out_n = tokenizer->n_end_ids;
    return tokenizer->end_ids;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id) {
    return id >= 0 && id < tokenizer->vocab.n_tokens && special_match_is_control(&tokenizer->vocab, id);
}

const char *tokenizer_text_of(const struct tokenizer *tokenizer, int32_t id, size_t *out_n_bytes) {
    *out_n_bytes = 0;
    return id >= 0 && id < tokenizer->vocab.n_tokens ? vocab_bytes(&tokenizer->vocab, id, out_n_bytes) : NULL;
}

int32_t tokenizer_find_special(const struct tokenizer *tokenizer, const char *text) {
    return vocab_find_special(&tokenizer->vocab, text);
}
