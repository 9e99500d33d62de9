/* kvick inspect on good files: what it prints, that --json is JSON, that bytes of a file never steer the terminal. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "support/gguf_build.h"
#include "support/run_kvick.h"
#include "support/test.h"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kvick-inspect-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t n_bytes) {
    FILE *out = fopen(path_of(name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n_bytes, out), n_bytes);
    assert_int_equal(fclose(out), 0);
}

/* The output is whole UTF-8 without any control character but the newline. */
static void expect_plain(const struct run_kvick *run) {
    for (size_t at = 0; at < run->out_bytes;) {
        uint32_t code;
        int n = utf8_decode(run->out + at, run->out_bytes - at, &code);
        if (n == 0 && run->out_bytes == RUN_KVICK_MAX_BYTES - 1) return; /* cut by the test itself */
        if (n == 0 || (code != '\n' && (code < 0x20 || (code >= 0x7f && code < 0xa0))))
            fail_msg("byte %zu of the output is 0x%02x", at, (unsigned char)run->out[at]);
        at += (size_t)n;
    }
}

static json_t *inspect_json(const char *path) {
    struct run_kvick run;
    json_error_t error;
    const char *args[] = {"inspect", path, "--json", NULL};
    run_kvick(&run, args);
    if (run.exit_code != 0) fail_msg("%s: %s", path, run.err);
    expect_plain(&run);
    json_t *tree = json_loadb(run.out, run.out_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!tree) fail_msg("%s: %s", path, error.text);
    run_kvick_deinit(&run);
    return tree;
}

static long long int_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("%s is no integer", key);
    return json_integer_value(value);
}

static const json_t *key_of(const json_t *tree, const char *key) {
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(tree, "keys"), i, entry) {
        if (strcmp(json_string_value(json_object_get(entry, "key")), key) == 0) return entry;
    }
    fail_msg("no key %s", key);
    return NULL;
}

static void json_holds_the_file(void **state) {
    (void)state;
    static struct gguf_build build;
    gguf_build_good(&build, 2);
    write_file("m.gguf", build.bytes, build.n_bytes);
    json_t *tree = inspect_json(path_of("m.gguf"));
    assert_string_equal(json_string_value(json_object_get(tree, "format")), "GGUF");
    assert_string_equal(json_string_value(json_object_get(tree, "architecture")), "llama");
    assert_int_equal(int_of(tree, "version"), 2);
    assert_int_equal(int_of(tree, "file_bytes"), build.n_bytes);
    assert_int_equal(int_of(tree, "n_parameters"), 68);
    assert_int_equal(int_of(key_of(tree, "x.i64"), "value"), -4);
    assert_string_equal(json_string_value(json_object_get(key_of(tree, "x.u64"), "value")), "18446744073709551615");
    assert_true(json_is_true(json_object_get(key_of(tree, "x.bool"), "value")));
    assert_true(json_real_value(json_object_get(key_of(tree, "x.f64"), "value")) == 0.5);
    assert_int_equal(int_of(key_of(tree, "tokenizer.ggml.tokens"), "n_items"), 3);
    assert_null(json_object_get(key_of(tree, "tokenizer.ggml.tokens"), "items"));
    assert_int_equal(json_array_size(json_object_get(key_of(tree, "llama.attention.head_count_kv"), "items")), 2);
    assert_string_equal(json_string_value(json_object_get(key_of(tree, "tokenizer.chat_template"), "value")),
                        "{{ x }}\n\x1b[2J");
    const json_t *u = json_array_get(json_object_get(tree, "tensors"), 1);
    assert_string_equal(json_string_value(json_object_get(u, "name")), "u");
    assert_int_equal(int_of(u, "bytes"), 16);
    assert_int_equal(int_of(u, "offset"), gguf_build_off(&build, "data") + 96);
    assert_int_equal(int_of(json_object_get(json_object_get(tree, "types"), "Q8_0"), "bytes"), 68);
    json_decref(tree);
    unlink(path_of("m.gguf"));
}

