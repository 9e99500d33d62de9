#include "weights/weight_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "support/test.h"

#define HEADER                                                                                                         \
    "{\"w\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[0,12]},"                                             \
    "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[12,16]},"                                            \
    "\"deep\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[16,20]}}"

static char folder[64];
static char path[128];

static int make_model(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kvick-weight-store-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *out = fopen(path, "wb");
    if (!out) return -1;
    uint64_t header_bytes = sizeof HEADER - 1;
    fwrite(&header_bytes, 8, 1, out);
    fputs(HEADER, out);
    for (int i = 0; i < 20; i++) fputc(i, out);
    return fclose(out);
}

static int remove_model(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void expect_model(const char *model_path) {
    struct weight_store *store;
    struct weight_tensor w;
    struct status_note note = {0};
    if (weight_store_open(&store, model_path, &note)) fail_msg("%s", note.text);
    assert_null(weight_store_gguf(store));
    assert_non_null(weight_store_safetensors(store));
    assert_int_equal(weight_store_n_tensors(store), 3);
    assert_int_equal(weight_store_find(store, "w", &w, NULL), STATUS_OK);
    assert_int_equal(w.dtype, DTYPE_BF16);
    assert_int_equal(w.name_bytes, 1);
    assert_int_equal(w.n_dims, 2);
    assert_int_equal(w.dims[0], 2); /* contiguous first, the reverse of the file's shape */
    assert_int_equal(w.dims[1], 3);
    assert_int_equal(w.dims[2], 1);
    assert_int_equal(w.n_bytes, 12);
    assert_int_equal(w.bytes[11], 11);
    assert_true(weight_store_has(store, "mask"));
    assert_int_equal(weight_store_find(store, "mask", &w, &note), STATUS_INVALID);
    assert_string_equal(note.text, "tensor 'mask': type BOOL is not supported");
    assert_int_equal(weight_store_at(store, 2, &w, &note), STATUS_INVALID);
    assert_string_equal(note.text, "tensor 'deep': 5 dimensions are more than 4");
    weight_store_close(&store);
    assert_null(store);
}

static void file_and_folder_are_the_same_model(void **state) {
    (void)state;
    expect_model(path);
    expect_model(folder);
}

static void failures_leave_nothing(void **state) {
    (void)state;
    struct weight_store *store;
    struct status_note note = {0};
    long n_live = mem_n_live();
    assert_int_equal(weight_store_open(&store, "/nonexistent", &note), STATUS_IO);
    assert_int_equal(weight_store_open(&store, "/", &note), STATUS_IO);
    assert_non_null(strstr(note.text, "model.safetensors: cannot open"));
    for (long n = 1;; n++) {
        mem_fail_from(n);
        enum status status = weight_store_open(&store, path, NULL);
        mem_fail_from(0);
        weight_store_close(&store);
        assert_int_equal(mem_n_live(), n_live);
        if (!status) break;
        assert_int_equal(status, STATUS_NOMEM);
        assert_true(n < 50);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_and_folder_are_the_same_model),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
