#include "tokenizer/pretokenize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "support/test.h"

#define MAX_TEXT 4096

static const char *const names[] = {
#define PRETOKENIZER(name, takes_whole_words, ...) name,
#include "tokenizer/pretokenize_patterns.inc"
#undef PRETOKENIZER
};
#define N_NAMES ((int)(sizeof names / sizeof names[0]))

struct words {
    size_t ends[MAX_TEXT];
    size_t n_words, at;
};

static enum status take_word(void *context, size_t from, size_t n_bytes) {
    struct words *words = context;
    assert_int_equal(from, words->at); /* no gap, no overlap */
    assert_true(n_bytes > 0);
    words->at = words->ends[words->n_words++] = from + n_bytes;
    return STATUS_OK;
}

static void cut(struct pretokenize *pretokenize, const char *text, size_t n_bytes, struct words *out) {
    struct pretokenize_session session;
    struct status_note note = {0};
    out->n_words = out->at = 0;
    assert_int_equal(pretokenize_session_init(&session, pretokenize), STATUS_OK);
    if (pretokenize_words(&session, text, n_bytes, take_word, out, &note)) fail_msg("%s", note.text);
    assert_int_equal(out->at, n_bytes);
    pretokenize_session_deinit(&session);
}

static void open_named(struct pretokenize *pretokenize, const char *name) {
    struct status_note note = {0};
    if (pretokenize_init(pretokenize, name, strlen(name), &note)) fail_msg("%s", note.text);
}

/* Words as "a|b|c". */
static void check(const char *name, const char *text, const char *want) {
    struct pretokenize pretokenize;
    struct words words;
    char got[256] = "";
    open_named(&pretokenize, name);
    cut(&pretokenize, text, strlen(text), &words);
    for (size_t i = 0, from = 0; i < words.n_words; from = words.ends[i++])
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", i ? "|" : "", (int)(words.ends[i] - from),
                 text + from);
    assert_string_equal(got, want);
    pretokenize_deinit(&pretokenize);
}

static void patterns_cut_as_published(void **state) {
    (void)state;
    check("gpt-2", "I'll go  to 1234.\n\tEnd", "I|'ll| go| | to| 1234|.|\n|\t|End");
    check("smollm", "a 123 b", "a| |1|2|3| b");
    check("llama-bpe", "It'S 12345;\n\nx", "It|'S| |123|45|;\n\n|x");
    check("qwen2", "ab12 cd\n", "ab|1|2| cd|\n");
    check("deepseek-llm", "ab cd12  \n", "ab| cd|12|  |\n");
    check("default", "a1234b!", "a|123|4|b|!");
    check("gpt-4o", "HelloWorld's 1234", "Hello|World's| |123|4");
    check("deepseek-v3", "ab1234 \xe4\xb8\x80", "ab|123|4| |\xe4\xb8\x80");
    /* U+180E is no white space; U+2003 and U+0085 are. */
    check("gpt-2", "a\xe1\xa0\x8e", "a|\xe1\xa0\x8e");
    check("gpt-2", "a\xe2\x80\x83\xc2\x85", "a|\xe2\x80\x83\xc2\x85");
}

static void unknown_names_are_errors(void **state) {
    (void)state;
    struct pretokenize pretokenize;
    struct status_note note = {0};
    assert_int_equal(pretokenize_init(&pretokenize, "gpt-3", 5, &note), STATUS_INVALID);
    assert_non_null(strstr(note.text, "tokenizer.ggml.pre"));
    assert_non_null(strstr(note.text, "gpt-3"));
    assert_int_equal(pretokenize_init(&pretokenize, "", 0, &note), STATUS_INVALID);
}

static size_t random_text(char *text) {
    static const char *const bits[] = {" ",
                                       "\n",
                                       "\r\n",
                                       "a",
                                       "Z",
                                       "'s",
                                       "'Ll",
                                       "7",
                                       "\t",
                                       "!",
                                       "_",
                                       "\xc3\xa9",
                                       "\xe6\xa0\xaa",
                                       "\xf0\x9f\xa6\x99",
                                       "\xff",
                                       "\xe6\xad",
                                       "\xcc\x81",
                                       "\xd9\xa3",
                                       "\xe2\x80\x83",
                                       "|"};
    size_t n = 0;
    for (int left = rand() % 200; left > 0; left--) {
        const char *bit = bits[(size_t)rand() % (sizeof bits / sizeof bits[0])];
        for (int again = rand() % 4 ? 1 : rand() % 6; again > 0; again--) {
            memcpy(text + n, bit, strlen(bit));
            n += strlen(bit);
        }
    }
    return n;
}

/* Every byte in one word, invalid ones too; generated code and interpreter agree. */
static void every_byte_is_in_one_word(void **state) {
    (void)state;
    char text[MAX_TEXT];
    struct words with_jit, without;
    srand(3);
    for (int i = 0; i < N_NAMES; i++) {
        struct pretokenize pretokenize;
        open_named(&pretokenize, names[i]);
        bool has_jit = pretokenize.has_jit;
        for (int round = 0; round < 60; round++) {
            size_t n_bytes = random_text(text);
            pretokenize.has_jit = has_jit;
            cut(&pretokenize, text, n_bytes, &with_jit);
            pretokenize.has_jit = false;
            cut(&pretokenize, text, n_bytes, &without);
            assert_int_equal(with_jit.n_words, without.n_words);
            assert_memory_equal(with_jit.ends, without.ends, with_jit.n_words * sizeof with_jit.ends[0]);
        }
        pretokenize_deinit(&pretokenize);
    }
}

static void a_limit_is_an_error(void **state) {
    (void)state;
    char text[MAX_TEXT];
    struct pretokenize pretokenize;
    struct pretokenize_session session;
    struct words words = {.n_words = 0};
    struct status_note note = {0};
    memset(text, ' ', sizeof text);
    text[sizeof text - 1] = 'x';
    open_named(&pretokenize, "llama-bpe");
    pretokenize.has_jit = false;
    assert_int_equal(pretokenize_session_init(&session, &pretokenize), STATUS_OK);
    session.max_steps = 100;
    assert_int_equal(pretokenize_words(&session, text, sizeof text, take_word, &words, &note), STATUS_LIMIT);
    assert_non_null(strstr(note.text, "match limit"));
    pretokenize_session_deinit(&session);
    pretokenize_deinit(&pretokenize);
}

static void survives_memory_failure(void **state) {
    (void)state;
    long before = mem_n_live();
    for (int nth = 1;; nth++) {
        struct pretokenize pretokenize;
        struct pretokenize_session session;
        struct words words = {.n_words = 0};
        mem_fail_from(nth);
        enum status status = pretokenize_init(&pretokenize, "deepseek-llm", 12, NULL);
        if (!status) {
            status = pretokenize_session_init(&session, &pretokenize);
            if (!status) {
                status = pretokenize_words(&session, "a\xff", 2, take_word, &words, NULL);
                pretokenize_session_deinit(&session);
            }
            pretokenize_deinit(&pretokenize);
        }
        mem_fail_from(0);
        assert_int_equal(mem_n_live(), before);
        if (!status) break;
        assert_int_equal(status, STATUS_NOMEM);
        assert_true(nth < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_cut_as_published), cmocka_unit_test(unknown_names_are_errors),
        cmocka_unit_test(every_byte_is_in_one_word), cmocka_unit_test(a_limit_is_an_error),
        cmocka_unit_test(survives_memory_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
