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

/* ---- other words, other origins ---- */

static void words_of_other_servers_are_read(void **state) {
    (void)state;
    assert_int_equal(
        parse(FOR_SERVE, "-m x.gguf -c 4096 -t 2 -tb 4 -np 8 -ctk f16 -ctv f16 --max-num-batched-tokens=64"),
        STATUS_OK);
    assert_string_equal(options.model, "x.gguf");
    assert_int_equal(options.max_model_len, 4096);
    assert_int_equal(options.threads, 2);
    assert_int_equal(options.threads_batch, 4);
    assert_int_equal(options.max_num_seqs, 8);
    assert_string_equal(options.kv_cache_dtype, "f16");
    assert_int_equal(options.chunk, 64);
    assert_int_equal(parse(FOR_SERVE, "--no-enable-prefix-caching"), STATUS_OK);
    assert_true(options.no_prefix_cache);
    assert_int_equal(parse(FOR_SERVE, "--no-prefix-cache --enable-prefix-caching"), STATUS_OK);
    assert_false(options.no_prefix_cache);
    assert_int_equal(parse(FOR_SERVE, "-ctk f16 -ctv int8"), STATUS_INVALID);
    assert_non_null(strstr(note.text, "'f16'"));
    assert_int_equal(parse(FOR_SERVE, "--enable-prefix-caching=no"), STATUS_INVALID);
    assert_int_equal(parse(FOR_RUN, "-np 8"), STATUS_INVALID);
    assert_int_equal(parse(FOR_RUN, "-c 8"), STATUS_OK); /* there it is another option */
    assert_int_equal(options.context, 8);
}

static enum status offer(enum option_origin origin, const char *name, enum option_form form, const char *text) {
    struct option_offer one = {.name = name,
                               .texts = &text,
                               .n_texts = 1,
                               .form = form,
                               .source = {origin, origin == OPTION_FILE ? "k.toml" : NULL, 7}};
    note.text[0] = 0;
    return options_offer(&options, FOR_SERVE, &one, &note);
}

static void the_higher_origin_wins(void **state) {
    (void)state;
    assert_int_equal(parse(FOR_SERVE, "--port 1 --served-model-name a"), STATUS_OK);
    assert_int_equal(offer(OPTION_ENVIRONMENT, "port", OPTION_FORM_ANY, "2"), STATUS_OK);
    assert_int_equal(offer(OPTION_FILE, "port", OPTION_FORM_WHOLE, "3"), STATUS_OK);
    assert_int_equal(options.port, 1);
    assert_int_equal(offer(OPTION_ENVIRONMENT, "max-num-seqs", OPTION_FORM_ANY, "2"), STATUS_OK);
    assert_int_equal(offer(OPTION_FILE, "max-num-seqs", OPTION_FORM_WHOLE, "3"), STATUS_OK);
    assert_int_equal(options.max_num_seqs, 2);
    assert_int_equal(offer(OPTION_FILE, "shutdown-timeout", OPTION_FORM_WHOLE, "3"), STATUS_OK);
    assert_int_equal(options.shutdown_timeout, 3);
    assert_int_equal(options.sources[OPTIONS_ROW_port].origin, OPTION_FLAG);
    assert_int_equal(options.sources[OPTIONS_ROW_max_num_seqs].origin, OPTION_ENVIRONMENT);
    assert_int_equal(options.sources[OPTIONS_ROW_shutdown_timeout].origin, OPTION_FILE);
    assert_int_equal(options.sources[OPTIONS_ROW_host].origin, OPTION_DEFAULT);
    /* A list of a higher origin is not added to. */
    assert_int_equal(offer(OPTION_FILE, "served-model-name", OPTION_FORM_TEXT, "b"), STATUS_OK);
    assert_int_equal(options.served_model_name.n_items, 1);
    /* Nor may one origin say it twice, by two names. */
    assert_int_equal(offer(OPTION_FILE, "chunk", OPTION_FORM_WHOLE, "3"), STATUS_OK);
    assert_int_equal(offer(OPTION_FILE, "max-num-batched-tokens", OPTION_FORM_WHOLE, "3"), STATUS_INVALID);
    /* What loses is checked nevertheless. */
    assert_int_equal(offer(OPTION_ENVIRONMENT, "chunk", OPTION_FORM_ANY, "x"), STATUS_INVALID);
}

