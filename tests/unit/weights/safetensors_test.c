#include "weights/safetensors.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "support/test.h"

/* Header length, header, n_data zero bytes: on the heap in its exact size, so that ASan sees a read past its end. */
static uint8_t *make_file(const char *header, size_t header_bytes, size_t n_data, size_t *out_bytes) {
    uint64_t length = header_bytes;
    uint8_t *bytes = mem_alloc(8 + header_bytes + n_data);
    assert_non_null(bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, header_bytes);
    *out_bytes = 8 + header_bytes + n_data;
    return bytes;
}

static enum status open_header(const char *header, size_t n_data, struct status_note *note) {
    size_t n_bytes;
    uint8_t *bytes = make_file(header, strlen(header), n_data, &n_bytes);
    struct safetensors *file;
    *note = (struct status_note){0};
    enum status status = safetensors_open_bytes(&file, bytes, n_bytes, note);
    safetensors_close(&file);
    mem_free(bytes);
    return status;
}

#define GOOD                                                                                                           \
    "{\"__metadata__\":{\"format\":\"pt\"},"                                                                           \
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[16,28]},"                                             \
    "\"a\\u00e9\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"                                          \
    "\"m\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[28,29]},"                                                \
    "\"z\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[29,29]}}  "

static void values_come_out(void **state) {
    (void)state;
    size_t n_bytes;
    uint8_t *bytes = make_file(GOOD, strlen(GOOD), 29, &n_bytes);
    struct safetensors *file;
    struct status_note note = {0};
    if (safetensors_open_bytes(&file, bytes, n_bytes, &note)) fail_msg("%s", note.text);
    assert_int_equal(safetensors_n_tensors(file), 4);
    const struct safetensors_tensor *a = safetensors_tensor_find(file, "a\xc3\xa9");
    assert_ptr_equal(a, safetensors_tensor_at(file, 0)); /* in the order of the data */
    assert_int_equal(a->dtype, DTYPE_F32);
    assert_ptr_equal(a->bytes, bytes + safetensors_data_off(file));
    const struct safetensors_tensor *b = safetensors_tensor_find(file, "b");
    assert_int_equal(b->dtype, DTYPE_BF16);
    assert_string_equal(b->type, "BF16");
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->shape[0], 3);
    assert_int_equal(b->shape[1], 2);
    assert_int_equal(b->shape[2], 1);
    assert_int_equal(b->n_bytes, 12);
    const struct safetensors_tensor *m = safetensors_tensor_find(file, "m");
    assert_false(m->is_usable);
    assert_int_equal(m->n_dims, 0);
    assert_int_equal(safetensors_tensor_find(file, "z")->n_bytes, 0);
    assert_null(safetensors_tensor_find(file, "__metadata__"));
    const char *key, *text;
    assert_int_equal(safetensors_n_metadata(file), 1);
    safetensors_metadata_at(file, 0, &key, &text);
    assert_string_equal(key, "format");
    assert_string_equal(text, "pt");
    safetensors_close(&file);
    mem_free(bytes);
    assert_int_equal(open_header("{}", 0, &note), STATUS_OK);
}

#define ENTRY(dtype, shape, range) "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" range "}}"
#define T4 "{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"

