#include "weights/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "support/test.h"
#include "weights/weight_store.h"

static char folder[64];
static char path[96];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kvick-gguf-write-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails, and with it the group, if a .part file was left */
}

static enum status write_keys(struct gguf_write *w, struct status_note *note) {
    static const struct gguf_text texts[] = {{"a", 1}, {"", 0}, {"\0\xff", 2}};
    static const int32_t types[] = {1, 2, -3};
    enum status status = gguf_write_key_text(w, "general.architecture", "llama", 5, note);
    if (!status) status = gguf_write_key_int(w, "i.u8", GGUF_U8, 255, note);
    if (!status) status = gguf_write_key_int(w, "i.i16", GGUF_I16, -32768, note);
    if (!status) status = gguf_write_key_int(w, "i.u64", GGUF_U64, -1, note);
    if (!status) status = gguf_write_key_real(w, "r.f32", GGUF_F32, 0.25, note);
    if (!status) status = gguf_write_key_real(w, "r.f64", GGUF_F64, 0.1, note);
    if (!status) status = gguf_write_key_bool(w, "b", true, note);
    if (!status) status = gguf_write_key_texts(w, "texts", texts, 3, note);
    if (!status) status = gguf_write_key_array(w, "types", GGUF_I32, types, 3, note);
    return status;
}

static enum status write_file(struct status_note *note) {
    static const uint64_t a_dims[] = {32, 2}, b_dims[] = {3};
    static const float b[] = {1, 2, 3};
    uint8_t a[68];
    memset(a, 7, sizeof a);
    struct gguf_write *w;
    enum status status = gguf_write_create(&w, path, note);
    if (status) return status;
    status = write_keys(w, note);
    if (!status) status = gguf_write_tensor(w, "a", DTYPE_Q8_0, 2, a_dims, note);
    if (!status) status = gguf_write_tensor(w, "b", DTYPE_F32, 1, b_dims, note);
    if (!status) status = gguf_write_begin_data(w, note);
    if (!status) status = gguf_write_data(w, a, 34, note);
    if (!status) status = gguf_write_data(w, a, 34, note);
    if (!status) status = gguf_write_data(w, b, sizeof b, note);
    if (!status) status = gguf_write_finish(w, note);
    gguf_write_destroy(&w);
    return status;
}

