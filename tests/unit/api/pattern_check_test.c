/* Which regular expressions repeat nothing, and where. */
#include "api/pattern_check.h"

#include <string.h>

#include "support/test.h"

/* CASE B43 */
static void test_what_repeats_nothing(void **state) {
    static const struct {
        const char *pattern;
        size_t off;
    } cases[] = {{"^+[a-z]$", 1}, {"^{2}x$", 1}, {"*", 0},     {"+a", 0},       {"?", 0},      {"(*a)", 1},
                 {"(?:+a)", 3},   {"a|*", 2},    {"a|(+)", 3}, {"a$*", 2},      {"\\b+", 2},   {"a**", 2},
                 {"a{2}{3}", 4},  {"a+?+", 3},   {"{3}a", 0},  {"(?<n>?a)", 5}, {"x(?=*)", 4}, {"[^]]^?", 5}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(pattern_check_find(cases[i].pattern, strlen(cases[i].pattern)), cases[i].off);
}

static void test_what_is_sound(void **state) {
    static const char *const patterns[] = {"",         "^[a-z]+$", "a*?b+?c??", "(a|b)*",  "a{2,5}?",       "\\+*",
                                           "[+*?]{3}", "\\^+",     "[\\]*]*",   "(?:ab)+", "(?<n>a)+",      "^(?=a)b$",
                                           "[]a]*",    "{,3}",     "a{",        "x{a}y",   "\\d{4}-\\d{2}", "^$",
                                           "株+",      "\\",       "(?i)a+",    "[^+]*|b+"};
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        assert_int_equal(pattern_check_find(patterns[i], strlen(patterns[i])), strlen(patterns[i]));
}

static void test_schemas(void **state) {
    static const struct {
        const char *schema, *path; /* path NULL: sound */
    } cases[] = {
        {"{\"type\":\"string\",\"pattern\":\"^+a\"}", "/pattern"},
        {"{\"properties\":{\"x\":{\"items\":[{\"pattern\":\"a\"},{\"pattern\":\"(*)\"}]}}}",
         "/properties/x/items/1/pattern"},
        {"{\"patternProperties\":{\"^+a\":{}}}", "/patternProperties"},
        {"{\"$defs\":{\"d\":{\"anyOf\":[{\"pattern\":\"+\"}]}}}", "/$defs/d/anyOf/0/pattern"},
        {"{\"properties\":{\"pattern\":{\"type\":\"string\"}}}", NULL},
        {"{\"enum\":[{\"pattern\":\"^+a\"}],\"const\":{\"pattern\":\"+\"},\"default\":{\"pattern\":\"+\"}}", NULL},
        {"{\"pattern\":\"^a+$\",\"patternProperties\":{\"a+\":{\"pattern\":\"b*\"}}}", NULL},
        {"{\"properties\":{\"default\":{\"pattern\":\"+\"}}}", "/properties/default/pattern"},
        {"true", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pattern_fault fault = {0};
        json_t *schema = json_loads(cases[i].schema, JSON_DECODE_ANY, NULL);
        assert_non_null(schema);
        assert_int_equal(pattern_check_schema(schema, &fault), cases[i].path == NULL);
        if (cases[i].path) assert_string_equal(fault.path, cases[i].path);
        json_decref(schema);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_repeats_nothing),
                                       cmocka_unit_test(test_what_is_sound), cmocka_unit_test(test_schemas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
