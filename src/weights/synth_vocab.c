#include "weights/synth_vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define MAX_TOKEN_BYTES 16
#define SPACE_MARK "\xe2\x96\x81" /* U+2581, SentencePiece's written space */

/* tokenizer.ggml.token_type */
enum token_type { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };

struct token {
    char bytes[MAX_TOKEN_BYTES];
    int32_t type;
    int32_t left, right; /* the tokens that it is made of; -1 if it stands alone */
};

/* Tokens [first, first + n). */
struct range {
    int first, n;
};

struct pieces {
    struct token *tokens;
    int n_tokens, max_tokens;
};

static const char chat_template[] =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* ---- tokens ---- */

static void add(struct pieces *pieces, enum token_type type, const char *text) {
    struct token *token = &pieces->tokens[pieces->n_tokens++];
    *token = (struct token){.type = (int32_t)type, .left = -1, .right = -1};
    REQUIRE(pieces->n_tokens <= pieces->max_tokens && strlen(text) < MAX_TOKEN_BYTES);
    memcpy(token->bytes, text, strlen(text));
}

/* Every left piece followed by every right one, while there is room. */
static struct range add_pairs(struct pieces *pieces, struct range left, struct range right) {
    struct range pairs = {pieces->n_tokens, 0};
    for (int i = left.first; i < left.first + left.n; i++)
        for (int j = right.first; j < right.first + right.n && pieces->n_tokens < pieces->max_tokens; j++) {
            char text[2 * MAX_TOKEN_BYTES];
            snprintf(text, sizeof text, "%s%s", pieces->tokens[i].bytes, pieces->tokens[j].bytes);
            add(pieces, NORMAL, text);
            pieces->tokens[pieces->n_tokens - 1].left = i;
            pieces->tokens[pieces->n_tokens - 1].right = j;
            pairs.n++;
        }
    return pairs;
}

/* Texts of one to four letters, some behind a space: none comes twice, because length and space tell them apart. */
static void add_pieces(struct pieces *pieces, struct range space, struct range letters) {
    add_pairs(pieces, space, letters);
    struct range pairs = add_pairs(pieces, letters, letters);
    add_pairs(pieces, space, pairs);
    add_pairs(pieces, letters, pairs);
    add_pairs(pieces, pairs, pairs);
}

/* GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes for code points from 256 on. */
static void add_byte_alphabet(struct pieces *pieces) {
    uint32_t next_code = 256;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool is_printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        uint32_t code = is_printable ? byte : next_code++;
        char text[3] = {(char)code, 0, 0};
        if (code >= 0x80) {
            text[0] = (char)(0xc0 | code >> 6);
            text[1] = (char)(0x80 | (code & 0x3f));
        }
        add(pieces, NORMAL, text);
    }
}

static void fill_bpe(struct pieces *pieces, int n_vocab) {
    pieces->max_tokens = n_vocab - 3;
    add_byte_alphabet(pieces);
    add_pieces(pieces, (struct range){' ', 1}, (struct range){'a', 26});
    pieces->max_tokens = n_vocab;
    add(pieces, CONTROL, "<|endoftext|>");
    add(pieces, CONTROL, "<|im_start|>");
    add(pieces, CONTROL, "<|im_end|>");
}

static void fill_spm(struct pieces *pieces, int n_vocab) {
    pieces->max_tokens = n_vocab - 2;
    add(pieces, UNKNOWN, "<unk>");
    add(pieces, CONTROL, "<s>");
    add(pieces, CONTROL, "</s>");
    for (int byte = 0; byte < 256; byte++) {
        char text[MAX_TOKEN_BYTES];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        add(pieces, BYTE, text);
    }
    struct range space = {pieces->n_tokens, 1}, letters = {pieces->n_tokens + 1 + 'a' - '!', 26};
    add(pieces, NORMAL, SPACE_MARK);
    for (char c = '!'; c <= '~'; c++) add(pieces, NORMAL, (const char[]){c, 0});
    add_pieces(pieces, space, letters);
    pieces->max_tokens = n_vocab;
    add(pieces, CONTROL, "<|im_start|>");
    add(pieces, CONTROL, "<|im_end|>");
}

/* ---- keys ---- */

static enum status write_tokens(struct gguf_write *writer, const struct pieces *pieces, struct gguf_text *texts,
                                struct status_note *note) {
    for (int i = 0; i < pieces->n_tokens; i++)
        texts[i] = (struct gguf_text){pieces->tokens[i].bytes, strlen(pieces->tokens[i].bytes)};
    return gguf_write_key_texts(writer, "tokenizer.ggml.tokens", texts, (size_t)pieces->n_tokens, note);
}

