#include "base/str.h"

#include <string.h>

#include "base/mem.h"
#include "support/test.h"

static void it_grows_and_stays_terminated(void **state) {
    (void)state;
    struct str str;
    str_init(&str, 100000);
    assert_string_equal(str.ptr, "");
    for (size_t i = 0; i < 5000; i++) {
        assert_int_equal(str_append(&str, "ab", 2), STATUS_OK);
        assert_int_equal(str.n_bytes, 2 * (i + 1));
        assert_int_equal(str.ptr[str.n_bytes], 0);
    }
    for (size_t i = 0; i < str.n_bytes; i++) assert_int_equal(str.ptr[i], i % 2 ? 'b' : 'a');
    str_deinit(&str);
    assert_string_equal(str.ptr, "");
    str_deinit(&str);
}

static void all_ways_to_append(void **state) {
    (void)state;
    struct str str;
    str_init(&str, 1000);
    assert_int_equal(str_append(&str, NULL, 0), STATUS_OK);
    assert_int_equal(str_append_text(&str, ""), STATUS_OK);
    assert_int_equal(str_append_text(&str, "x="), STATUS_OK);
    assert_int_equal(str_append_fmt(&str, "%d%s", 12, "!"), STATUS_OK);
    assert_string_equal(str.ptr, "x=12!");
    assert_int_equal(str_append_fmt(&str, "%500d", 7), STATUS_OK);
    assert_int_equal(str.n_bytes, 505);
    str_clear(&str);
    assert_string_equal(str.ptr, "");
    assert_int_equal(str_append(&str, "a\0b", 3), STATUS_OK);
    assert_int_equal(str.n_bytes, 3);
    assert_memory_equal(str.ptr, "a\0b", 4);
    str_deinit(&str);
}

static void the_bound_is_exact(void **state) {
    (void)state;
    for (size_t max = 0; max < 200; max++) {
        struct str str;
        str_init(&str, max);
        for (size_t i = 0; i < max; i++) assert_int_equal(str_append(&str, "z", 1), STATUS_OK);
        assert_int_equal(str_append(&str, "z", 1), STATUS_LIMIT);
        assert_int_equal(str_append(&str, "z", SIZE_MAX), STATUS_LIMIT);
        assert_int_equal(str_append_text(&str, "z"), STATUS_LIMIT);
        assert_int_equal(str_append_fmt(&str, "%d", 1), STATUS_LIMIT);
        assert_int_equal(str_append(&str, "", 0), STATUS_OK);
        assert_int_equal(str.n_bytes, max);
        assert_true(str.cap_bytes <= max + 1);
        str_deinit(&str);
    }
    struct str str;
    str_init(&str, SIZE_MAX);
    assert_int_equal(str_append(&str, "z", SIZE_MAX), STATUS_LIMIT);
    str_deinit(&str);
}

static void what_fails_changes_nothing(void **state) {
    (void)state;
    struct str str;
    long n_live = mem_n_live();
    str_init(&str, 1000);
    mem_fail_from(1);
    assert_int_equal(str_append_text(&str, "a"), STATUS_NOMEM);
    assert_null(str_take(&str));
    assert_string_equal(str.ptr, "");
    mem_fail_from(0);
    assert_int_equal(str_append_text(&str, "abc"), STATUS_OK);
    mem_fail_from(1);
    assert_int_equal(str_append_fmt(&str, "%100d", 1), STATUS_NOMEM);
    assert_string_equal(str.ptr, "abc");
    assert_int_equal(str.n_bytes, 3);
    mem_fail_from(0);
    str_deinit(&str);
    assert_int_equal(mem_n_live(), n_live);
}

static void take_gives_the_memory_away(void **state) {
    (void)state;
    struct str str;
    long n_live = mem_n_live();
    str_init(&str, 10);
    char *none = str_take(&str);
    assert_string_equal(none, "");
    mem_free(none);
    assert_int_equal(str_append_text(&str, "abc"), STATUS_OK);
    char *text = str_take(&str);
    assert_string_equal(text, "abc");
    assert_string_equal(str.ptr, "");
    assert_int_equal(str_append_text(&str, "0123456789"), STATUS_OK); /* the bound is kept */
    assert_int_equal(str_append_text(&str, "0"), STATUS_LIMIT);
    assert_string_equal(text, "abc");
    mem_free(text);
    str_deinit(&str);
    assert_int_equal(mem_n_live(), n_live);
}

static void counts_are_digits_only(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "", "-1", "+1", " 1", "1 ", "1.0", "0x1", "1e3", "x", "101", "99999999999999999999"};
    int64_t value = -5;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (str_read_count(wrong[i], 100, &value)) fail_msg("'%s' is taken", wrong[i]);
        assert_int_equal(value, -5);
    }
    assert_true(str_read_count("100", 100, &value) && value == 100);
    assert_true(str_read_count("007", 100, &value) && value == 7);
    assert_true(str_read_count("0", 0, &value) && value == 0);
    assert_false(str_read_count("1", 0, &value));
    assert_true(str_read_count("9223372036854775807", INT64_MAX, &value) && value == INT64_MAX);
    assert_false(str_read_count("9223372036854775808", INT64_MAX, &value));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_grows_and_stays_terminated),
        cmocka_unit_test(all_ways_to_append),
        cmocka_unit_test(the_bound_is_exact),
        cmocka_unit_test(what_fails_changes_nothing),
        cmocka_unit_test(take_gives_the_memory_away),
        cmocka_unit_test(counts_are_digits_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