static void wrong_claims_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *header, *word; /* the data has 16 bytes */
    } cases[] = {
        {"", "header"},
        {" " ENTRY("\"F32\"", "[4]", "[0,16]"), "begin"},
        {"[]", "begin"},
        {"{", "header"},
        {"{}", "trailing"},
        {"{}x", "follows"},
        {ENTRY("\"F32\"", "[4]", "[0,16]") "}", "follows"},
        {"{\"t\":" T4 ",}", "no name"},
        {"{\"t\" " T4 "}", "no ':'"},
        {"{\"t\":" T4 " \"u\":" T4 "}", "no ','"},
        {"{\"t\":" T4, "no ','"},
        {"{\"t\":{\"dtype\":\"F32\"", "does not end"},
        {"{\"t\":{\"dtype\":\"F32", "does not end"},
        {"{\"t", "no name"},
        {"{\"t\\", "no name"},
        {"{t:" T4 "}", "no name"},
        {"{\"\":" T4 "}", "is empty"},
        {"{\"\\u0000\":" T4 "}", "name at byte 9"},
        {"{\"\\u001b\":" T4 "}", "control"},
        {"{\"\\ud800\":" T4 "}", "name at byte 9"},
        {"{\"t\":1}", "no object"},
        {"{\"t\":null}", "no object"},
        {"{\"t\":[[[[]]]]}", "no object"},
        {"{\"t\":{\"a\":[[]]}}", "too deep"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]]}", "'t'"},
        {"{\"t\":{]}", "'t'"},
        {"{\"t\":{}}", "dtype"},
        {"{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", "'t'"},
        {"{\"t\":" T4 ",\"t\":" T4 "}", "duplicate"},
        {"{\"t\":" T4 ",\"\\u0074\":" T4 "}", "duplicate"},
        {"{\"__metadata__\":{},\"__metadata__\":{},\"t\":" T4 "}", "__metadata__: duplicate"},
        {"{\"__metadata__\":{\"a\":1},\"t\":" T4 "}", "__metadata__"},
        {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"},\"t\":" T4 "}", "__metadata__"},
        {ENTRY("1", "[4]", "[0,16]"), "dtype is no text"},
        {ENTRY("\"f32\"", "[4]", "[0,16]"), "dtype 'f32'"},
        {ENTRY("\"\\u009b\"", "[4]", "[0,16]"), "dtype"},
        {ENTRY("\"F32\"", "4", "[0,16]"), "shape"},
        {ENTRY("\"F32\"", "[4.0]", "[0,16]"), "shape[0]"},
        {ENTRY("\"F32\"", "[true]", "[0,16]"), "shape[0]"},
        {ENTRY("\"F32\"", "[-4]", "[0,16]"), "shape[0]"},
        {ENTRY("\"F32\"", "[-2,-2]", "[0,16]"), "shape[0]"},
        {ENTRY("\"F32\"", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), "9 dimensions"},
        {ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,0]"), "too many"},
        {ENTRY("\"F32\"", "[4611686018427387904]", "[0,0]"), "too many"},
        {ENTRY("\"F32\"", "[4611686018427387908]", "[0,16]"), "too many"},
        {ENTRY("\"F32\"", "[9223372036854775808]", "[0,16]"), "too big integer"},
        {ENTRY("\"F32\"", "[5]", "[0,16]"), "ask for 20"},
        {ENTRY("\"F32\"", "[0]", "[0,16]"), "ask for 0"},
        {ENTRY("\"F4\"", "[31]", "[0,15]"), "data_offsets"},
        {ENTRY("\"F32\"", "[4]", "16"), "no pair"},
        {ENTRY("\"F32\"", "[4]", "[0,16,16]"), "no pair"},
        {ENTRY("\"F32\"", "[4]", "[0,\"16\"]"), "no integers"},
        {ENTRY("\"F32\"", "[4]", "[16,0]"), "no range"},
        {ENTRY("\"F32\"", "[4]", "[-16,0]"), "no range"},
        {ENTRY("\"F32\"", "[4]", "[1,17]"), "end past"},
        {ENTRY("\"F32\"", "[4]", "[9223372036854775791,9223372036854775807]"), "end past"},
        {ENTRY("\"F32\"", "[3]", "[0,12]"), "4 trailing"},
        {ENTRY("\"F32\"", "[3]", "[4,16]"), "hole"},
        {"{\"t\":" T4 ",\"u\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", "overlap"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct status_note note;
        long n_live = mem_n_live();
        enum status status = open_header(cases[i].header, 16, &note);
        if (status != STATUS_FORMAT || !strstr(note.text, cases[i].word))
            fail_msg("%s: %s, '%s' holds no '%s'", cases[i].header, status_text(status), note.text, cases[i].word);
        assert_int_equal(mem_n_live(), n_live);
    }
}

