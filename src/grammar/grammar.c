#include "grammar/grammar.h"

#include "base/mem.h"
#include "base/str.h"

#ifdef KVICK_BRIDGE

#include "kvick_bridge.h"

#define MAX_VOCAB_BYTES ((size_t)256 << 20)

struct grammar_vocab {
    struct kvick_bridge_vocab *bridge;
    const struct tokenizer *tokenizer;
    uint32_t eos;
};

struct grammar {
    struct kvick_bridge_grammar *bridge;
    const struct grammar_vocab *vocab;
    size_t n_words;
    char words[STATUS_NOTE_MAX_BYTES]; /* the first fault */
};

enum status grammar_vocab_create(struct grammar_vocab **out_vocab, const struct tokenizer *tokenizer,
                                 struct status_note *note) {
    size_t n = (size_t)tokenizer_n_vocab(tokenizer);
    struct grammar_vocab *vocab = mem_alloc(sizeof *vocab);
    size_t *ends = mem_alloc_array(n, sizeof *ends);
    uint8_t *is_special = mem_alloc(n);
    enum status status = vocab && ends && is_special ? STATUS_OK : STATUS_NOMEM;
    char words[STATUS_NOTE_MAX_BYTES] = "";
    struct str text;
    str_init(&text, MAX_VOCAB_BYTES);
    for (size_t id = 0; !status && id < n; id++) {
        size_t n_bytes;
        const char *bytes = tokenizer_text_of(tokenizer, (int32_t)id, &n_bytes);
        status = str_append(&text, bytes, n_bytes);
        ends[id] = text.n_bytes;
        is_special[id] = tokenizer_is_special(tokenizer, (int32_t)id);
    }
    if (!status) {
        *vocab = (struct grammar_vocab){.tokenizer = tokenizer};
        for (size_t id = n; id-- > 0;)
            if (tokenizer_is_end_of_generation(tokenizer, (int32_t)id)) vocab->eos = (uint32_t)id;
        if (tokenizer_eos(tokenizer) >= 0) vocab->eos = (uint32_t)tokenizer_eos(tokenizer);
        if (kvick_bridge_vocab_create(&vocab->bridge, text.ptr, ends, is_special, n, vocab->eos, words, sizeof words))
            status = STATUS_INVALID;
    }
    str_deinit(&text);
    mem_free(ends);
    mem_free(is_special);
    if (!status) {
        *out_vocab = vocab;
        return STATUS_OK;
    }
    mem_free(vocab);
    return status_fail(note, status, "the vocabulary cannot be used with grammars: %s",
                       words[0] ? words : status_text(status));
}

void grammar_vocab_destroy(struct grammar_vocab **vocab) {
    if (!*vocab) return;
    kvick_bridge_vocab_destroy((*vocab)->bridge);
    mem_free(*vocab);
    *vocab = NULL;
}

enum status grammar_create(struct grammar **out_grammar, const struct grammar_vocab *vocab, enum grammar_kind kind,
                           const char *text, size_t n_bytes, int n_choices, struct status_note *note) {
    static const int kinds[] = {[GRAMMAR_JSON_SCHEMA] = KVICK_BRIDGE_JSON_SCHEMA,
                                [GRAMMAR_REGEX] = KVICK_BRIDGE_REGEX,
                                [GRAMMAR_LARK] = KVICK_BRIDGE_LARK,
                                [GRAMMAR_CHOICES] = KVICK_BRIDGE_CHOICES};
    struct grammar *grammar = mem_alloc(sizeof *grammar);
    char words[STATUS_NOTE_MAX_BYTES] = "";
    if (!grammar) return status_fail(note, STATUS_NOMEM, "no memory for the grammar");
    grammar->vocab = vocab;
    grammar->n_words = ((size_t)tokenizer_n_vocab(vocab->tokenizer) + 31) / 32;
    int code = kvick_bridge_grammar_create(&grammar->bridge, vocab->bridge, kinds[kind], text, n_bytes,
                                           (size_t)n_choices, words, sizeof words);
    if (code != KVICK_BRIDGE_OK) {
        mem_free(grammar);
        return status_fail(note, STATUS_INVALID, "%s", words);
    }
    *out_grammar = grammar;
    return STATUS_OK;
}

void grammar_destroy(struct grammar **grammar) {
    if (!*grammar) return;
    kvick_bridge_grammar_destroy((*grammar)->bridge);
    mem_free(*grammar);
    *grammar = NULL;
}

/* After a fault no bit is set, which ends the answer. */
static bool fill(void *arg, uint32_t choice, uint32_t *words) {
    struct grammar *grammar = arg;
    uint32_t eos = grammar->vocab->eos;
    if (grammar->words[0]) return true;
    kvick_bridge_grammar_fill(grammar->bridge, choice, words, grammar->n_words, grammar->words, sizeof grammar->words);
    /* Where the text may end, any of the model's end tokens may say so: chats end with another one than texts. */
    if (!(words[eos / 32] >> (eos % 32) & 1)) return true;
    int n_ends;
    const int32_t *ends = tokenizer_end_ids(grammar->vocab->tokenizer, &n_ends);
    for (int i = 0; i < n_ends; i++) words[ends[i] / 32] |= 1u << (ends[i] % 32);
    return true;
}

static void accept(void *arg, uint32_t choice, uint32_t token) {
    struct grammar *grammar = arg;
    if (grammar->words[0] || tokenizer_is_end_of_generation(grammar->vocab->tokenizer, (int32_t)token)) return;
    kvick_bridge_grammar_accept(grammar->bridge, choice, token, grammar->words, sizeof grammar->words);
}

struct token_mask grammar_mask(struct grammar *grammar) {
    return (struct token_mask){.fill = fill, .accept = accept, .arg = grammar};
}

const char *grammar_fault(const struct grammar *grammar) {
    return grammar->words[0] ? grammar->words : NULL;
}

#else

enum status grammar_vocab_create(struct grammar_vocab **out_vocab, const struct tokenizer *tokenizer,
                                 struct status_note *note) {
    (void)out_vocab, (void)tokenizer;
    return status_fail(note, STATUS_INVALID, "this kvick was built without grammars (KVICK_BRIDGE=OFF)");
}

void grammar_vocab_destroy(struct grammar_vocab **vocab) {
    *vocab = NULL;
}

enum status grammar_create(struct grammar **out_grammar, const struct grammar_vocab *vocab, enum grammar_kind kind,
                           const char *text, size_t n_bytes, int n_choices, struct status_note *note) {
    (void)out_grammar, (void)vocab, (void)kind, (void)text, (void)n_bytes, (void)n_choices;
    return status_fail(note, STATUS_INVALID, "this kvick was built without grammars (KVICK_BRIDGE=OFF)");
}

void grammar_destroy(struct grammar **grammar) {
    *grammar = NULL;
}

struct token_mask grammar_mask(struct grammar *grammar) {
    (void)grammar;
    return (struct token_mask){0};
}

const char *grammar_fault(const struct grammar *grammar) {
    (void)grammar;
    return NULL;
}

#endif
