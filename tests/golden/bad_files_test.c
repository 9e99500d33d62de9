/* Every malformed file of golden/bad is refused by its own format's reader, in this process and by the binary, with
 * the field or key at fault in the message; good models cut short as well. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "support/gguf_build.h"
#include "support/run_kvick.h"
#include "support/test.h"
#include "weights/weight_store.h"

static const struct bad_file {
    const char *name, *word;
} bad_files[] = {
    {"array-type-99.gguf", "item type 99"},
    {"bad-magic.gguf", "magic"},
    {"begin-after-end.safetensors", "data_offsets [16, 0]"},
    {"big-endian-version.gguf", "version"},
    {"block-count-4e9.gguf", "llama.block_count"},
    {"block-count-is-string.gguf", "llama.block_count"},
    {"dim-2e42-plus-1.gguf", "tensor 't'"},
    {"dim-minus1.gguf", "dim 0"},
    {"dim-pad-wrap.gguf", "18446744073709551612 bytes"},
    {"dim-zero.gguf", "dim 1 is 0"},
    {"dtype-unknown.safetensors", "dtype 'Q77'"},
    {"duplicate-key.gguf", "'llama.block_count' (key 7): duplicate"},
    {"duplicate-name.safetensors", "tensor 't': duplicate"},
    {"empty-file.gguf", "empty"},
    {"empty-file.safetensors", "header length"},
    {"end-past-eof.safetensors", "data_offsets [0, 4000000]"},
    {"head-count-0.gguf", "llama.attention.head_count"},
    {"head-count-kv-0.gguf", "llama.attention.head_count_kv"},
    {"head-count-kv-3-of-4.gguf", "llama.attention.head_count_kv"},
    {"header-bad-utf8.safetensors", "name at byte 9"},
    {"header-len-past-eof.safetensors", "header length: 1000000"},
    {"header-nested-100k.safetensors", "value of 'a'"},
    {"header-not-json.safetensors", "header"},
    {"hole.safetensors", "hole"},
    {"key-len-2e63.gguf", "name length 9223372036854775808"},
    {"ndim-0.gguf", "n_dims 0"},
    {"nkv-minus1.gguf", "key count"},
    {"ntensors-2e60.gguf", "tensor count"},
    {"ntensors-minus1.gguf", "tensor count"},
    {"offset-2e64.safetensors", "too big integer"},
    {"offset-float.safetensors", "data_offsets"},
    {"offset-near-2e64.gguf", "offset 18446744073709551584"},
    {"offset-negative.safetensors", "data_offsets [-16, 0]"},
    {"offset-one-element.safetensors", "data_offsets"},
    {"offset-past-eof.gguf", "offset 4096"},
    {"offsets-overlap.gguf", "overlaps"},
    {"overlap.safetensors", "overlap"},
    {"q8_0-row-not-multiple-of-32.gguf", "dim 0 is 33"},
    {"shape-bigger-than-range.safetensors", "shape"},
    {"string-len-2e64-1.gguf", "text length 18446744073709551615"},
    {"tensor-data-missing.gguf", "tensor 't'"},
    {"tensor-data-truncated.gguf", "tensor 't'"},
    {"tensor-type-255.gguf", "type 255"},
    {"trailing-bytes.safetensors", "4 trailing bytes"},
    {"value-type-99.gguf", "value type 99"},
    {"version-0.gguf", "version: 0"},
};

#define N_BAD_FILES (sizeof bad_files / sizeof bad_files[0])

static void expect_refusal_here(const char *path, const char *word) {
    struct weight_store *store;
    struct status_note note = {0};
    long n_live = mem_n_live();
    enum status status = weight_store_open(&store, path, &note);
    if (status != STATUS_FORMAT || !strstr(note.text, word))
        fail_msg("%s: %s, '%s' holds no '%s'", path, status_text(status), note.text, word);
    assert_null(store);
    assert_int_equal(mem_n_live(), n_live);
}

static void expect_refusal_by_binary(const char *path, const char *word) {
    static const char *const forms[] = {NULL, "--json"};
    for (int i = 0; i < 2; i++) {
        struct run_kvick run;
        const char *args[] = {"inspect", path, forms[i], NULL};
        run_kvick(&run, args);
        run_kvick_expect_refusal(&run, path, word);
        run_kvick_deinit(&run);
    }
}

static void bad_files_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < N_BAD_FILES; i++) {
        char name[128];
        snprintf(name, sizeof name, "bad/%s", bad_files[i].name);
        const char *path = test_golden_file(name);
        expect_refusal_here(path, bad_files[i].word);
        expect_refusal_by_binary(path, bad_files[i].word);
    }
}

/* A file that is added to golden/bad must get its row here. */
static void the_table_is_complete(void **state) {
    (void)state;
    test_golden_file("bad"); /* skips without golden data */
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_golden_file("bad"));
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    size_t n_bad = 0, n_ok = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        if (strncmp(entry->d_name, "ok-control.", 11) == 0) {
            n_ok++;
            continue;
        }
        size_t i = 0;
        while (i < N_BAD_FILES && strcmp(bad_files[i].name, entry->d_name) != 0) i++;
        if (i == N_BAD_FILES) fail_msg("golden/bad/%s has no row in this test", entry->d_name);
        n_bad++;
    }
    closedir(dir);
    assert_int_equal(n_ok, 2);
    assert_int_equal(n_bad, N_BAD_FILES);
}

