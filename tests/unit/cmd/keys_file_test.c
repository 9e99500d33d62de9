#include "cmd/keys_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "support/test.h"

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" /* SHA-256 of "abc" */
#define OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static struct keys_file file;
static struct status_note note;
static char path[] = "/tmp/kvick_keys_XXXXXX";

static enum status read_text(const char *text) {
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    note.text[0] = 0;
    return keys_file_open(&file, path, &note);
}

static int make_file(void **state) {
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    return close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

static void all_fields_are_read(void **state) {
    (void)state;
    long n_live = mem_n_live();
    assert_int_equal(read_text("# two\n[[key]]\nname = \"alice\"\nsha256 = [\"" ABC "\", \"" OF_NOTHING
                               "\"]\nclass = \"batch\"\nweight = 3\nmax-context = 4_096\nmax-output = 0x80\n"
                               "tokens-per-minute = 1e3\nprefill-ms-per-minute = 500\nadmin = true\n"
                               "salt-scope = \"group:team\"\n[[key]]\nname = \"bob\"\nsha256 = \"" ABC "\"\n"),
                     STATUS_INVALID);
    assert_non_null(strstr(note.text, ":13: key: its sha256 is another's too"));
    assert_int_equal(mem_n_live(), n_live);
    assert_int_equal(read_text("[[key]]\nname = \"alice\"\nsha256 = [\"" ABC "\"]\nclass = \"batch\"\nweight = 3\n"
                               "max-context = 4_096\nmax-output = 0x80\ntokens-per-minute = 1e3\n"
                               "prefill-ms-per-minute = 500\nadmin = true\nsalt-scope = \"group:team\"\n"
                               "[[key]]\nname = \"bob\"\nsha256 = \"" OF_NOTHING "\"\n"),
                     STATUS_OK);
    assert_int_equal(file.n_keys, 2);
    const struct api_key *alice = &file.keys[0], *bob = &file.keys[1];
    assert_string_equal(alice->terms.name, "alice");
    assert_int_equal(alice->n_digests, 1);
    assert_int_equal(alice->digests[0][0], 0xba);
    assert_int_equal(alice->digests[0][31], 0xad);
    assert_int_equal(alice->terms.class_, REQUEST_BATCH);
    assert_int_equal(alice->terms.weight, 3);
    assert_int_equal(alice->terms.max_context, 4096);
    assert_int_equal(alice->terms.max_output, 128);
    assert_true(alice->tokens_per_minute == 1000 && alice->prefill_ms_per_minute == 500);
    assert_true(alice->is_admin && !bob->is_admin);
    assert_int_equal(bob->terms.class_, REQUEST_INTERACTIVE);
    assert_int_equal(bob->terms.max_context, 0);
    assert_true(alice->terms.has_salt && bob->terms.has_salt);
    assert_memory_not_equal(alice->terms.salt, bob->terms.salt, sizeof bob->terms.salt);
    assert_true(alice->terms.tenant_id != bob->terms.tenant_id && bob->terms.tenant_id != 0);
    keys_file_close(&file);
    assert_int_equal(mem_n_live(), n_live);
}

static void who_shares_a_scope_shares_a_salt(void **state) {
    (void)state;
    char text[1024] = "";
    static const char *const scopes[] = {"key", "group:a", "group:a", "shared"};
    for (int i = 0; i < 4; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "[[key]]\nname = \"k%d\"\nsha256 = \"%064d\"\nsalt-scope = \"%s\"\n", i, i, scopes[i]);
    assert_int_equal(read_text(text), STATUS_OK);
    const struct api_key *keys = file.keys;
    assert_memory_equal(keys[1].terms.salt, keys[2].terms.salt, sizeof keys[1].terms.salt);
    assert_memory_not_equal(keys[0].terms.salt, keys[1].terms.salt, sizeof keys[1].terms.salt);
    assert_false(keys[3].terms.has_salt);
    keys_file_close(&file);
}

/* One line of a key in place of one that is right, and what is said of it. */
static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        const char *line, *named;
    } cases[] = {
        {"nam = \"x\"", ":4: nam: there is no such field"},
        {"weight = 0", ":4: weight: 0 is not within 1..1000"},
        {"weight = \"3\"", ":4: weight must be a whole number, not a text"},
        {"weight = 1.5", "weight must be a whole number, not a fraction"},
        {"weight = [1]", "weight must be a whole number, not a list"},
        {"max-context = 99999999999", "max-context: 99999999999 is not within"},
        {"max-context = 99999999999999999999", ":4: max-context: 99999999999999999999 has more than 64 bits"},
        {"class = \"gold\"", ":4: class: interactive or batch"},
        {"class = [\"batch\"]", "class must be a text, not a list"},
        {"tokens-per-minute = 0", "tokens-per-minute: must be above 0"},
        {"tokens-per-minute = nan", "tokens-per-minute: must be above 0"},
        {"tokens-per-minute = true", "tokens-per-minute must be a number, not true or false"},
        {"admin = 1", "admin must be true or false, not a whole number"},
        {"salt-scope = \"group:\"", "salt-scope: key, shared or group:NAME"},
        {"salt-scope = {a = 1}", "salt-scope must be a text, not a table"},
        {"weight = 2026-11-30", "weight must be a whole number, not a date"},
        {"name = \"twice\"", ":4: "},
        {"weight = ", ":4: "},
        {"[other]", ":4: other: there are no such tables, only [[key]]"},
        {"[[key]]", ":4: key: there is no name in it"},
        {"[[key]]\nname = \"b\"", ":4: key: there is no sha256 in it"},
        {"[[key]]\nname = \"b\"\nsha256 = []", ":4: key: there is no sha256 in it"},
        {"[[key]]\nname = \"a\"\nsha256 = \"" OF_NOTHING "\"", ":4: key: its name is another's too"},
        {"[[key]]\nname = \"b c\"", ":5: name: 1 to 63 letters"},
        {"[[key]]\nsha256 = \"abc\"", ":5: sha256: not the 64 hexadecimal digits"},
        {"[[key]]\nsha256 = [1]", ":5: sha256 must be a text or a list of texts, not a whole number"},
        {"[[key]]\nsha256 = [[\"x\"]]", "sha256 must be a text or a list of texts, not a list"},
        {"\xff", ":4: not UTF-8"},
    };
    long n_live = mem_n_live();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "[[key]]\nname = \"a\"\nsha256 = \"" ABC "\"\n%s\n", cases[i].line);
        if (read_text(text) == STATUS_OK) fail_msg("'%s' is accepted", cases[i].line);
        if (!strstr(note.text, cases[i].named)) fail_msg("'%s': %s", cases[i].line, note.text);
        if (strncmp(note.text, path, strlen(path)) != 0) fail_msg("'%s': %s", cases[i].line, note.text);
        assert_int_equal(mem_n_live(), n_live);
    }
    assert_int_equal(read_text(""), STATUS_INVALID);
    assert_int_equal(read_text("name = \"x\"\n"), STATUS_INVALID);
    assert_non_null(strstr(note.text, ":1: name: belongs into a [[key]]"));
    assert_int_equal(keys_file_open(&file, "/no/such/file", &note), STATUS_IO);
    assert_non_null(strstr(note.text, "/no/such/file"));
}

static void size_is_bounded(void **state) {
    (void)state;
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    for (int i = 0; i < 1100000; i++) fputc('\n', out);
    fclose(out);
    assert_int_equal(keys_file_open(&file, path, &note), STATUS_LIMIT);
    out = fopen(path, "w");
    for (int i = 0; i < 1100; i++) fprintf(out, "[[key]]\nname = \"k%d\"\nsha256 = \"%064d\"\n", i, i);
    fclose(out);
    assert_int_equal(keys_file_open(&file, path, &note), STATUS_INVALID);
    assert_non_null(strstr(note.text, "more than 1024 keys"));
    /* Deep nesting ends in words, not in a stack that is gone. */
    out = fopen(path, "w");
    fputs("a = ", out);
    for (int i = 0; i < 100000; i++) fputc('[', out);
    fclose(out);
    assert_int_not_equal(keys_file_open(&file, path, &note), STATUS_OK);
}

int main(void) {
#ifndef KVICK_BRIDGE
    print_message("KVICK_BRIDGE=OFF: key files are not tested\n0 passed, 0 failed, 1 skipped\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_fields_are_read),
        cmocka_unit_test(who_shares_a_scope_shares_a_salt),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(size_is_bounded),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