static void wrong_offers_are_named(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum option_form form;
        const char *text, *named;
    } cases[] = {
        {"prot", OPTION_FORM_WHOLE, "1", "k.toml:7: prot: there is no such option"},
        {"max_num_seqs", OPTION_FORM_WHOLE, "1", "k.toml:7: max_num_seqs"},
        {"prompt", OPTION_FORM_TEXT, "x", "k.toml:7: prompt: does not belong"},
        {"port", OPTION_FORM_TEXT, "8000", "k.toml:7: port must be a whole number, not a text"},
        {"port", OPTION_FORM_REAL, "1.5", "port must be a whole number, not a fraction"},
        {"host", OPTION_FORM_WHOLE, "1", "host must be a text, not a whole number"},
        {"no-access-log", OPTION_FORM_WHOLE, "1", "no-access-log must be true or false, not a whole number"},
        {"target-itl-ms", OPTION_FORM_FLAG, "true", "target-itl-ms must be a number, not true or false"},
        {"port", OPTION_FORM_WHOLE, "-1", "k.toml:7: port: -1 is negative"},
        {"config", OPTION_FORM_TEXT, "x", "belongs on the command line"},
        {"check", OPTION_FORM_FLAG, "true", "belongs on the command line"},
        {"help", OPTION_FORM_FLAG, "true", "belongs on the command line"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(FOR_SERVE, ""), STATUS_OK);
        if (offer(OPTION_FILE, cases[i].name, cases[i].form, cases[i].text) != STATUS_INVALID)
            fail_msg("%s = %s is accepted", cases[i].name, cases[i].text);
        if (!strstr(note.text, cases[i].named)) fail_msg("%s: %s", cases[i].name, note.text);
    }
}

static void variables_are_read(void **state) {
    (void)state;
    setenv("KVICK_PORT", "4711", 1);
    setenv("KVICK_ENABLE_PREFIX_CACHING", "0", 1);
    setenv("KVICK_CHECK", "1", 1); /* no option for the environment */
    assert_int_equal(parse(FOR_SERVE, "--max-num-seqs 3"), STATUS_OK);
    assert_int_equal(options_offer_environment(&options, FOR_SERVE, &note), STATUS_OK);
    assert_int_equal(options.port, 4711);
    assert_true(options.no_prefix_cache);
    assert_false(options.check);
    setenv("KVICK_PORT", "47x", 1);
    assert_int_equal(parse(FOR_SERVE, ""), STATUS_OK);
    assert_int_equal(options_offer_environment(&options, FOR_SERVE, &note), STATUS_INVALID);
    assert_string_equal(note.text, "KVICK_PORT: port: '47x' is not a whole number in range");
    setenv("KVICK_PORT", "4711", 1);
    setenv("KVICK_ENABLE_PREFIX_CACHING", "maybe", 1);
    assert_int_equal(parse(FOR_SERVE, ""), STATUS_OK);
    assert_int_equal(options_offer_environment(&options, FOR_SERVE, &note), STATUS_INVALID);
    assert_non_null(strstr(note.text, "KVICK_ENABLE_PREFIX_CACHING"));
    unsetenv("KVICK_ENABLE_PREFIX_CACHING");
    /* A fault found later still says where the value is from. */
    assert_int_equal(parse(FOR_SERVE, ""), STATUS_OK);
    assert_int_equal(options_offer_environment(&options, FOR_SERVE, &note), STATUS_OK);
    status_fail(&note, STATUS_INVALID, "--port: 4711 is odd");
    options_add_source(&options, &note);
    assert_string_equal(note.text, "KVICK_PORT: --port: 4711 is odd");
    status_fail(&note, STATUS_INVALID, "--host: odd");
    options_add_source(&options, &note);
    assert_string_equal(note.text, "--host: odd");
    unsetenv("KVICK_PORT");
    unsetenv("KVICK_CHECK");
}

static void what_is_in_force_is_printed(void **state) {
    (void)state;
    char *text = NULL;
    size_t n_bytes = 0;
    assert_int_equal(parse(FOR_SERVE, "--api-key geheim --served-model-name a\"b --port 9"), STATUS_OK);
    assert_int_equal(offer(OPTION_FILE, "cors-origin", OPTION_FORM_TEXT, "*"), STATUS_OK);
    FILE *out = open_memstream(&text, &n_bytes);
    assert_non_null(out);
    options_print(out, &options, FOR_SERVE);
    fclose(out);
    assert_null(strstr(text, "geheim"));
    assert_non_null(strstr(text, "\n# api-key = 1, not shown  # command line\n"));
    assert_non_null(strstr(text, "\nserved-model-name = [\"a\\\"b\"]  # command line\n"));
    assert_non_null(strstr(text, "\nport = 9  # command line\n"));
    assert_non_null(strstr(text, "\ncors-origin = \"*\"  # k.toml:7\n"));
    assert_non_null(strstr(text, "\nhost = \"127.0.0.1\"  # default\n"));
    assert_non_null(strstr(text, "\nno-access-log = false  # default\n"));
    assert_null(strstr(text, "print-config"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_rows),
        cmocka_unit_test(all_forms_are_read),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(lists_are_bounded),
        cmocka_unit_test(rows_are_well_formed),
        cmocka_unit_test(help_shows_the_rows),
        cmocka_unit_test(words_of_other_servers_are_read),
        cmocka_unit_test(the_higher_origin_wins),
        cmocka_unit_test(wrong_offers_are_named),
        cmocka_unit_test(variables_are_read),
        cmocka_unit_test(what_is_in_force_is_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
