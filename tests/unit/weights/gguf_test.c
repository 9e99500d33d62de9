#include "weights/gguf.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "support/gguf_build.h"
#include "support/test.h"
#include "weights/gguf_check.h"

/* An exact-size copy on the heap, so that ASan sees a read past the file's end. */
static enum status open_copy(const uint8_t *bytes, size_t n_bytes, struct status_note *note) {
    uint8_t *copy = mem_alloc(n_bytes);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    struct gguf *gguf;
    *note = (struct status_note){0};
    enum status status = gguf_open_bytes(&gguf, copy, n_bytes, note);
    if (!status) status = gguf_check_model_keys(gguf, note);
    gguf_close(&gguf);
    mem_free(copy);
    return status;
}

static void refuse(const struct gguf_build *build, const char *what, const char *word) {
    struct status_note note;
    long n_live = mem_n_live();
    enum status status = open_copy(build->bytes, build->n_bytes, &note);
    if (status != STATUS_FORMAT || !strstr(note.text, word))
        fail_msg("%s: %s, '%s' holds no '%s'", what, status_text(status), note.text, word);
    assert_int_equal(mem_n_live(), n_live);
}

static void values_come_out(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        static struct gguf_build build;
        gguf_build_good(&build, version);
        struct gguf *gguf;
        struct status_note note = {0};
        assert_int_equal(gguf_open_bytes(&gguf, build.bytes, build.n_bytes, &note), STATUS_OK);
        assert_int_equal(gguf_version(gguf), version);
        assert_int_equal(gguf_file_bytes(gguf), build.n_bytes);
        assert_int_equal(gguf_data_off(gguf), gguf_build_off(&build, "data"));
        uint64_t u;
        double real;
        bool truth;
        struct gguf_text text;
        assert_int_equal(gguf_get_u64(gguf, "x.u8", &u, NULL), STATUS_OK);
        assert_int_equal(u, 255);
        assert_int_equal(gguf_get_u64(gguf, "x.u64", &u, NULL), STATUS_OK);
        assert_true(u == UINT64_MAX);
        static const char *const negative[] = {"x.i8", "x.i16", "x.i32", "x.i64"};
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(gguf_get_u64(gguf, negative[i], &u, &note), STATUS_INVALID);
            assert_non_null(strstr(note.text, negative[i]));
        }
        assert_int_equal(gguf_get_f64(gguf, "x.f64", &real, NULL), STATUS_OK);
        assert_true(real == 0.5);
        assert_int_equal(gguf_get_f64(gguf, "llama.rope.freq_base", &real, NULL), STATUS_OK);
        assert_true(real == 10000);
        assert_int_equal(gguf_get_bool(gguf, "x.bool", &truth, NULL), STATUS_OK);
        assert_true(truth);
        assert_int_equal(gguf_get_text(gguf, "general.architecture", &text, NULL), STATUS_OK);
        assert_int_equal(text.n_bytes, 5);
        assert_memory_equal(text.ptr, "llama", 5);
        assert_int_equal(gguf_get_u64(gguf, "none", &u, &note), STATUS_INVALID);
        assert_string_equal(note.text, "key 'none' is missing");
        assert_int_equal(gguf_get_text(gguf, "x.u8", &text, &note), STATUS_INVALID);
        assert_string_equal(note.text, "key 'x.u8' is U8, not TEXT");
        assert_int_equal(gguf_get_f64(gguf, "x.u8", &real, NULL), STATUS_INVALID);
        assert_int_equal(gguf_get_bool(gguf, "x.u8", &truth, NULL), STATUS_INVALID);
        gguf_close(&gguf);
        assert_null(gguf);
    }
}

