#include "cmd/kv_type.h"

#include <string.h>

#include "support/test.h"

static void names_are_those_of_types(void **state) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } known[] = {{"int8", DTYPE_I8}, {"q8_0", DTYPE_Q8_0}, {"f16", DTYPE_F16}, {"f32", DTYPE_F32}};
    struct status_note note = {0};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        enum dtype dtype = DTYPE_N;
        assert_int_equal(kv_type_parse("--kv", known[i].name, &dtype, &note), STATUS_OK);
        assert_int_equal(dtype, known[i].dtype);
        assert_string_equal(kv_type_name(dtype), known[i].name);
    }
    assert_null(kv_type_name(DTYPE_BF16));
}

/* What other servers take is refused with a reason and what to use instead. */
static void foreign_types_name_ours(void **state) {
    static const char *const names[] = {"fp8",  "fp8_e4m3", "fp8_e5m2", "fp8_inc", "q4_0", "q4_1",
                                        "q5_0", "q5_1",     "iq4_nl",   "nvfp4",   "bf16", "bfloat16"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct status_note note = {0};
        enum dtype dtype;
        assert_int_equal(kv_type_parse("--kv-cache-dtype", names[i], &dtype, &note), STATUS_INVALID);
        assert_non_null(strstr(note.text, "--kv-cache-dtype"));
        assert_non_null(strstr(note.text, names[i]));
        assert_non_null(strstr(note.text, "q8_0"));
        assert_true(strlen(note.text) < STATUS_NOTE_MAX_BYTES - 1); /* nothing is cut off */
    }
    struct status_note note = {0};
    enum dtype dtype;
    assert_int_equal(kv_type_parse("--kv", "Q8_0", &dtype, &note), STATUS_INVALID);
    assert_non_null(strstr(note.text, "known: int8, q8_0, f16, f32"));
}

static void heads_must_fit_blocks(void **state) {
    struct status_note note = {0};
    static struct model_sizes sizes;
    (void)state;
    assert_int_equal(kv_type_check_head("--kv", DTYPE_Q8_0, 96, &note), STATUS_OK);
    assert_int_equal(kv_type_check_head("--kv", DTYPE_I8, 80, &note), STATUS_OK);
    assert_int_equal(kv_type_check_head("--kv", DTYPE_Q8_0, 80, &note), STATUS_INVALID);
    assert_string_equal(note.text, "attention.key_length 80: --kv q8_0 needs a multiple of 32; int8 takes such heads, "
                                   "or f16");
    assert_int_equal(model_sizes_from_text(&sizes, "layers=2,kv_heads=1,head_dim=48", &note), STATUS_OK);
    assert_int_equal(kv_type_check_sizes("--kv", DTYPE_Q8_0, &sizes, &note), STATUS_INVALID);
    assert_int_equal(kv_type_check_sizes("--kv", DTYPE_F16, &sizes, &note), STATUS_OK);
    assert_int_equal(model_sizes_from_text(&sizes, "layers=2,heads=16,latent=576", &note), STATUS_OK);
    assert_int_equal(kv_type_check_sizes("--kv", DTYPE_Q8_0, &sizes, &note), STATUS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_those_of_types),
                                       cmocka_unit_test(foreign_types_name_ours),
                                       cmocka_unit_test(heads_must_fit_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
