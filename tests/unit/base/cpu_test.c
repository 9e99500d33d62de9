#include "base/cpu.h"

#include <string.h>

#include "support/test.h"

static void scalar_is_always_there(void **state) {
    (void)state;
    assert_true(cpu_detect() & CPU_TIER_scalar);
    assert_in_range(cpu_n_usable(), 1, 4096);
}

static void a_mask_keeps_the_tier_and_the_worse_ones(void **state) {
    unsigned all = CPU_TIER_scalar | CPU_TIER_avx2 | CPU_TIER_avx512vnni, tiers = 0;
    (void)state;
    assert_int_equal(cpu_mask(all, "avx2", &tiers, NULL), STATUS_OK);
    assert_int_equal(tiers, CPU_TIER_scalar | CPU_TIER_avx2);
    assert_int_equal(cpu_mask(all, "scalar", &tiers, NULL), STATUS_OK);
    assert_int_equal(tiers, CPU_TIER_scalar);
    assert_int_equal(cpu_mask(all, "avx512vnni", &tiers, NULL), STATUS_OK);
    assert_int_equal(tiers, all);
}

static void errors_name_the_tier_and_what_is_known(void **state) {
    static const char *const unknown[] = {"", "AVX2", "avx", "avx2 ", "avx512", "frob"};
    unsigned tiers = 99;
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct status_note note = {0};
        assert_int_equal(cpu_mask(cpu_detect(), unknown[i], &tiers, &note), STATUS_INVALID);
        assert_non_null(strstr(note.text, unknown[i]));
        for (int t = 0; t < cpu_n_tiers(); t++) assert_non_null(strstr(note.text, cpu_tier_name(t)));
    }
    struct status_note note = {0};
    assert_int_equal(cpu_mask(CPU_TIER_scalar, "avx2", &tiers, &note), STATUS_INVALID);
    assert_non_null(strstr(note.text, "'avx2': this CPU does not have it"));
    assert_int_equal(tiers, 99);
}

static void tiers_have_names_and_texts(void **state) {
    (void)state;
    for (int i = 0; i < cpu_n_tiers(); i++) {
        assert_true(strlen(cpu_tier_name(i)) > 2 && strlen(cpu_tier_text(i)) > 5);
        for (int j = 0; j < i; j++) assert_string_not_equal(cpu_tier_name(i), cpu_tier_name(j));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalar_is_always_there),
        cmocka_unit_test(a_mask_keeps_the_tier_and_the_worse_ones),
        cmocka_unit_test(errors_name_the_tier_and_what_is_known),
        cmocka_unit_test(tiers_have_names_and_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
