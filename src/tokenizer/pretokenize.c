#include "tokenizer/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* ---- the published patterns ---- */

/* White space as Unicode defines it. PCRE2's \s with UCP also takes U+180E, which lost that property in Unicode 6.3. */
#define WHITE "\\t-\\r\\x{85}\\p{Z}"
#define SPACE "[" WHITE "]"
#define NO_MORE_TEXT "(?![^" WHITE "])" /* (?!\S) */

#define DIGIT "\\p{N}"
#define GPT2                                                                                                           \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WHITE "\\p{L}\\p{N}]+|" SPACE "+" NO_MORE_TEXT "|" SPACE "+"
#define CONTRACTION "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define LINE_ENDS SPACE "*[\\r\\n]+|" SPACE "+" NO_MORE_TEXT "|" SPACE "+"
#define LLAMA3(digits)                                                                                                 \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits "| ?[^" WHITE "\\p{L}\\p{N}]+[\\r\\n]*|" LINE_ENDS
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT4O(digits, tail)                                                                                            \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" tail               \
    "|\\p{N}" digits "| ?[^" WHITE "\\p{L}\\p{N}]+[\\r\\n/]*|" LINE_ENDS
#define DEFAULT                                                                                                        \
    { "[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" }
#define FALCON                                                                                                         \
    { "[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]" }

/* DeepSeek's letters: those with case in Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee and kin, spelled out. */
#define DEEPSEEK_LETTERS                                                                                               \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"   \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"     \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"       \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-"        \
    "\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}"         \
    "\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-"          \
    "\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"         \
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"  \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}" \
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-"         \
    "\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"         \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-"   \
    "\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_HAN "[\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]+"
/* The published "\s+$" would try every start of every run of spaces; a match can only start where a run does. */
#define DEEPSEEK_LAST_SPACES "(?<!" SPACE ")" SPACE "++$"
#define DEEPSEEK_LLM                                                                                                   \
    {                                                                                                                  \
        "[\\r\\n]", SPACE "?[" DEEPSEEK_LETTERS "]+",                                                                  \
            SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",            \
            DEEPSEEK_LAST_SPACES, DEEPSEEK_HAN, "\\p{N}+"                                                              \
    }
#define DEEPSEEK_CODER                                                                                                 \
    { "[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", DEEPSEEK_HAN, "\\p{N}" }
#define DEEPSEEK_V3                                                                                                    \
    {                                                                                                                  \
        "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+",                                                    \
            "[!-/:-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINE_ENDS      \
    }

static const struct row {
    const char *name;
    bool takes_whole_words;
    const char *stages[PRETOKENIZE_MAX_STAGES];
} rows[] = {
#define PRETOKENIZER(name, takes_whole_words, ...) {name, takes_whole_words, __VA_ARGS__},
#include "tokenizer/pretokenize_patterns.inc"
#undef PRETOKENIZER
};

static const struct row *find_row(const char *name, size_t n_bytes) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strlen(rows[i].name) == n_bytes && memcmp(rows[i].name, name, n_bytes) == 0) return &rows[i];
    return NULL;
}

/* ---- compiling ---- */

static void *pcre2_take(size_t n_bytes, void *unused) {
    (void)unused;
    return mem_alloc(n_bytes);
}

static void pcre2_give(void *p, void *unused) {
    (void)unused;
    mem_free(p);
}

static enum status compile(struct pretokenize *pretokenize, const char *pattern, struct status_note *note) {
    int error;
    PCRE2_SIZE error_off;
    pcre2_compile_context *context = pcre2_compile_context_create(pretokenize->memory);
    if (!context) return status_fail(note, STATUS_NOMEM, "tokenizer.ggml.pre: out of memory");
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &error_off, context);
    pcre2_compile_context_free(context);
    if (!code) {
        if (error == PCRE2_ERROR_HEAP_FAILED)
            return status_fail(note, STATUS_NOMEM, "tokenizer.ggml.pre: out of memory");
        BUG("pattern '%s': error %d at byte %zu", pattern, error, (size_t)error_off);
    }
    /* No JIT stack of our own: no pattern repeats a group, so PCRE2's 32 KiB on the caller's stack are never filled; if
     * they were, that is a limit and an error like the others. Where the system forbids generated code the interpreter
     * gives the same words, only later. */
    if (pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) != 0) pretokenize->has_jit = false;
    pretokenize->codes[pretokenize->n_stages++] = code;
    return STATUS_OK;
}

enum status pretokenize_init(struct pretokenize *pretokenize, const char *name, size_t n_bytes,
                             struct status_note *note) {
    *pretokenize = (struct pretokenize){.has_jit = true};
    const struct row *row = find_row(name, n_bytes);
    if (!row)
        return status_fail(note, STATUS_INVALID, "tokenizer.ggml.pre: '%.*s' is not known",
                           (int)(n_bytes < 60 ? n_bytes : 60), name);
    pretokenize->takes_whole_words = row->takes_whole_words;
    pretokenize->memory = pcre2_general_context_create(pcre2_take, pcre2_give, NULL);
    enum status status = STATUS_OK;
    if (!pretokenize->memory) status = status_fail(note, STATUS_NOMEM, "tokenizer.ggml.pre: out of memory");
    for (int i = 0; !status && i < PRETOKENIZE_MAX_STAGES && row->stages[i]; i++)
        status = compile(pretokenize, row->stages[i], note);
    if (status) pretokenize_deinit(pretokenize);
    return status;
}