static void text_is_escaped(void **state) {
    (void)state;
    static const char *const hostile[] = {"\x1b[2J", "\x7f", "\xc2\x9b", "\xff\xfe", "\xe2\x80\xa8", "\r\b\a"};
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        static struct gguf_build build;
        gguf_build_good(&build, 3);
        size_t off = gguf_build_off(&build, "tokenizer.chat_template:value") + 8;
        memcpy(build.bytes + off, hostile[i], strlen(hostile[i]));
        build.bytes[off + 5] = 0; /* NUL is a byte like others */
        write_file("m.gguf", build.bytes, build.n_bytes);
        struct run_kvick run;
        const char *args[] = {"inspect", path_of("m.gguf"), NULL};
        run_kvick(&run, args);
        assert_int_equal(run.exit_code, 0);
        expect_plain(&run);
        assert_non_null(strstr(run.out, "\\u0000"));
        assert_non_null(strstr(run.out, "array of 3 texts"));
        run_kvick_deinit(&run);
        json_decref(inspect_json(path_of("m.gguf")));
    }
    unlink(path_of("m.gguf"));
}

static void names_mean_downloaded_models(void **state) {
    (void)state;
    static struct gguf_build build;
    static const char *const parts[] = {"kvick", "kvick/models"};
    gguf_build_good(&build, 3);
    char *old = getenv("XDG_CACHE_HOME");
    for (int i = 0; i < 2; i++) assert_int_equal(mkdir(path_of(parts[i]), 0700), 0);
    write_file("kvick/models/tiny-1.gguf", build.bytes, build.n_bytes);
    char *kept = old ? mem_strdup(old) : NULL;
    setenv("XDG_CACHE_HOME", folder, 1);
    struct run_kvick run;
    const char *good[] = {"inspect", "tiny-1", NULL}, *bad[] = {"inspect", "tiny-2", NULL},
               *outside[] = {"inspect", "../models/tiny-1", NULL};
    run_kvick(&run, good);
    assert_int_equal(run.exit_code, 0);
    assert_non_null(strstr(run.out, "kvick/models/tiny-1.gguf"));
    run_kvick_deinit(&run);
    run_kvick(&run, bad);
    run_kvick_expect_refusal(&run, "tiny-2", "scripts/fetch-model tiny-2");
    run_kvick_deinit(&run);
    run_kvick(&run, outside);
    run_kvick_expect_refusal(&run, "../models/tiny-1", "No such file");
    run_kvick_deinit(&run);
    if (kept)
        setenv("XDG_CACHE_HOME", kept, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    mem_free(kept);
    unlink(path_of("kvick/models/tiny-1.gguf"));
    for (int i = 1; i >= 0; i--) assert_int_equal(rmdir(path_of(parts[i])), 0);
}

static void wrong_use_is_said(void **state) {
    (void)state;
    static const char *const none[] = {"inspect", NULL}, *const two[] = {"inspect", "a", "b", NULL};
    const char *const *const uses[] = {none, two};
    for (int i = 0; i < 2; i++) {
        struct run_kvick run;
        run_kvick(&run, uses[i]);
        assert_int_equal(run.exit_code, 2);
        run_kvick_deinit(&run);
    }
}

/* Every model of golden/gguf and golden/vocab, and the tiny folders beside them. */
static void golden_models_are_accepted(void **state) {
    (void)state;
    static const char *const folders[] = {"gguf", "vocab", "tiny"};
    for (int i = 0; i < 3; i++) {
        char path[1024], file[1400];
        snprintf(path, sizeof path, "%s", test_golden_file(folders[i]));
        DIR *dir = opendir(path);
        assert_non_null(dir);
        int n = 0;
        for (struct dirent *entry; (entry = readdir(dir));) {
            if (entry->d_name[0] == '.') continue;
            snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
            struct run_kvick run;
            const char *args[] = {"inspect", file, NULL};
            run_kvick(&run, args);
            if (run.exit_code != 0) fail_msg("%s: %s", file, run.err);
            expect_plain(&run);
            run_kvick_deinit(&run);
            n++;
        }
        closedir(dir);
        assert_true(n >= 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_holds_the_file),          cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(names_mean_downloaded_models), cmocka_unit_test(wrong_use_is_said),
        cmocka_unit_test(golden_models_are_accepted),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