static void lengths_are_checked(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0, 1, 100000001, (uint64_t)1 << 63, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        size_t n_bytes;
        uint8_t *bytes = make_file(GOOD, strlen(GOOD), 29, &n_bytes);
        memcpy(bytes, &lengths[i], 8);
        struct safetensors *file;
        struct status_note note = {0};
        assert_int_equal(safetensors_open_bytes(&file, bytes, n_bytes, &note), STATUS_FORMAT);
        assert_non_null(strstr(note.text, "header"));
        mem_free(bytes);
    }
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    size_t n_bytes;
    uint8_t *bytes = make_file(GOOD, strlen(GOOD), 29, &n_bytes);
    for (size_t n = 0; n < n_bytes; n++) {
        uint8_t *cut = mem_alloc(n);
        assert_non_null(cut);
        memcpy(cut, bytes, n);
        struct safetensors *file;
        struct status_note note = {0};
        assert_int_equal(safetensors_open_bytes(&file, cut, n, &note), STATUS_FORMAT);
        assert_true(note.text[0] != 0);
        mem_free(cut);
    }
    mem_free(bytes);
}

/* What a hostile header of many megabytes can ask for. */
static void large_headers_are_bounded(void **state) {
    (void)state;
    struct str header;
    struct status_note note;
    str_init(&header, 64 << 20);
    assert_int_equal(str_append_text(&header, "{\"t\":{\"shape\":["), STATUS_OK);
    for (int i = 0; i < 1 << 20; i++) assert_int_equal(str_append_text(&header, "0,"), STATUS_OK);
    assert_int_equal(str_append_text(&header, "0]}}"), STATUS_OK);
    assert_int_equal(open_header(header.ptr, 0, &note), STATUS_FORMAT);
    assert_non_null(strstr(note.text, "'t'"));
    str_clear(&header);
    for (int i = 0; i < 1 << 20; i++) assert_int_equal(str_append_text(&header, "{\"a\":"), STATUS_OK);
    assert_int_equal(open_header(header.ptr, 0, &note), STATUS_FORMAT);
    assert_non_null(strstr(note.text, "too deep"));
    str_clear(&header);
    assert_int_equal(str_append_text(&header, "{\"__metadata__\":{\"a\":\""), STATUS_OK);
    for (int i = 0; i < 3 << 20; i++) assert_int_equal(str_append_text(&header, "x"), STATUS_OK);
    assert_int_equal(str_append_text(&header, "\"}}"), STATUS_OK);
    assert_int_equal(open_header(header.ptr, 0, &note), STATUS_FORMAT);
    assert_non_null(strstr(note.text, "__metadata__"));
    str_clear(&header);
    for (int i = 0; i <= SAFETENSORS_MAX_TENSORS; i++)
        assert_int_equal(str_append_fmt(&header, "%s\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
                                        i ? "," : "{", i),
                         STATUS_OK);
    assert_int_equal(open_header(header.ptr, 0, &note), STATUS_FORMAT);
    assert_non_null(strstr(note.text, "more than 131072 tensors"));
    str_deinit(&header);
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    size_t n_bytes;
    uint8_t *bytes = make_file(GOOD, strlen(GOOD), 29, &n_bytes);
    long n_live = mem_n_live(), n = 1;
    for (;; n++) {
        struct safetensors *file;
        mem_fail_from(n);
        enum status status = safetensors_open_bytes(&file, bytes, n_bytes, NULL);
        mem_fail_from(0);
        safetensors_close(&file);
        assert_int_equal(mem_n_live(), n_live);
        if (!status) break;
        assert_int_equal(status, STATUS_NOMEM);
        assert_true(n < 100);
    }
    assert_true(n > 8);
    mem_free(bytes);
}

static void golden_models_open(void **state) {
    (void)state;
    struct safetensors *file;
    struct status_note note = {0};
    if (safetensors_open(&file, test_golden_file("tiny/llama/model.safetensors"), &note)) fail_msg("%s", note.text);
    const struct safetensors_tensor *t = safetensors_tensor_find(file, "model.layers.3.mlp.down_proj.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, DTYPE_BF16);
    assert_int_equal(t->shape[0], 128);
    assert_int_equal(t->shape[1], 256);
    safetensors_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_out),           cmocka_unit_test(wrong_claims_are_refused),
        cmocka_unit_test(lengths_are_checked),       cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(large_headers_are_bounded), cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(golden_models_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
