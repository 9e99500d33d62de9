#include "bench/trace.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "support/test.h"

#define HEADER "{\"kvick_trace\": 1, \"name\": \"t\"}\n"
#define PLAIN "{\"arrival_ms\": 5, \"prompt_tokens\": 10, \"output_tokens\": 3}\n"

static struct trace trace;
static struct status_note note;

static enum status read_text(const char *text) {
    char path[] = "/tmp/kvick-trace-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    note.text[0] = 0;
    enum status status = trace_read(&trace, path, &note);
    unlink(path);
    return status;
}

static void every_field_is_read(void **state) {
    (void)state;
    assert_int_equal(
        read_text("{\"kvick_trace\": 1, \"name\": \"all\", \"load\": 1.5}\n"
                  "{\"arrival_ms\": 0, \"prompt_ids\": [3, 1, 2], \"output_tokens\": 4, \"class\": \"batch\", "
                  "\"tenant\": \"a\", \"tenant_weight\": 3, \"priority\": -2, \"label\": \"l\", \"deadline_ms\": 500, "
                  "\"deadline_solo_x\": 2}\n"
                  "{\"arrival_ms\": 1.5, \"prompt_tokens\": 20, \"output_tokens\": 0, \"shared_id\": 7, "
                  "\"shared_tokens\": 16, \"cancel_ms\": 9}\n"
                  "{\"arrival_ms\": 1, \"after\": 0, \"prompt_tokens\": 6, \"output_tokens\": 5}\n"),
        STATUS_OK);
    assert_int_equal(trace.n_requests, 3);
    assert_true(trace.load == 1.5);
    assert_string_equal(trace.name, "all");
    const struct trace_request *r = trace.requests;
    assert_int_equal(r[0].n_prompt, 3);
    assert_int_equal(r[0].ids[0], 3);
    assert_int_equal(r[0].class_, REQUEST_BATCH);
    assert_string_equal(r[0].tenant, "a");
    assert_string_equal(r[0].label, "l");
    assert_true(r[0].tenant_weight == 3 && r[0].priority == -2 && r[1].tenant_weight == 0);
    assert_true(r[0].has_deadline && r[0].deadline_ms == 500 && r[0].deadline_solo_x == 2);
    assert_true(r[1].has_cancel && r[1].cancel_ms == 9 && !r[1].has_deadline);
    assert_int_equal(r[1].after, -1);
    assert_int_equal(r[2].after, 0);
    assert_int_equal(r[2].n_prompt, 3 + 4 + 6);
    assert_int_equal(trace.max_context, 20);
    trace_deinit(&trace);
}

static void refuses(const char *text, const char *line, const char *word) {
    enum status status = read_text(text);
    if (!status) fail_msg("taken: %s", text);
    if (!strstr(note.text, line) || !strstr(note.text, word))
        fail_msg("'%s' does not say '%s' and '%s'", note.text, line, word);
    assert_null(trace.requests);
}