static void arrays_come_out(void **state) {
    (void)state;
    static struct gguf_build build;
    gguf_build_good(&build, 3);
    struct gguf *gguf;
    assert_int_equal(gguf_open_bytes(&gguf, build.bytes, build.n_bytes, NULL), STATUS_OK);
    struct gguf_array array;
    assert_int_equal(gguf_get_array(gguf, "llama.attention.head_count_kv", &array, NULL), STATUS_OK);
    assert_int_equal(array.n_items, 2);
    assert_int_equal(gguf_array_int(&array, 0), 2);
    assert_int_equal(gguf_array_int(&array, 1), 4);
    assert_true(gguf_array_real(&array, 1) == 4);
    assert_int_equal(gguf_get_array(gguf, "x.bools", &array, NULL), STATUS_OK);
    assert_int_equal(gguf_array_int(&array, 0), 1);
    assert_int_equal(gguf_array_int(&array, 1), 0);
    assert_int_equal(gguf_get_array(gguf, "x.f32s", &array, NULL), STATUS_OK);
    assert_true(gguf_array_real(&array, 0) == 0.25);
    assert_int_equal(gguf_get_scalar(gguf, "x.i64", &array, NULL), STATUS_OK);
    assert_int_equal(gguf_array_int(&array, 0), -4);
    assert_int_equal(gguf_get_scalar(gguf, "x.bools", &array, NULL), STATUS_INVALID);
    assert_int_equal(gguf_get_array(gguf, "tokenizer.ggml.tokens", &array, NULL), STATUS_OK);
    static const char *const want[] = {"a", "", "\xff\x1b[31m"};
    size_t cursor = 0, n = 0;
    for (struct gguf_text text; gguf_array_next_text(&array, &cursor, &text); n++) {
        assert_true(n < 3);
        assert_int_equal(text.n_bytes, strlen(want[n]));
        assert_memory_equal(text.ptr, want[n], text.n_bytes);
    }
    assert_int_equal(n, 3);
    gguf_close(&gguf);
}

static void tensors_are_found(void **state) {
    (void)state;
    static struct gguf_build build;
    gguf_build_good(&build, 3);
    struct gguf *gguf;
    assert_int_equal(gguf_open_bytes(&gguf, build.bytes, build.n_bytes, NULL), STATUS_OK);
    assert_int_equal(gguf_n_tensors(gguf), 2);
    const struct gguf_tensor *t = gguf_tensor_find(gguf, "t"), *u = gguf_tensor_find(gguf, "u");
    assert_ptr_equal(t, gguf_tensor_at(gguf, 0));
    assert_ptr_equal(u, gguf_tensor_at(gguf, 1));
    assert_null(gguf_tensor_find(gguf, "tt"));
    assert_null(gguf_tensor_find(gguf, ""));
    assert_int_equal(t->dtype, DTYPE_Q8_0);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 32);
    assert_int_equal(t->dims[1], 2);
    assert_int_equal(t->dims[3], 1);
    assert_int_equal(t->n_bytes, 68);
    assert_ptr_equal(u->bytes, build.bytes + gguf_build_off(&build, "data") + 96);
    assert_int_equal(u->file_off, u->bytes - build.bytes);
    gguf_close(&gguf);
}

