/* kvick_bridge: the border to the Rust library of bridge/. Included by src/chat/chat_template.c, src/grammar/grammar.c
 * and src/cmd/toml_file.c only, which say what the calls mean; here stands what C and Rust must agree on.
 *
 * Thread: any.   Memory: Rust's allocator; what a call hands out goes back through its destroy or free.
 * Errors: a code below; note [note_cap] then holds one terminated UTF-8 text. No call unwinds or aborts. */
#ifndef KVICK_BRIDGE_H
#define KVICK_BRIDGE_H

#include <stddef.h>
#include <stdint.h>

enum kvick_bridge_code {
    KVICK_BRIDGE_OK = 0,
    KVICK_BRIDGE_SYNTAX = 1,   /* the template cannot be read */
    KVICK_BRIDGE_REFUSED = 2,  /* raise_exception: note holds the template's words and nothing else */
    KVICK_BRIDGE_LIMIT = 3,    /* steps, bytes, depth or size */
    KVICK_BRIDGE_RUNTIME = 4,  /* the template met a value that it cannot handle */
    KVICK_BRIDGE_REQUEST = 5,  /* the request is not one */
    KVICK_BRIDGE_INTERNAL = 6, /* no thread, or a fault of the library */
};

/* In the order of special_ptrs and special_n_bytes; a NULL pointer leaves the variable undefined. */
enum kvick_bridge_special {
    KVICK_BRIDGE_BOS,
    KVICK_BRIDGE_EOS,
    KVICK_BRIDGE_UNK,
    KVICK_BRIDGE_PAD,
    KVICK_BRIDGE_N_SPECIALS,
};

struct kvick_bridge_template;

struct kvick_bridge_span {
    size_t from, to;
};

struct kvick_bridge_text {
    char *ptr; /* [n_bytes] UTF-8, not terminated */
    size_t n_bytes;
    struct kvick_bridge_span *user; /* [n_user] bytes [from, to) that came from the request; ascending, apart */
    size_t n_user;
};

int kvick_bridge_template_create(struct kvick_bridge_template **out, const char *source, size_t n_bytes,
                                 const char *const special_ptrs[KVICK_BRIDGE_N_SPECIALS],
                                 const size_t special_n_bytes[KVICK_BRIDGE_N_SPECIALS], char *note, size_t note_cap);
void kvick_bridge_template_destroy(struct kvick_bridge_template *bridge);

/* out is written only on KVICK_BRIDGE_OK. */
int kvick_bridge_template_render(const struct kvick_bridge_template *bridge, const char *request, size_t n_bytes,
                                 int64_t now_s, struct kvick_bridge_text *out, char *note, size_t note_cap);
void kvick_bridge_text_free(struct kvick_bridge_text *text);

/* What a grammar's text is. */
enum kvick_bridge_grammar_kind {
    KVICK_BRIDGE_JSON_SCHEMA,
    KVICK_BRIDGE_REGEX,
    KVICK_BRIDGE_LARK,
    KVICK_BRIDGE_CHOICES, /* a JSON list of texts */
};

struct kvick_bridge_vocab;
struct kvick_bridge_grammar;

/* text: the tokens' bytes one after the other; ends [n_tokens] where each one ends; is_special [n_tokens]: stands for
 * no text. */
int kvick_bridge_vocab_create(struct kvick_bridge_vocab **out, const char *text, const size_t *ends,
                              const uint8_t *is_special, size_t n_tokens, uint32_t eos, char *note, size_t note_cap);
void kvick_bridge_vocab_destroy(struct kvick_bridge_vocab *vocab);

int kvick_bridge_grammar_create(struct kvick_bridge_grammar **out, const struct kvick_bridge_vocab *vocab, int kind,
                                const char *text, size_t n_bytes, size_t n_choices, char *note, size_t note_cap);
void kvick_bridge_grammar_destroy(struct kvick_bridge_grammar *grammar);

/* Thread of a grammar: one at a time. words: zeros. */
int kvick_bridge_grammar_fill(struct kvick_bridge_grammar *grammar, size_t choice, uint32_t *words, size_t n_words,
                              char *note, size_t note_cap);
int kvick_bridge_grammar_accept(struct kvick_bridge_grammar *grammar, size_t choice, uint32_t token, char *note,
                                size_t note_cap);

/* How a value of a TOML file was written. */
enum kvick_bridge_toml_form {
    KVICK_BRIDGE_TOML_TABLE,
    KVICK_BRIDGE_TOML_TEXT,
    KVICK_BRIDGE_TOML_WHOLE,
    KVICK_BRIDGE_TOML_REAL,
    KVICK_BRIDGE_TOML_FLAG,
    KVICK_BRIDGE_TOML_LIST, /* its values follow, is_listed */
    KVICK_BRIDGE_TOML_DATE,
};

struct kvick_bridge_toml_item {
    char *table;      /* "" at the top, else the name of [table] or [[table]] */
    size_t table_idx; /* among the [[table]] of that name */
    char *key;        /* "": the table itself begins */
    char *text;       /* the value; of numbers in decimal, without '_'; "" of tables and lists */
    int form;         /* enum kvick_bridge_toml_form */
    int is_listed;    /* a value of the list before it */
    int line;
};

struct kvick_bridge_toml {
    struct kvick_bridge_toml_item *items; /* [n_items] in the file's order */
    size_t n_items;
};

/* Tables in tables are values of form TABLE, not looked into. On KVICK_BRIDGE_SYNTAX the note is "LINE: words". */
int kvick_bridge_toml_read(struct kvick_bridge_toml *out, const char *source, size_t n_bytes, char *note,
                           size_t note_cap);
void kvick_bridge_toml_free(struct kvick_bridge_toml *toml);

#endif