static void what_is_wrong_is_named_with_its_line(void **state) {
    (void)state;
    refuses("", "holds no request", "");
    refuses(HEADER, "holds no request", "");
    refuses(PLAIN, "line 1", "kvick_trace");
    refuses("{\"kvick_trace\": 2}\n" PLAIN, "line 1", "kvick_trace");
    refuses("{\"kvick_trace\": 1, \"color\": 1}\n" PLAIN, "line 1", "color");
    refuses(HEADER PLAIN "{\"arrival_ms\": 5\n", "line 3", "column");
    refuses(HEADER PLAIN "\n" PLAIN, "line 3", "column");
    refuses(HEADER "[1]\n", "line 2", "no JSON object");
    refuses(HEADER "{\"arrival_ms\": 5, \"arrival_ms\": 6, \"prompt_tokens\": 1, \"output_tokens\": 1}\n", "line 2",
            "duplicate");
    refuses(HEADER "{\"prompt_tokens\": 10, \"output_tokens\": 3}\n", "line 2", "arrival_ms");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 10}\n", "line 2", "output_tokens");
    refuses(HEADER "{\"arrival_ms\": 5, \"output_tokens\": 10}\n", "line 2", "prompt_tokens");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 1, \"prompt_ids\": [1], \"output_tokens\": 1}\n", "line 2",
            "prompt_ids");
    refuses(HEADER "{\"arrival_ms\": -1, \"prompt_tokens\": 1, \"output_tokens\": 1}\n", "line 2", "arrival_ms");
    refuses(HEADER "{\"arrival_ms\": \"1\", \"prompt_tokens\": 1, \"output_tokens\": 1}\n", "line 2", "arrival_ms");
    refuses(HEADER PLAIN "{\"arrival_ms\": 4, \"prompt_tokens\": 1, \"output_tokens\": 1}\n", "line 3", "earlier");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 0, \"output_tokens\": 1}\n", "line 2", "0 is not within");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 1.5, \"output_tokens\": 1}\n", "line 2", "whole number");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_ids\": [], \"output_tokens\": 1}\n", "line 2", "prompt_ids");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_ids\": [-1], \"output_tokens\": 1}\n", "line 2", "prompt_ids");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 4, \"output_tokens\": 1, \"shared_id\": 1}\n", "line 2",
            "shared_tokens");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 4, \"output_tokens\": 1, \"shared_id\": 1, "
                   "\"shared_tokens\": 5}\n",
            "line 2", "more than prompt_tokens");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 4, \"output_tokens\": 1, \"after\": 0}\n", "line 2",
            "after");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 4, \"output_tokens\": 1, \"class\": \"vip\"}\n", "line 2",
            "class");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 4, \"output_tokens\": 1, \"speed\": 1}\n", "line 2",
            "speed");
    refuses(HEADER "{\"arrival_ms\": 5, \"prompt_tokens\": 16777216, \"output_tokens\": 1}\n", "line 2", "too long");
}

static void shared_tokens_are_shared_and_others_are_not(void **state) {
    (void)state;
    uint32_t a[30], b[30];
    assert_int_equal(read_text(HEADER "{\"arrival_ms\": 0, \"prompt_tokens\": 30, \"output_tokens\": 1, "
                                      "\"shared_id\": 1, \"shared_tokens\": 20}\n"
                                      "{\"arrival_ms\": 0, \"prompt_tokens\": 30, \"output_tokens\": 1, "
                                      "\"shared_id\": 1, \"shared_tokens\": 25}\n"),
                     STATUS_OK);
    trace_own_tokens(&trace, 0, 50000, a);
    trace_own_tokens(&trace, 1, 50000, b);
    assert_memory_equal(a, b, 20 * sizeof *a);
    assert_memory_not_equal(a + 20, b + 20, 5 * sizeof *a);
    for (int i = 0; i < 30; i++) assert_true(a[i] < 50000 && b[i] < 50000);
    trace_deinit(&trace);
}

static void ids_must_be_in_the_vocabulary(void **state) {
    (void)state;
    assert_int_equal(read_text(HEADER PLAIN "{\"arrival_ms\": 6, \"prompt_ids\": [7, 100], \"output_tokens\": 1}\n"),
                     STATUS_OK);
    assert_int_equal(trace_check_ids(&trace, 101, &note), STATUS_OK);
    assert_int_equal(trace_check_ids(&trace, 100, &note), STATUS_INVALID);
    assert_non_null(strstr(note.text, "line 3"));
    trace_deinit(&trace);
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    long n_live = mem_n_live();
    mem_fail_from(1);
    enum status status = read_text(HEADER PLAIN);
    mem_fail_from(0);
    assert_int_equal(status, STATUS_NOMEM);
    assert_int_equal(mem_n_live(), n_live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(what_is_wrong_is_named_with_its_line),
        cmocka_unit_test(shared_tokens_are_shared_and_others_are_not),
        cmocka_unit_test(ids_must_be_in_the_vocabulary),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
