#include "base/utf8.h"

#include <string.h>

#include "support/test.h"

static void every_code_point_survives(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= 0x110000; code++) {
        char bytes[UTF8_MAX_BYTES];
        int n = utf8_encode(code, bytes);
        if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
            assert_int_equal(n, 0);
            continue;
        }
        uint32_t back;
        assert_int_equal(utf8_decode(bytes, (size_t)n, &back), n);
        assert_int_equal(back, code);
        for (int cut = 1; cut < n; cut++) {
            assert_int_equal(utf8_decode(bytes, (size_t)cut, NULL), 0);
            assert_int_equal(utf8_open_tail(bytes, (size_t)cut), cut);
        }
        assert_int_equal(utf8_open_tail(bytes, (size_t)n), 0);
    }
}

static void bad_bytes_are_found(void **state) {
    (void)state;
    static const char *const bad[] = {"\x80", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xff", "a\xc3("};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_true(utf8_valid_prefix(bad[i], strlen(bad[i])) < strlen(bad[i]));
    assert_int_equal(utf8_valid_prefix("a\xc3\xa9\xf0\x9f\xa6\x99z", 8), 8);
    assert_int_equal(utf8_open_tail("\xed\xa0", 2), 0); /* the start of a surrogate can never become a character */
    assert_int_equal(utf8_open_tail("\xf0\x9f\xa6", 3), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_survives),
        cmocka_unit_test(bad_bytes_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