static enum status write_types(struct gguf_write *writer, const struct pieces *pieces, struct status_note *note) {
    int32_t *types = mem_alloc_array((size_t)pieces->n_tokens, sizeof *types);
    if (!types) return status_fail(note, STATUS_NOMEM, "no memory for %d token types", pieces->n_tokens);
    for (int i = 0; i < pieces->n_tokens; i++) types[i] = pieces->tokens[i].type;
    enum status status =
        gguf_write_key_array(writer, "tokenizer.ggml.token_type", GGUF_I32, types, (size_t)pieces->n_tokens, note);
    mem_free(types);
    return status;
}

/* Pieces in the order of their ids: the earlier one is joined first. */
static enum status write_scores(struct gguf_write *writer, const struct pieces *pieces, struct status_note *note) {
    float *scores = mem_alloc_array((size_t)pieces->n_tokens, sizeof *scores);
    if (!scores) return status_fail(note, STATUS_NOMEM, "no memory for %d scores", pieces->n_tokens);
    for (int i = 0; i < pieces->n_tokens; i++) scores[i] = pieces->tokens[i].type == NORMAL ? (float)-i : 0;
    enum status status =
        gguf_write_key_array(writer, "tokenizer.ggml.scores", GGUF_F32, scores, (size_t)pieces->n_tokens, note);
    mem_free(scores);
    return status;
}

static enum status write_merges(struct gguf_write *writer, const struct pieces *pieces, struct gguf_text *texts,
                                struct status_note *note) {
    const size_t max_bytes = 2 * MAX_TOKEN_BYTES;
    char *lines = mem_alloc_array((size_t)pieces->n_tokens, max_bytes);
    if (!lines) return status_fail(note, STATUS_NOMEM, "no memory for %d merges", pieces->n_tokens);
    size_t n_merges = 0;
    for (int i = 0; i < pieces->n_tokens; i++) {
        const struct token *token = &pieces->tokens[i];
        if (token->left < 0) continue;
        char *line = lines + n_merges * max_bytes;
        int n =
            snprintf(line, max_bytes, "%s %s", pieces->tokens[token->left].bytes, pieces->tokens[token->right].bytes);
        texts[n_merges++] = (struct gguf_text){line, (size_t)n};
    }
    enum status status = gguf_write_key_texts(writer, "tokenizer.ggml.merges", texts, n_merges, note);
    mem_free(lines);
    return status;
}

static enum status write_settings(struct gguf_write *writer, const struct model_shape *shape, bool is_spm,
                                  struct status_note *note) {
    int last = shape->n_vocab - 1;
    bool adds_bos = is_spm || strcmp(shape->tokenizer, "llama-bpe") == 0;
    const struct {
        const char *key;
        int id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", is_spm ? 1 : last - 2},
               {"tokenizer.ggml.eos_token_id", is_spm ? 2 : last},
               {"tokenizer.ggml.eot_token_id", last},
               {"tokenizer.ggml.padding_token_id", is_spm ? 0 : last - 2}};
    const char *pre = is_spm ? "default" : shape->tokenizer, *model = is_spm ? "llama" : "gpt2";
    enum status status = gguf_write_key_text(writer, "tokenizer.ggml.model", model, strlen(model), note);
    if (!status) status = gguf_write_key_text(writer, "tokenizer.ggml.pre", pre, strlen(pre), note);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0] && !status; i++)
        status = gguf_write_key_int(writer, ids[i].key, GGUF_U32, ids[i].id, note);
    if (!status) status = gguf_write_key_bool(writer, "tokenizer.ggml.add_bos_token", adds_bos, note);
    if (!status) status = gguf_write_key_bool(writer, "tokenizer.ggml.add_space_prefix", false, note);
    return status
               ? status
               : gguf_write_key_text(writer, "tokenizer.chat_template", chat_template, sizeof chat_template - 1, note);
}

enum status synth_vocab_write(struct gguf_write *writer, const struct model_shape *shape, struct status_note *note) {
    REQUIRE(shape->n_vocab >= SYNTH_VOCAB_MIN && shape->n_vocab <= SYNTH_VOCAB_MAX);
    bool is_spm = strcmp(shape->tokenizer, "spm") == 0;
    struct pieces pieces = {.tokens = mem_alloc_array((size_t)shape->n_vocab, sizeof *pieces.tokens)};
    struct gguf_text *texts = mem_alloc_array((size_t)shape->n_vocab, sizeof *texts);
    enum status status = pieces.tokens && texts
                             ? write_settings(writer, shape, is_spm, note)
                             : status_fail(note, STATUS_NOMEM, "no memory for %d tokens", shape->n_vocab);
    if (!status) {
        if (is_spm)
            fill_spm(&pieces, shape->n_vocab);
        else
            fill_bpe(&pieces, shape->n_vocab);
        REQUIRE(pieces.n_tokens == shape->n_vocab);
        status = write_tokens(writer, &pieces, texts, note);
    }
    if (!status) status = write_types(writer, &pieces, note);
    if (!status) status = is_spm ? write_scores(writer, &pieces, note) : write_merges(writer, &pieces, texts, note);
    mem_free(pieces.tokens);
    mem_free(texts);
    return status;
}