/* One field wrong, everything else good. width 8 patches a uint64_t, 4 a uint32_t, 1 a byte. */
static void wrong_fields_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *field;
        int width;
        uint64_t value;
        const char *word;
    } cases[] = {
        {"magic", 4, 0x46554746, "magic"},
        {"version", 4, 1, "version"},
        {"version", 4, 4, "version"},
        {"version", 4, 0x02000000, "big-endian"},
        {"n_tensors", 8, 3, "tensor"},
        {"n_tensors", 8, (uint64_t)1 << 59, "tensor count"},
        {"n_keys", 8, (uint64_t)1 << 60, "key count"},
        {"n_keys", 8, 300, "key count"},
        {"general.architecture:name", 8, 0, "name is empty"},
        {"general.architecture:name", 8, UINT64_MAX, "name length"},
        {"general.architecture:name", 8, 65536, "name length"},
        {"general.architecture:type", 4, 13, "value type 13"},
        {"general.architecture:type", 4, UINT32_MAX, "general.architecture"},
        {"general.architecture:type", 4, GGUF_F64, "key 1"},
        {"general.architecture:value", 8, UINT64_MAX, "text length"},
        {"general.architecture:value", 8, (uint64_t)1 << 63, "text length"},
        {"general.alignment:value", 4, 0, "general.alignment"},
        {"general.alignment:value", 4, 4, "general.alignment"},
        {"general.alignment:value", 4, 24, "general.alignment"},
        {"general.alignment:value", 4, (uint64_t)1 << 31, "general.alignment"},
        {"general.alignment:value", 4, UINT32_MAX, "general.alignment"},
        {"general.alignment:value", 4, 64, "offset 96"},
        {"general.alignment:type", 4, GGUF_F32, "general.alignment"},
        {"tokenizer.ggml.tokens:item_type", 4, GGUF_ARRAY, "array of arrays"},
        {"tokenizer.ggml.tokens:item_type", 4, 13, "item type 13"},
        {"tokenizer.ggml.tokens:item_type", 4, UINT32_MAX, "tokenizer.ggml.tokens"},
        {"tokenizer.ggml.tokens:n_items", 8, UINT64_MAX, "array length"},
        {"tokenizer.ggml.tokens:n_items", 8, (uint64_t)1 << 61, "array length"},
        {"tokenizer.ggml.tokens:items", 8, UINT64_MAX, "text 0"},
        {"tokenizer.ggml.token_type:n_items", 8, (uint64_t)1 << 62, "array length"},
        {"x.bool:value", 1, 2, "x.bool"},
        {"x.bools:items", 1, 255, "x.bools"},
        {"t:name", 8, UINT64_MAX, "name length"},
        {"t:name", 8, 0, "empty"},
        {"t:n_dims", 4, 0, "n_dims"},
        {"t:n_dims", 4, 5, "n_dims"},
        {"t:n_dims", 4, UINT32_MAX, "n_dims"},
        {"t:dim0", 8, 0, "dim 0"},
        {"t:dim0", 8, 33, "multiple"},
        {"t:dim0", 8, (uint64_t)1 << 62, "dim 1"},
        {"t:dim1", 8, 0, "dim 1"},
        {"t:dim1", 8, UINT64_MAX, "dim 1"},
        {"t:dim1", 8, (uint64_t)1 << 59, "dim 1"},
        {"t:dim1", 8, ((uint64_t)1 << 58) - 1, "bytes"},
        {"t:dim1", 8, 3, "overlaps"},
        {"t:type", 4, 4, "type 4"},
        {"t:type", 4, UINT32_MAX, "type"},
        {"u:offset", 8, 97, "offset 97"},
        {"u:offset", 8, 64, "overlaps"},
        {"u:offset", 8, 0, "overlaps"},
        {"u:offset", 8, 128, "offset 128"},
        {"u:offset", 8, UINT64_MAX - 31, "offset 18446744073709551584"},
        {"u:dim0", 8, 5, "past"},
        {"u:dim0", 8, ((uint64_t)1 << 62) - 1, "past"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static struct gguf_build build;
        char what[96];
        gguf_build_good(&build, 3);
        gguf_build_patch(&build, cases[i].field, &cases[i].value, (size_t)cases[i].width);
        snprintf(what, sizeof what, "%s = %llu", cases[i].field, (unsigned long long)cases[i].value);
        refuse(&build, what, cases[i].word);
    }
}

static void wrong_names_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"\xff", "\x1b", "\0", "\n", "\x7f", "\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        static struct gguf_build build;
        gguf_build_good(&build, 3);
        memcpy(build.bytes + gguf_build_off(&build, "t:name") + 8, bad[i], 1);
        refuse(&build, "tensor name", "tensor 0: its name");
        gguf_build_good(&build, 3);
        memcpy(build.bytes + gguf_build_off(&build, "x.u8:name") + 8, bad[i], 1);
        refuse(&build, "key name", "its name");
    }
    static struct gguf_build build;
    gguf_build_good(&build, 3);
    memcpy(build.bytes + gguf_build_off(&build, "u:name") + 8, "t", 1);
    refuse(&build, "tensor twice", "tensor 't' (tensor 1): duplicate");
    gguf_build_good(&build, 3);
    memcpy(build.bytes + gguf_build_off(&build, "x.i8:name") + 8, "x.u8", 4);
    refuse(&build, "key twice", "duplicate");
}

