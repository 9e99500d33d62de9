#include "base/clock.h"

#include "support/test.h"

static void it_never_goes_back(void **state) {
    (void)state;
    int64_t last_ns = clock_now_ns(), first_ns = last_ns;
    for (int i = 0; i < 100000; i++) {
        int64_t now_ns = clock_now_ns();
        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
    assert_true(last_ns > first_ns);
}

static void tests_may_hold_it(void **state) {
    (void)state;
    int64_t fake_ns = 5;
    clock_set_fake(&fake_ns);
    assert_int_equal(clock_now_ns(), 5);
    fake_ns = 12345678901234;
    assert_int_equal(clock_now_ns(), 12345678901234);
    clock_set_fake(NULL);
    assert_int_not_equal(clock_now_ns(), 12345678901234);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_never_goes_back),
        cmocka_unit_test(tests_may_hold_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