static void controls_are_accepted(void **state) {
    (void)state;
    static const char *const names[] = {"bad/ok-control.gguf", "bad/ok-control.safetensors"};
    for (int i = 0; i < 2; i++) {
        struct run_kvick run;
        const char *args[] = {"inspect", test_golden_file(names[i]), NULL};
        run_kvick(&run, args);
        if (run.exit_code != 0) fail_msg("%s: %s", names[i], run.err);
        assert_non_null(strstr(run.out, "tensors: 1"));
        run_kvick_deinit(&run);
    }
}

/* ---- Cuts ---- */

static char folder[64];
static char cut_path[96];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kvick-bad-files-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(cut_path, sizeof cut_path, "%s/cut.gguf", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(cut_path);
    return rmdir(folder);
}

static void write_file(const void *bytes, size_t n_bytes) {
    FILE *out = fopen(cut_path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n_bytes, out), n_bytes);
    assert_int_equal(fclose(out), 0);
}

static void expect_cut_refused(const uint8_t *bytes, size_t n_bytes, const char *word) {
    write_file(bytes, n_bytes);
    expect_refusal_here(cut_path, word);
    expect_refusal_by_binary(cut_path, word);
}

static void refuse_cuts(const uint8_t *bytes, size_t n_bytes) {
    struct gguf *gguf;
    struct status_note note = {0};
    if (gguf_open_bytes(&gguf, bytes, n_bytes, &note)) fail_msg("%s", note.text);
    size_t n_tensors = gguf_n_tensors(gguf), data_off = (size_t)gguf_data_off(gguf);
    size_t middle_of_table = (size_t)((const uint8_t *)gguf_tensor_at(gguf, n_tensors / 2)->name.ptr - bytes);
    struct gguf_array tokens;
    struct gguf_text text = {0}, next;
    size_t cursor = 0;
    assert_int_equal(gguf_get_array(gguf, "tokenizer.ggml.tokens", &tokens, NULL), STATUS_OK);
    while (gguf_array_next_text(&tokens, &cursor, &next))
        if (next.n_bytes >= 3) text = next;
    assert_true(text.n_bytes >= 3);
    size_t middle_of_text = (size_t)((const uint8_t *)text.ptr - bytes) + text.n_bytes / 2;
    const struct gguf_tensor *last = gguf_tensor_at(gguf, n_tensors - 1);
    char last_name[64];
    snprintf(last_name, sizeof last_name, "tensor '%.*s'", (int)last->name.n_bytes, last->name.ptr);
    gguf_close(&gguf);
    expect_cut_refused(bytes, n_bytes - 1, last_name);
    expect_cut_refused(bytes, n_bytes / 2, n_bytes / 2 > data_off ? "tensor '" : "key");
    expect_cut_refused(bytes, data_off, "tensor '");
    expect_cut_refused(bytes, middle_of_table, "tensor");
    expect_cut_refused(bytes, middle_of_text, "tokenizer.ggml.tokens");
    expect_cut_refused(bytes, 24, "key count");
    expect_cut_refused(bytes, 8, "tensor count");
    expect_cut_refused(bytes, 6, "version");
    expect_cut_refused(bytes, 3, "magic");
    expect_cut_refused(bytes, 0, "empty");
}

static void cut_golden_model_is_refused(void **state) {
    (void)state;
    struct file_map map;
    struct status_note note = {0};
    if (file_map_open(&map, test_golden_file("gguf/llama.gguf"), &note)) fail_msg("%s", note.text);
    refuse_cuts(map.bytes, map.n_bytes);
    file_map_close(&map);
}

static void cut_own_model_is_refused(void **state) {
    (void)state;
    static struct gguf_build build;
    gguf_build_good(&build, 3);
    refuse_cuts(build.bytes, build.n_bytes);
}

static void other_things_are_refused(void **state) {
    (void)state;
    static const char lfs[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 98362432\n";
    expect_cut_refused((const uint8_t *)lfs, sizeof lfs - 1, "Git LFS pointer");
    unlink(cut_path);
    expect_refusal_by_binary(cut_path, "No such file");
    expect_refusal_by_binary(folder, "model.safetensors");
    expect_refusal_by_binary("/dev/null", "not a regular file");
    expect_refusal_by_binary("no-such-model", "scripts/fetch-model no-such-model");
}

/* A hole counts as bytes that follow, so large counts pass the first look; neither time nor memory may. */
static void sparse_files_are_refused(void **state) {
    (void)state;
    static struct gguf_build build;
    gguf_build_good(&build, 3);
    gguf_build_patch_u64(&build, "n_keys", GGUF_MAX_KEYS);
    gguf_build_patch_u64(&build, "n_tensors", GGUF_MAX_TENSORS);
    write_file(build.bytes, build.n_bytes);
    assert_int_equal(truncate(cut_path, (off_t)1 << 29), 0);
    expect_refusal_here(cut_path, "key ");
    expect_refusal_by_binary(cut_path, "key ");
    assert_int_equal(truncate(cut_path, (off_t)1 << 33), 0); /* more than the child's address space */
    expect_refusal_by_binary(cut_path, "cut.gguf: ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_files_are_refused),    cmocka_unit_test(the_table_is_complete),
        cmocka_unit_test(controls_are_accepted),    cmocka_unit_test(cut_golden_model_is_refused),
        cmocka_unit_test(cut_own_model_is_refused), cmocka_unit_test(other_things_are_refused),
        cmocka_unit_test(sparse_files_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