void pretokenize_deinit(struct pretokenize *pretokenize) {
    for (int i = 0; i < pretokenize->n_stages; i++) pcre2_code_free(pretokenize->codes[i]);
    pcre2_general_context_free(pretokenize->memory);
    *pretokenize = (struct pretokenize){0};
}

/* ---- cutting ---- */

enum status pretokenize_session_init(struct pretokenize_session *session, const struct pretokenize *pretokenize) {
    *session = (struct pretokenize_session){.pretokenize = pretokenize};
    session->match = pcre2_match_data_create(1, pretokenize->memory);
    session->limits = pcre2_match_context_create(pretokenize->memory);
    if (session->match && session->limits) return STATUS_OK;
    pretokenize_session_deinit(session);
    return STATUS_NOMEM;
}

void pretokenize_session_deinit(struct pretokenize_session *session) {
    pcre2_match_data_free(session->match);
    pcre2_match_context_free(session->limits);
    mem_free(session->clean);
    *session = (struct pretokenize_session){0};
}

struct cut {
    struct pretokenize_session *session;
    const char *text; /* valid UTF-8 with the offsets of the caller's text */
    pretokenize_word_fn *word;
    void *context;
    struct status_note *note;
};

static enum status limit_reached(const struct cut *cut, int code) {
    if (code == PCRE2_ERROR_NOMEMORY) return status_fail(cut->note, STATUS_NOMEM, "tokenizer: out of memory");
    PCRE2_UCHAR text[120];
    pcre2_get_error_message(code, text, sizeof text);
    return status_fail(cut->note, STATUS_LIMIT, "tokenizer: pre-tokenizer pattern: %s", (const char *)text);
}

/* The next match of a stage in [from, to) as out_from, out_to; out_from == to if there is none. The pattern sees
 * nothing outside [start, to). */
static enum status next_match(const struct cut *cut, int stage, size_t start, size_t from, size_t to, size_t *out_from,
                              size_t *out_to) {
    const struct pretokenize *pretokenize = cut->session->pretokenize;
    PCRE2_SPTR subject = (PCRE2_SPTR)cut->text + start;
    int rc;
    *out_from = *out_to = to;
    if (pretokenize->has_jit)
        rc = pcre2_jit_match(pretokenize->codes[stage], subject, to - start, from - start, PCRE2_NO_UTF_CHECK,
                             cut->session->match, cut->session->limits);
    else
        rc = pcre2_match(pretokenize->codes[stage], subject, to - start, from - start, PCRE2_NO_UTF_CHECK,
                         cut->session->match, cut->session->limits);
    if (rc == PCRE2_ERROR_NOMATCH) return STATUS_OK;
    if (rc < 0) return limit_reached(cut, rc);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(cut->session->match);
    *out_from = start + found[0];
    *out_to = start + found[1];
    REQUIRE(*out_to > *out_from); /* no pattern of ours matches nothing */
    return STATUS_OK;
}

/* Cuts [from, to) by this stage and those after it. Depth: n_stages. */
static enum status cut_piece(const struct cut *cut, int stage, size_t from, size_t to) {
    if (from == to) return STATUS_OK;
    if (stage == cut->session->pretokenize->n_stages) return cut->word(cut->context, from, to - from);
    enum status status = STATUS_OK;
    for (size_t at = from, match_from, match_to; !status && at < to; at = match_to) {
        status = next_match(cut, stage, from, at, to, &match_from, &match_to);
        if (!status) status = cut_piece(cut, stage + 1, at, match_from);
        if (!status) status = cut_piece(cut, stage + 1, match_from, match_to);
    }
    return status;
}

/* First byte at or after from that is not valid UTF-8; eight ASCII bytes at a time. */
static size_t find_invalid(const char *text, size_t from, size_t n_bytes) {
    while (from < n_bytes) {
        uint64_t word;
        if (n_bytes - from >= 8 && (memcpy(&word, text + from, 8), (word & 0x8080808080808080u) == 0)) {
            from += 8;
            continue;
        }
        int n = utf8_decode(text + from, n_bytes - from, NULL);
        if (n == 0) return from;
        from += (size_t)n;
    }
    return n_bytes;
}

/* The text itself, or a copy in which U+0001, one byte and of the same kind for every pattern as U+FFFD, stands for
 * each invalid byte, so that offsets stay. NULL: out of memory. */
static const char *clean_text(struct pretokenize_session *session, const char *text, size_t n_bytes) {
    size_t bad = find_invalid(text, 0, n_bytes);
    if (bad == n_bytes) return text;
    if (n_bytes > session->cap_clean) {
        char *clean = mem_resize_array(session->clean, n_bytes, 1);
        if (!clean) return NULL;
        session->clean = clean;
        session->cap_clean = n_bytes;
    }
    memcpy(session->clean, text, n_bytes);
    for (; bad < n_bytes; bad = find_invalid(text, bad + 1, n_bytes)) session->clean[bad] = 1;
    return session->clean;
}

enum status pretokenize_words(struct pretokenize_session *session, const char *text, size_t n_bytes,
                              pretokenize_word_fn *word, void *context, struct status_note *note) {
    if (n_bytes == 0) return STATUS_OK;
    const char *clean = clean_text(session, text, n_bytes);
    if (!clean) return status_fail(note, STATUS_NOMEM, "tokenizer: out of memory");
    /* Our patterns need a few steps per byte at most; a limit that grows with the text cannot cut a good one off. */
    uint64_t limit = session->max_steps ? session->max_steps : 1000000 + 100 * (uint64_t)n_bytes;
    pcre2_set_match_limit(session->limits, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    struct cut cut = {session, clean, word, context, note};
    return cut_piece(&cut, 0, 0, n_bytes);
}
