#include "base/progress.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "support/test.h"

static int64_t now_ns;

static int fake_clock(void **state) {
    (void)state;
    now_ns = 5000000000;
    clock_set_fake(&now_ns);
    return 0;
}

static int real_clock(void **state) {
    (void)state;
    clock_set_fake(NULL);
    return 0;
}

static void the_line_says_share_rate_and_rest(void **state) {
    (void)state;
    struct progress progress;
    char line[100];
    progress_start(&progress, "Q4_0", 4000000000);
    now_ns += 2000000000;
    assert_int_equal(progress_add(&progress, 1000000000, NULL), STATUS_OK);
    progress_format(&progress, now_ns, line, sizeof line);
    assert_string_equal(line, "Q4_0  [#######.......................]  25 %  500 MB/s  6 s left");
    progress_end(&progress);
}

static void more_than_all_is_all(void **state) {
    (void)state;
    struct progress progress;
    char line[100], narrow[12];
    progress_start(&progress, "x", 10);
    assert_int_equal(progress_add(&progress, 7, NULL), STATUS_OK);
    assert_int_equal(progress_add(&progress, 70, NULL), STATUS_OK);
    now_ns += 1000000000;
    progress_format(&progress, now_ns, line, sizeof line);
    assert_non_null(strstr(line, "100 %"));
    progress_format(&progress, now_ns, narrow, sizeof narrow);
    assert_int_equal(strlen(narrow), sizeof narrow - 1);
    progress_end(&progress);
}

static void nothing_to_do_is_done(void **state) {
    (void)state;
    struct progress progress;
    char line[100];
    progress_start(&progress, "x", 0);
    progress_format(&progress, now_ns, line, sizeof line);
    assert_non_null(strstr(line, "100 %"));
    progress_end(&progress);
}

static void a_signal_asks_to_stop(void **state) {
    (void)state;
    struct progress progress;
    struct status_note note;
    progress_start(&progress, "x", 10);
    progress_stop_on_signals();
    assert_int_equal(progress_add(&progress, 1, &note), STATUS_OK);
    raise(SIGTERM);
    assert_int_equal(progress_add(&progress, 1, &note), STATUS_CANCELLED);
    assert_non_null(strstr(note.text, "stopped"));
    progress_end(&progress);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_line_says_share_rate_and_rest, fake_clock, real_clock),
        cmocka_unit_test_setup_teardown(more_than_all_is_all, fake_clock, real_clock),
        cmocka_unit_test_setup_teardown(nothing_to_do_is_done, fake_clock, real_clock),
        cmocka_unit_test(a_signal_asks_to_stop), /* the last one: nothing takes that back */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