static void what_is_written_is_read(void **state) {
    (void)state;
    struct status_note note = {0};
    if (write_file(&note)) fail_msg("%s", note.text);
    struct weight_store *store;
    if (weight_store_open(&store, path, &note)) fail_msg("%s", note.text);
    const struct gguf *gguf = weight_store_gguf(store);
    struct gguf_array array;
    struct gguf_text text;
    uint64_t u;
    double real;
    bool truth;
    assert_int_equal(gguf_n_keys(gguf), 9);
    assert_int_equal(gguf_get_u64(gguf, "i.u8", &u, NULL), STATUS_OK);
    assert_int_equal(u, 255);
    assert_int_equal(gguf_get_u64(gguf, "i.u64", &u, NULL), STATUS_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(gguf_get_scalar(gguf, "i.i16", &array, NULL), STATUS_OK);
    assert_int_equal(gguf_array_int(&array, 0), -32768);
    assert_int_equal(gguf_get_f64(gguf, "r.f32", &real, NULL), STATUS_OK);
    assert_true(real == 0.25);
    assert_int_equal(gguf_get_f64(gguf, "r.f64", &real, NULL), STATUS_OK);
    assert_true(real == 0.1);
    assert_int_equal(gguf_get_bool(gguf, "b", &truth, NULL), STATUS_OK);
    assert_true(truth);
    assert_int_equal(gguf_get_array(gguf, "types", &array, NULL), STATUS_OK);
    assert_int_equal(gguf_array_int(&array, 2), -3);
    assert_int_equal(gguf_get_array(gguf, "texts", &array, NULL), STATUS_OK);
    size_t cursor = 0;
    for (int i = 0; i < 3; i++) assert_true(gguf_array_next_text(&array, &cursor, &text));
    assert_int_equal(text.n_bytes, 2);
    assert_memory_equal(text.ptr, "\0\xff", 2);
    assert_false(gguf_array_next_text(&array, &cursor, &text));
    struct weight_tensor a, b;
    assert_int_equal(weight_store_find(store, "a", &a, NULL), STATUS_OK);
    assert_int_equal(weight_store_at(store, 1, &b, NULL), STATUS_OK);
    assert_int_equal(a.dtype, DTYPE_Q8_0);
    assert_int_equal(a.n_bytes, 68);
    assert_int_equal(a.bytes[67], 7);
    assert_int_equal(b.dims[0], 3);
    assert_true(((const float *)(const void *)b.bytes)[2] == 3);
    assert_true(weight_store_has(store, "b"));
    assert_false(weight_store_has(store, "c"));
    assert_int_equal(weight_store_find(store, "c", &a, &note), STATUS_INVALID);
    assert_string_equal(note.text, "tensor 'c' is missing");
    weight_store_close(&store);
}

static void misuse_is_refused(void **state) {
    (void)state;
    static const uint64_t odd[] = {33}, none[] = {0}, four[] = {4}, huge[] = {(uint64_t)1 << 40, (uint64_t)1 << 40};
    struct gguf_write *w;
    assert_int_equal(gguf_write_create(&w, "/nonexistent/model.gguf", NULL), STATUS_IO);
    assert_null(w);
    assert_int_equal(gguf_write_create(&w, path, NULL), STATUS_OK);
    assert_int_equal(gguf_write_key_int(w, "k", GGUF_U8, 256, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_key_int(w, "k", GGUF_U8, -1, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_key_int(w, "k", GGUF_I8, 128, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_key_int(w, "k", GGUF_F32, 1, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_key_real(w, "k", GGUF_U8, 1, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_key_array(w, "k", GGUF_TEXT, "", 0, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_tensor(w, "t", DTYPE_Q8_0, 1, odd, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_tensor(w, "t", DTYPE_F32, 1, none, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_tensor(w, "t", DTYPE_F32, 0, four, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_tensor(w, "t", DTYPE_F32, 2, huge, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_data(w, "", 1, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_finish(w, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_tensor(w, "t", DTYPE_F32, 1, four, NULL), STATUS_OK);
    assert_int_equal(gguf_write_tensor(w, "t", DTYPE_F32, 1, four, NULL), STATUS_OK);
    assert_int_equal(gguf_write_begin_data(w, NULL), STATUS_OK);
    assert_int_equal(gguf_write_key_bool(w, "k", true, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_tensor(w, "t", DTYPE_F32, 1, four, NULL), STATUS_INVALID);
    static const uint8_t zeros[32];
    assert_int_equal(gguf_write_data(w, zeros, 17, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_data(w, zeros, 16, NULL), STATUS_OK);
    assert_int_equal(gguf_write_finish(w, NULL), STATUS_INVALID);
    assert_int_equal(gguf_write_data(w, zeros, 16, NULL), STATUS_OK);
    assert_int_equal(gguf_write_data(w, zeros, 1, NULL), STATUS_INVALID);
    struct status_note note = {0};
    assert_int_equal(gguf_write_finish(w, &note), STATUS_FORMAT); /* the reader sees the name twice */
    assert_non_null(strstr(note.text, "duplicate"));
    gguf_write_destroy(&w);
    assert_null(w);
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    long n_live = mem_n_live(), n = 1;
    for (;; n++) {
        mem_fail_from(n);
        enum status status = write_file(NULL);
        mem_fail_from(0);
        assert_int_equal(mem_n_live(), n_live);
        if (!status) break;
        assert_int_equal(status, STATUS_NOMEM);
        assert_true(n < 200);
    }
    assert_true(n > 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
