/* Which texts a grammar takes, byte by byte over a vocabulary of bytes, and which grammars are none. */

#include <stdio.h>
#include <string.h>

#include "grammar/grammar.h"
#include "support/test.h"
#include "unit/tokenizer/small_vocab.h"

static struct small_vocab small;
static struct tokenizer *tokenizer;
static struct grammar_vocab *vocab;

static int setup(void **state) {
    struct status_note note;
    (void)state;
    small_spm(&small);
    small_write(&small);
    if (small_open(&small, &tokenizer, &note)) fail_msg("%s", note.text);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    grammar_vocab_destroy(&vocab);
    tokenizer_close(&tokenizer);
    return 0;
}

/* The words of a refusal; "" if the grammar is taken. */
static const char *refusal(enum grammar_kind kind, const char *text) {
    static struct status_note note;
    struct grammar *grammar = NULL;
    note.text[0] = 0;
    if (!vocab && grammar_vocab_create(&vocab, tokenizer, &note)) {
        print_message("%s\n", note.text); /* KVICK_BRIDGE=OFF */
        skip();
    }
    enum status status = grammar_create(&grammar, vocab, kind, text, strlen(text), 1, &note);
    if (status) assert_int_equal(status, STATUS_INVALID);
    grammar_destroy(&grammar);
    return status ? note.text : "";
}

/* Whether the grammar allows every byte of the text, and the end behind it. */
static bool takes(enum grammar_kind kind, const char *grammar_text, const char *text) {
    struct grammar *grammar;
    struct status_note note;
    bool is_taken = true;
    uint32_t words[SMALL_MAX_TOKENS / 32 + 1], eos;
    if (refusal(kind, grammar_text)[0]) fail_msg("%s: %s", grammar_text, refusal(kind, grammar_text));
    assert_int_equal(grammar_create(&grammar, vocab, kind, grammar_text, strlen(grammar_text), 1, &note), STATUS_OK);
    struct token_mask mask = grammar_mask(grammar);
    eos = (uint32_t)tokenizer_eos(tokenizer);
    for (size_t i = 0; is_taken && i <= strlen(text); i++) {
        uint32_t id = text[i] ? 3 + (uint32_t)(unsigned char)text[i] : eos;
        memset(words, 0, sizeof words);
        assert_true(mask.fill(mask.arg, 0, words));
        is_taken = words[id / 32] >> (id % 32) & 1;
        if (is_taken) mask.accept(mask.arg, 0, id);
    }
    assert_null(grammar_fault(grammar));
    grammar_destroy(&grammar);
    return is_taken;
}

