#include "api/api_rate.h"

#include <stdlib.h>

#include "support/test.h"

#define SECOND_NS INT64_C(1000000000)

static void a_minute_may_be_used_at_once(void **state) {
    struct api_rate rate;
    (void)state;
    api_rate_init(&rate, 60, 5 * SECOND_NS);
    assert_int_equal(api_rate_wait_ns(&rate, 5 * SECOND_NS), 0);
    api_rate_use(&rate, 59, 5 * SECOND_NS);
    assert_int_equal(api_rate_wait_ns(&rate, 5 * SECOND_NS), 0);
    api_rate_use(&rate, 1, 5 * SECOND_NS);
    assert_true(api_rate_wait_ns(&rate, 5 * SECOND_NS) > 0);
    assert_int_equal(api_rate_wait_ns(&rate, 6 * SECOND_NS), 0);
}

/* Who has used 30 more than there were waits for 30 to come, and no second longer. */
static void what_was_used_too_much_is_waited_for(void **state) {
    struct api_rate rate;
    (void)state;
    api_rate_init(&rate, 60, 0);
    api_rate_use(&rate, 90, 0);
    assert_true(llabs(api_rate_wait_ns(&rate, 0) - 30 * SECOND_NS) < 1000);
    assert_true(llabs(api_rate_wait_ns(&rate, 20 * SECOND_NS) - 10 * SECOND_NS) < 1000);
    assert_int_equal(api_rate_wait_ns(&rate, 30 * SECOND_NS + 1000), 0);
}

static void no_more_than_a_minute_is_saved(void **state) {
    struct api_rate rate;
    (void)state;
    api_rate_init(&rate, 60, 0);
    api_rate_use(&rate, 61, 3600 * SECOND_NS);
    assert_true(llabs(api_rate_wait_ns(&rate, 3600 * SECOND_NS) - SECOND_NS) < 1000);
}

static void without_a_limit_nobody_waits(void **state) {
    struct api_rate rate;
    (void)state;
    api_rate_init(&rate, 0, 0);
    api_rate_use(&rate, 1e12, 0);
    assert_int_equal(api_rate_wait_ns(&rate, 0), 0);
    api_rate_change(&rate, 60, SECOND_NS);
    assert_int_equal(api_rate_wait_ns(&rate, SECOND_NS), 0);
}

static void another_limit_forgets_nothing(void **state) {
    struct api_rate rate;
    (void)state;
    api_rate_init(&rate, 60, 0);
    api_rate_use(&rate, 100, 0);
    api_rate_change(&rate, 120, 0); /* 20 are left of it */
    assert_int_equal(api_rate_wait_ns(&rate, 0), 0);
    api_rate_change(&rate, 60, 0);
    assert_true(llabs(api_rate_wait_ns(&rate, 0) - 40 * SECOND_NS) < 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_minute_may_be_used_at_once),   cmocka_unit_test(what_was_used_too_much_is_waited_for),
        cmocka_unit_test(no_more_than_a_minute_is_saved), cmocka_unit_test(without_a_limit_nobody_waits),
        cmocka_unit_test(another_limit_forgets_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
