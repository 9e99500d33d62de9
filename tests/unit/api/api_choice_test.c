/* What a choice makes of the model's words: whether calls one after the other are wanted, and what a stream keeps. */
#include "api/api_choice.h"

#include <string.h>

#include "api/api_response.h"
#include "base/mem.h"
#include "support/test.h"

static const char words[] = "Well.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\n"
                            "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";

struct world {
    struct api_server api;
    struct api_call call;
    struct api_prompt prompt;
};

static struct api_choice *open_world(struct world *w, bool has_one_call, const struct api_response *response) {
    *w = (struct world){.call = {.api = &w->api,
                                 .kind = API_CHAT,
                                 .response = response,
                                 .params = {.n = 1, .has_one_call = has_one_call, .is_stream = true}}};
    w->call.json = json_loads("{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}", 0, NULL);
    assert_non_null(w->call.json);
    w->prompt.call = &w->call;
    assert_true(api_choice_init_all(&w->call, &w->prompt));
    return w->prompt.choices;
}

static void close_world(struct world *w) {
    api_choice_deinit_all(&w->prompt, 1);
    json_decref(w->call.json);
}

/* Byte by byte, as long as more is wanted. Returns how many bytes were. */
static size_t say_all(struct world *w, struct api_choice *choice) {
    size_t n = 0;
    while (n < strlen(words) && !choice->is_complete) {
        struct str piece;
        str_init(&piece, 8);
        assert_int_equal(str_append(&piece, words + n++, 1), STATUS_OK);
        assert_int_equal(api_choice_read(&w->call, choice, &piece, false), STATUS_OK);
        str_deinit(&piece);
    }
    return n;
}

static void test_many_calls(void **state) {
    struct world w;
    (void)state;
    struct api_choice *choice = open_world(&w, false, &chat_response);
    assert_int_equal(say_all(&w, choice), strlen(words));
    assert_int_equal(choice->answer.n_calls, 2);
    assert_false(choice->is_complete);
    assert_null(choice->whole);
    close_world(&w);
}

static void test_one_call_ends_the_answer(void **state) {
    struct world w;
    (void)state;
    struct api_choice *choice = open_world(&w, true, &responses_response);
    size_t n = say_all(&w, choice);
    assert_true(choice->is_complete);
    assert_true(n < strlen(words) && n == (size_t)(strstr(words, "</tool_call>") - words));
    assert_int_equal(choice->answer.n_calls, 1);
    assert_string_equal(choice->answer.calls[0].arguments.ptr, "{\"a\": 1}");
    assert_string_equal(choice->answer.text.ptr, "Well.");
    assert_true(choice->answer.calls[0].id[0]);
    assert_non_null(choice->whole); /* this form repeats the answer at a stream's end */
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_calls),
                                       cmocka_unit_test(test_one_call_ends_the_answer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