static void test_gbnf_means_what_it_says(void **state) {
    static const struct {
        const char *grammar, *text;
        bool is_taken;
    } cases[] = {
        {"root ::= \"yes\" | \"no\"", "yes", true},
        {"root ::= \"yes\" | \"no\"", "ye", false},
        {"root ::= \"ab\" | \"abc\" [x-z]", "ab", true}, /* one text begins with the other */
        {"root ::= \"ab\" | \"abc\" [x-z]", "abcy", true},
        {"root ::= \"ab\" | \"abc\" [x-z]", "abc", false},
        {"root ::= [a-c] \"b\" | \"abx\"", "ab", true},
        {"root ::= item (\", \" item)*\nitem ::= [0-9]+", "1, 22, 333", true},
        {"root ::= item (\", \" item)*\nitem ::= [0-9]+", "1, ", false},
        {"# a list\nroot   ::= \"(\" root? \")\" # nested\n", "((()))", true},
        {"root ::= \"(\" root? \")\"", "(()", false},
        {"root ::= [^a-c\\n]{2,3}", "xyz", true},
        {"root ::= [^a-c\\n]{2,3}", "x", false},
        {"root ::= [^a-c\\n]{2,3}", "xa", false},
        {"root ::= \"\\x41\\u00e9\\n\"", "A\xc3\xa9\n", true},
        {"root ::= [а-я]+ .", "да\xe2\x82\xac", true},
        {"root ::= \"\" | [+-]{1}", "", true},
        {"root ::=\n  first |\n  second-one\nfirst ::= \"1\"\nsecond-one ::= \"2\"", "2", true},
        {"root ::= [a\\]-]+", "a]-", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (takes(GRAMMAR_LARK, cases[i].grammar, cases[i].text) != cases[i].is_taken)
            fail_msg("%s: '%s' should%s be taken", cases[i].grammar, cases[i].text, cases[i].is_taken ? "" : " not");
}

static void test_what_is_no_gbnf_is_refused(void **state) {
    static const struct {
        const char *grammar, *words;
    } cases[] = {{"root ::= x", "no rule 'x'"},
                 {"x ::= \"a\"", "no rule 'root'"},
                 {"root ::= \"a", "ends within"},
                 {"root ::= (\"a\"", "')' is missing"},
                 {"root ::= \"a\" )", "line 1"},
                 {"root ::= \"a\"\nx ::= [z-a]", "line 2"},
                 {"root ::= []", "empty"},
                 {"root ::= \"a\"\nroot ::= \"b\"", "twice"},
                 {"root ::= \"\\q\"", "escape"},
                 {"root ::= \"a\"{3,2}", "ends before it begins"},
                 {"root ::= \"a\"{99999}", "at most 10000"},
                 {"root ::= root \"a\"", ""}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words = refusal(GRAMMAR_LARK, cases[i].grammar);
        if (!words[0] || !strstr(words, cases[i].words)) fail_msg("%s: '%s'", cases[i].grammar, words);
    }
}

static void test_patterns_are_read_strictly(void **state) {
    static const char *const good[] = {"^[a-z]+$", "a|b", "(ab){2,3}?", "\\d\\-[\\d.]", "^\\u0431+$", "[^]x]", "a{2}"};
    static const char *const bad[] = {"^+[a-z]$", "^{2}x$", "a**",    "a++", "\\b?",        "[[:alpha:]]",
                                      "[a&&b]",   "(?=a)b", "(a)\\1", "[",   "(?P<stop>a)", "(?<=x)a"};
    char schema[256], escaped[128];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (refusal(GRAMMAR_REGEX, good[i])[0]) fail_msg("%s: %s", good[i], refusal(GRAMMAR_REGEX, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t n = 0;
        if (!refusal(GRAMMAR_REGEX, bad[i])[0]) fail_msg("%s is taken", bad[i]);
        for (const char *c = bad[i]; *c; c++) {
            if (*c == '\\') escaped[n++] = '\\';
            escaped[n++] = *c;
        }
        escaped[n] = 0;
        snprintf(schema, sizeof schema, "{\"properties\": {\"a/b\": {\"type\": \"string\", \"pattern\": \"%s\"}}}",
                 escaped);
        if (strncmp(refusal(GRAMMAR_JSON_SCHEMA, schema), "#/properties/a~1b/pattern: ", 27) != 0)
            fail_msg("%s: %s", schema, refusal(GRAMMAR_JSON_SCHEMA, schema));
    }
    assert_true(takes(GRAMMAR_REGEX, "[0-9]{2}|x", "42"));
    assert_false(takes(GRAMMAR_REGEX, "[0-9]{2}|x", "4"));
}

static void test_a_refusal_names_the_place(void **state) {
    static const struct {
        const char *schema, *place;
    } cases[] = {
        {"{\"$ref\": \"#/$defs/t\", \"$defs\": {\"t\": {\"items\": {\"not\": {}}}}}", "#/$defs/t/items/not: "},
        {"{\"anyOf\": [{}, {\"$ref\": \"#/$defs/no\"}]}", "#/anyOf/1/$ref: "},
        {"{\"const\": 9007199254740993}", "#/const: "},
        {"{\"properties\": {\"a\": 5}}", "#/properties/a: "},
        {"{\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\", \"minimum\": 5, \"maximum\": 2}}, "
         "\"required\": [\"n\"]}",
         "#/properties/n/minimum: "},
        {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"integer\", \"minimum\": 3}]}", "#/oneOf: "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words = refusal(GRAMMAR_JSON_SCHEMA, cases[i].schema);
        if (strncmp(words, cases[i].place, strlen(cases[i].place)) != 0) fail_msg("%s: %s", cases[i].schema, words);
    }
    /* What is not used does not count, and a schema may hold itself. */
    assert_string_equal(refusal(GRAMMAR_JSON_SCHEMA, "{\"$defs\": {\"unused\": {\"not\": {}}}, \"type\": \"array\", "
                                                     "\"items\": {\"$ref\": \"#\"}}"),
                        "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gbnf_means_what_it_says),
        cmocka_unit_test(test_what_is_no_gbnf_is_refused),
        cmocka_unit_test(test_patterns_are_read_strictly),
        cmocka_unit_test(test_a_refusal_names_the_place),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
