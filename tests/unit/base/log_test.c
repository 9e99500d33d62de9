#include "base/log.h"

#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "support/test.h"

static char written[8192];

/* Calls log_line with stderr going to a pipe; what arrived is in written. */
static void log_into_pipe(enum log_level level, const char *text) {
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    log_line(level, "%s", text);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(ends[1]);
    ssize_t n = read(ends[0], written, sizeof written - 1);
    close(ends[0]);
    written[n > 0 ? n : 0] = 0;
}

static void levels_choose_what_is_written(void **state) {
    (void)state;
    log_set_level(LOG_WARN);
    log_into_pipe(LOG_ERROR, "x");
    assert_string_equal(written, "kvick: error: x\n");
    log_into_pipe(LOG_WARN, "x");
    assert_string_equal(written, "kvick: warning: x\n");
    log_into_pipe(LOG_INFO, "x");
    assert_string_equal(written, "");
    log_set_level(LOG_DEBUG);
    log_into_pipe(LOG_INFO, "x");
    assert_string_equal(written, "kvick: x\n");
    log_into_pipe(LOG_DEBUG, "x");
    assert_string_equal(written, "kvick: debug: x\n");
    log_set_level(LOG_ERROR);
    log_into_pipe(LOG_WARN, "x");
    assert_string_equal(written, "");
}

static void a_line_stays_a_line(void **state) {
    (void)state;
    log_into_pipe(LOG_ERROR, "a\nkvick: error: forged\x1b[0m");
    assert_string_equal(written, "kvick: error: a?kvick: error: forged?[0m\n");
    char text[3000];
    for (size_t n = 1000; n < sizeof text; n += n < 1030 ? 1 : 500) {
        memset(text, 'x', n);
        text[n] = 0;
        log_into_pipe(LOG_ERROR, text);
        size_t n_written = strlen(written);
        assert_true(n_written <= 1024);
        assert_ptr_equal(strchr(written, '\n'), written + n_written - 1);
        assert_int_equal(strspn(written + 14, "x"), n_written - 15);
    }
}

static void json_lines_are_json(void **state) {
    (void)state;
    log_set_format(LOG_JSON);
    log_into_pipe(LOG_ERROR, "a \"quote\" \\ and\na line");
    assert_non_null(strstr(written, "\"level\": \"error\", \"message\": \"a \\\"quote\\\" \\\\ and?a line\"}\n"));
    assert_memory_equal(written, "{\"time_ms\": ", 12);
    log_into_pipe(LOG_ERROR, "\xc3\xa9 \xff \xc3\xa9");
    assert_non_null(strstr(written, "\"message\": \"\xc3\xa9 ? \xc3\xa9\"}\n"));
    char text[3000];
    for (size_t n = 900; n < 1100; n++) { /* cut, never in the middle of an escape or a character */
        memset(text, n & 1 ? '"' : 'x', n);
        memcpy(text + n, "\xc3\xa9", 3);
        log_into_pipe(LOG_ERROR, text);
        size_t n_written = strlen(written);
        assert_true(n_written <= 1024 && strcmp(written + n_written - 3, "\"}\n") == 0);
        size_t n_backslashes = 0;
        while (written[n_written - 4 - n_backslashes] == '\\') n_backslashes++;
        assert_int_equal(n_backslashes % 2, 0);
        assert_int_equal(utf8_valid_prefix(written, n_written), n_written);
    }
    log_set_format(LOG_TEXT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_choose_what_is_written),
        cmocka_unit_test(a_line_stays_a_line),
        cmocka_unit_test(json_lines_are_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
