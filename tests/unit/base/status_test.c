#include "base/status.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/utf8.h"
#include "support/test.h"

static void every_status_has_its_own_text(void **state) {
    (void)state;
    static const enum status all[] = {
#define XX(name, text) STATUS_##name,
        STATUS_MAP(XX)
#undef XX
    };
    size_t n = sizeof all / sizeof all[0];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) assert_string_not_equal(status_text(all[i]), status_text(all[j]));
    assert_int_equal(STATUS_OK, 0);
    assert_string_equal(status_text((enum status)n), "unknown status");
    assert_string_equal(status_text((enum status) - 1), "unknown status");
}

static void a_note_says_what_it_was_told(void **state) {
    (void)state;
    struct status_note note;
    assert_int_equal(status_fail(&note, STATUS_FORMAT, "field %s: %d", "x", 7), STATUS_FORMAT);
    assert_string_equal(note.text, "field x: 7");
    status_note_prefix(&note, "a.gguf");
    assert_string_equal(note.text, "a.gguf: field x: 7");
    assert_int_equal(status_fail(NULL, STATUS_IO, "%d", 1), STATUS_IO);
    status_note_prefix(NULL, "a");
}

static void assert_is_line(const struct status_note *note) {
    size_t n_bytes = strlen(note->text);
    assert_true(n_bytes < sizeof note->text);
    assert_int_equal(utf8_valid_prefix(note->text, n_bytes), n_bytes);
    for (size_t i = 0; i < n_bytes; i++) assert_true((unsigned char)note->text[i] >= 0x20 && note->text[i] != 0x7f);
}

static void controls_and_bad_bytes_become_question_marks(void **state) {
    (void)state;
    static const struct {
        const char *quoted, *text;
    } cases[] = {
        {"tab\tnew\nline", "tab?new?line"},
        {"\x1b[31mred", "?[31mred"},
        {"\x7f", "?"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"caf\xc3", "caf?"},
        {"\xff\xfe", "??"},
        {"\xc2\x9b"
         "31m",
         "??31m"}, /* the escape sequence's one-character form */
        {"a\xe2\x80\xa8"
         "b",
         "a???b"},               /* a line separator */
        {"\xed\xa0\x80", "???"}, /* half of a surrogate pair */
    };
    struct status_note note;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(status_fail(&note, STATUS_IO, "%s", cases[i].quoted), STATUS_IO);
        assert_string_equal(note.text, cases[i].text);
        status_note_prefix(&note, cases[i].quoted);
        assert_is_line(&note);
        assert_int_equal(strncmp(note.text, cases[i].text, strlen(cases[i].text)), 0);
    }
}

static void long_texts_are_cut_between_characters(void **state) {
    (void)state;
    for (int n_before = 0; n_before < 4; n_before++) {
        char text[600] = "";
        for (int i = 0; i < n_before; i++) strcat(text, "x");
        while (strlen(text) < 500) strcat(text, "\xf0\x9f\xa6\x99");
        struct status_note note;
        assert_int_equal(status_fail(&note, STATUS_IO, "%s", text), STATUS_IO);
        assert_is_line(&note);
        size_t n_bytes = strlen(note.text);
        assert_true(n_bytes > sizeof note.text - 8);
        assert_string_equal(note.text + n_bytes - 3, "...");
        assert_memory_equal(note.text, text, n_bytes - 3);
        status_note_prefix(&note, "file");
        assert_is_line(&note);
        assert_string_equal(note.text + strlen(note.text) - 3, "...");
    }
    char exact[STATUS_NOTE_MAX_BYTES];
    memset(exact, 'y', sizeof exact);
    exact[sizeof exact - 1] = 0;
    struct status_note note;
    assert_int_equal(status_fail(&note, STATUS_IO, "%s", exact), STATUS_IO);
    assert_string_equal(note.text, exact);
}

static void a_broken_requirement_aborts_and_says_where(void **state) {
    (void)state;
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipe_ends[1], STDERR_FILENO);
        REQUIRE(1 == 1);
        REQUIRE(pipe_ends[0] < 0);
        _exit(0);
    }
    close(pipe_ends[1]);
    char line[400] = "";
    size_t n = 0;
    for (ssize_t got; n < sizeof line - 1 && (got = read(pipe_ends[0], line + n, sizeof line - 1 - n)) > 0;)
        n += (size_t)got;
    close(pipe_ends[0]);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
    assert_non_null(strstr(line, "kvick: BUG at "));
    assert_non_null(strstr(line, "status_test.c:"));
    assert_non_null(strstr(line, "pipe_ends[0] < 0"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_text),
        cmocka_unit_test(a_note_says_what_it_was_told),
        cmocka_unit_test(controls_and_bad_bytes_become_question_marks),
        cmocka_unit_test(long_texts_are_cut_between_characters),
        cmocka_unit_test(a_broken_requirement_aborts_and_says_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
