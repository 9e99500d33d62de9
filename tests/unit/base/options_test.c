#include "base/options.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define MAX_ARGS 160

static struct options options;
static struct status_note note;
static const char *words[MAX_ARGS];
static int n_words;

/* Parses the words of line, cut at spaces. */
static enum status parse(unsigned command, const char *line) {
    static char copy[4096];
    char *args[MAX_ARGS], *rest = NULL;
    int n = 0;
    assert_true(strlen(line) < sizeof copy);
    strcpy(copy, line);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) args[n++] = word;
    note.text[0] = 0;
    return options_parse(&options, command, n, args, words, &n_words, &note);
}

static void defaults_come_from_the_rows(void **state) {
    (void)state;
    assert_int_equal(parse(FOR_RUN, ""), STATUS_OK);
    assert_int_equal(n_words, 0);
    assert_false(options.help);
    assert_int_equal(options.threads, 0);
    assert_int_equal(options.block_tokens, 16);
    assert_string_equal(options.kv_cache_dtype, "int8");
    assert_null(options.isa);
    assert_int_equal(options.prompt.n_items, 0);
    assert_true(options.top_p == 1);
}

static void all_forms_are_read(void **state) {
    (void)state;
    assert_int_equal(
        parse(FOR_RUN, "a --threads 3 b --temperature=0.5 -p one -ptwo --prompt=three --raw -c 9 -- --json -x"),
        STATUS_OK);
    assert_int_equal(options.threads, 3);
    assert_true(options.temperature == 0.5);
    assert_true(options.raw);
    assert_false(options.json);
    assert_int_equal(options.context, 9);
    assert_int_equal(options.prompt.n_items, 3);
    assert_string_equal(options.prompt.items[0], "one");
    assert_string_equal(options.prompt.items[1], "two");
    assert_string_equal(options.prompt.items[2], "three");
    assert_int_equal(n_words, 4);
    assert_string_equal(words[0], "a");
    assert_string_equal(words[1], "b");
    assert_string_equal(words[2], "--json");
    assert_string_equal(words[3], "-x");
    assert_int_equal(parse(FOR_RUN, "- --prompt --raw --system="), STATUS_OK); /* a value may look like an option */
    assert_int_equal(n_words, 1);
    assert_string_equal(options.prompt.items[0], "--raw");
    assert_string_equal(options.system, "");
    assert_false(options.raw);
    assert_int_equal(parse(FOR_RUN, "-t 1 -t 2"), STATUS_OK);
    assert_int_equal(options.threads, 2);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        const char *line, *named;
    } cases[] = {
        {"--nonsense", "--nonsense"},
        {"--thread 1", "--thread"},
        {"--threadss 1", "--threadss"},
        {"--max_tokens 1", "--max_tokens"},
        {"--=1", "--=1"},
        {"-Z", "-Z"},
        {"--threads", "--threads"},
        {"-t", "-t"},
        {"--threads=", "--threads"},
        {"--threads x", "x"},
        {"--threads 4x", "4x"},
        {"--threads 1.5", "1.5"},
        {"--threads -1", "-1"},
        {"--threads 99999999999999999999", "99999999999999999999"},
        {"--temperature hot", "hot"},
        {"--temperature nan", "nan"},
        {"--temperature inf", "inf"},
        {"--temperature 1e999", "1e999"},
        {"--temperature=", "--temperature"},
        {"--raw=yes", "--raw=yes"},
        {"-hx", "-hx"},
        {"--prefill 5", "--prefill"}, /* another command's */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (parse(FOR_RUN, cases[i].line) != STATUS_INVALID) fail_msg("'%s' is accepted", cases[i].line);
        if (!strstr(note.text, cases[i].named)) fail_msg("'%s': %s", cases[i].line, note.text);
    }
}

static void lists_are_bounded(void **state) {
    (void)state;
    char line[4096] = "";
    for (int i = 0; i < OPTIONS_MAX_LIST; i++) strcat(line, "-p x ");
    assert_int_equal(parse(FOR_RUN, line), STATUS_OK);
    assert_int_equal(options.prompt.n_items, OPTIONS_MAX_LIST);
    strcat(line, "-p x");
    assert_int_equal(parse(FOR_RUN, line), STATUS_INVALID);
    assert_non_null(strstr(note.text, "--prompt"));
}

static void rows_are_well_formed(void **state) {
    (void)state;
    char letters[128] = "";
    for (int i = 0; i < options_n_rows(); i++) {
        struct option_row row = options_row(i);
        assert_null(strchr(row.name, '_'));
        assert_true(row.commands != 0);
        for (int j = 0; j < i; j++) assert_string_not_equal(options_row(j).name, row.name);
    }
#define OPTION(field, letter, kind, initial, class_, commands, value, help)                                            \
    if (letter) {                                                                                                      \
        char text[2] = {letter, 0};                                                                                    \
        assert_null(strchr(letters, letter));                                                                          \
        strcat(letters, text);                                                                                         \
    }
#include "base/options.inc"
#undef OPTION
}

/* Every option of a command is in its help, once, and no other. */
static void help_shows_the_rows(void **state) {
    (void)state;
    for (unsigned command = 1; command <= FOR_CPU; command <<= 1) {
        char *text = NULL;
        size_t n_bytes = 0;
        FILE *out = open_memstream(&text, &n_bytes);
        assert_non_null(out);
        options_print_help(out, command);
        fclose(out);
        int n_lines = 0, n_options = 0;
        for (size_t i = 0; i < n_bytes; i++) n_lines += text[i] == '\n';
        for (int i = 0; i < options_n_rows(); i++) {
            struct option_row row = options_row(i);
            char name[80];
            snprintf(name, sizeof name, "--%s ", row.name);
            if (!(row.commands & command)) continue;
            n_options++;
            assert_non_null(strstr(text, name));
        }
        assert_int_equal(n_lines, n_options);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_rows), cmocka_unit_test(all_forms_are_read),
        cmocka_unit_test(what_is_wrong_is_named),      cmocka_unit_test(lists_are_bounded),
        cmocka_unit_test(rows_are_well_formed),        cmocka_unit_test(help_shows_the_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