/* Container sound, numbers that no model can have. */
static void wrong_model_keys_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *field;
        uint32_t value;
        const char *word;
    } cases[] = {
        {"llama.block_count:value", 0, "llama.block_count"},
        {"llama.block_count:value", UINT32_MAX, "llama.block_count"},
        {"llama.block_count:value", 3, "head_count_kv"},
        {"llama.block_count:type", GGUF_F32, "llama.block_count"},
        {"llama.embedding_length:value", 0, "llama.embedding_length"},
        {"llama.embedding_length:value", 33, "llama.embedding_length"},
        {"llama.embedding_length:value", UINT32_MAX, "llama.embedding_length"},
        {"llama.context_length:value", 0, "llama.context_length"},
        {"llama.attention.head_count:value", 0, "llama.attention.head_count"},
        {"llama.attention.head_count:value", 6, "head_count_kv"},
        {"llama.attention.head_count:value", UINT32_MAX, "llama.attention.head_count"},
        {"llama.attention.head_count:type", GGUF_F32, "llama.attention.head_count"},
        {"llama.attention.head_count_kv:items", 3, "head_count_kv"},
        {"llama.attention.head_count_kv:items", UINT32_MAX, "head_count_kv"},
        {"llama.attention.head_count_kv:item_type", GGUF_F32, "head_count_kv"},
        {"llama.rope.freq_base:value", 0x7fc00000, "llama.rope.freq_base"},
        {"llama.rope.freq_base:value", 0x7f800000, "llama.rope.freq_base"},
        {"llama.rope.freq_base:value", 0, "llama.rope.freq_base"},
        {"llama.rope.freq_base:type", GGUF_U32, "llama.rope.freq_base"},
        {"llama.expert_used_count:value", 5, "llama.expert_used_count"},
        {"tokenizer.ggml.token_type:item_type", GGUF_F32, "tokenizer.ggml.token_type"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static struct gguf_build build;
        gguf_build_good(&build, 3);
        gguf_build_patch_u32(&build, cases[i].field, cases[i].value);
        struct gguf *gguf;
        assert_int_equal(gguf_open_bytes(&gguf, build.bytes, build.n_bytes, NULL), STATUS_OK);
        gguf_close(&gguf);
        refuse(&build, cases[i].field, cases[i].word);
    }
    static struct gguf_build build;
    gguf_build_good(&build, 3);
    memcpy(build.bytes + gguf_build_off(&build, "general.architecture:value") + 8, "\x1b", 1);
    refuse(&build, "architecture", "general.architecture");
    gguf_build_good(&build, 3);
    memset(build.bytes + gguf_build_off(&build, "llama.attention.head_count_kv:items"), 0, 8);
    refuse(&build, "no layer has KV heads", "all items are 0");
    /* One layer without attention is a hybrid model, not a fault. */
    gguf_build_good(&build, 3);
    gguf_build_patch_u32(&build, "llama.attention.head_count_kv:items", 0);
    struct status_note note;
    assert_int_equal(open_copy(build.bytes, build.n_bytes, &note), STATUS_OK);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    static struct gguf_build build;
    gguf_build_good(&build, 3);
    struct status_note note;
    assert_int_equal(open_copy(build.bytes, build.n_bytes, &note), STATUS_OK);
    for (size_t n = 0; n < build.n_bytes; n++) {
        enum status status = open_copy(build.bytes, n, &note);
        if (status != STATUS_FORMAT || !note.text[0]) fail_msg("cut to %zu bytes: %s", n, status_text(status));
    }
    open_copy(build.bytes, build.n_bytes - 1, &note) ? (void)0 : fail();
    assert_non_null(strstr(note.text, "tensor 'u'"));
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n";
    assert_int_equal(open_copy((const uint8_t *)lfs, sizeof lfs - 1, &note), STATUS_FORMAT);
    assert_non_null(strstr(note.text, "LFS"));
}

/* Every byte to a few other values: whatever comes out, nothing may be read outside (ASan) and no note is left empty.
 */
static void every_byte_may_be_wrong(void **state) {
    (void)state;
    static struct gguf_build build;
    gguf_build_good(&build, 3);
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    for (size_t off = 0; off < build.n_bytes; off++) {
        uint8_t good = build.bytes[off];
        for (size_t i = 0; i < sizeof values; i++) {
            struct status_note note;
            build.bytes[off] = values[i];
            enum status status = open_copy(build.bytes, build.n_bytes, &note);
            assert_true(status == STATUS_OK || (status == STATUS_FORMAT && note.text[0]));
        }
        build.bytes[off] = good;
    }
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    static struct gguf_build build;
    gguf_build_good(&build, 3);
    long n_live = mem_n_live(), n = 1;
    for (;; n++) {
        struct gguf *gguf;
        struct status_note note = {0};
        mem_fail_from(n);
        enum status status = gguf_open_bytes(&gguf, build.bytes, build.n_bytes, &note);
        mem_fail_from(0);
        if (status) {
            assert_null(gguf);
            assert_int_equal(mem_n_live(), n_live);
        }
        gguf_close(&gguf);
        if (!status) break;
        assert_int_equal(status, STATUS_NOMEM);
        assert_true(n < 100);
    }
    assert_true(n > 5); /* struct, keys, their table, offsets, tensors, their table, order */
    assert_int_equal(mem_n_live(), n_live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_out),
        cmocka_unit_test(arrays_come_out),
        cmocka_unit_test(tensors_are_found),
        cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(wrong_names_are_refused),
        cmocka_unit_test(wrong_model_keys_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_byte_may_be_wrong),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
