/* What a choice makes of the model's words: whether calls one after the other are wanted, and the order of what is
 * told. */
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

static const char *const model_names[] = {"m"};

static struct api_choice *open_world(struct world *w, bool has_one_call, const struct api_response *response) {
    *w = (struct world){.api.options = {.model_names = model_names, .n_model_names = 1},
                        .call = {.api = &w->api,
                                 .kind = API_CHAT,
                                 .response = response,
                                 .id = "resp_1",
                                 .prompts = &w->prompt,
                                 .n_prompts = 1,
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

/* Byte by byte, as long as more is wanted; told of to out, if there is one. Returns how many bytes were. */
static size_t say_all(struct world *w, const char *said, struct str *out) {
    struct api_choice *choice = w->prompt.choices;
    size_t n = 0;
    while (n < strlen(said) && !choice->is_complete) {
        struct str piece;
        str_init(&piece, 8);
        assert_int_equal(str_append(&piece, said + n++, 1), STATUS_OK);
        choice->n_tokens++;
        assert_int_equal(api_choice_read(&w->call, choice, &piece, false), STATUS_OK);
        str_deinit(&piece);
        if (!out || !answer_has_news(&choice->answer)) continue;
        assert_int_equal(w->call.response->write_piece(&w->call, &w->prompt, 0, -1, out), STATUS_OK);
        answer_mark_told(&choice->answer);
    }
    choice->finish_reason = "stop";
    return n;
}

static void test_many_calls(void **state) {
    struct world w;
    (void)state;
    struct api_choice *choice = open_world(&w, false, &chat_response);
    assert_int_equal(say_all(&w, words, NULL), strlen(words));
    assert_int_equal(choice->answer.n_calls, 2);
    assert_false(choice->is_complete);
    close_world(&w);
}

static void test_one_call_ends_the_answer(void **state) {
    struct world w;
    (void)state;
    struct api_choice *choice = open_world(&w, true, &responses_response);
    size_t n = say_all(&w, words, NULL);
    assert_true(choice->is_complete);
    assert_true(n < strlen(words) && n == (size_t)(strstr(words, "</tool_call>") - words));
    assert_int_equal(choice->answer.n_parts, 2);
    assert_string_equal(choice->answer.parts[0].text.ptr, "Well.");
    assert_string_equal(choice->answer.parts[1].text.ptr, "{\"a\": 1}");
    assert_true(choice->answer.parts[1].id[0]);
    close_world(&w);
}

/* The next event of a stream as JSON, the caller's reference; NULL: there is none. */
static json_t *next_event(const char **at) {
    const char *data = strstr(*at, "data: ");
    if (!data) return NULL;
    *at = strchr(data, '\n');
    json_t *event = json_loadb(data + 6, (size_t)(*at - data) - 6, 0, NULL);
    assert_non_null(event);
    return event;
}

static const char *text_of(const json_t *json, const char *key) {
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

/* Items of a stream of responses as its events tell them; each is of one event, and its other events name it. */
static json_t *told_items(const char *events, json_t **out_last) {
    json_t *items = json_array(), *event;
    size_t n_begun = 0;
    *out_last = NULL;
    while ((event = next_event(&events))) {
        const char *type = text_of(event, "type"), *id = text_of(event, "item_id");
        json_t *item = json_object_get(event, "item");
        size_t idx = (size_t)json_integer_value(json_object_get(event, "output_index"));
        n_begun += strcmp(type, "response.output_item.added") == 0;
        assert_true(!json_object_get(event, "output_index") || idx == n_begun - 1);
        if (strcmp(type, "response.output_item.done") == 0) json_array_append(items, item);
        if (id[0]) assert_non_null(strstr(events, id)); /* its item is still to be done */
        json_decref(*out_last);
        *out_last = event;
    }
    assert_int_equal(json_array_size(items), n_begun);
    return items;
}

/* What is behind a call comes behind it, streamed and whole; a stream's end repeats what its events said. */
static void test_order_is_kept(void **state) {
    static const char said[] = "A<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\nB";
    static const char *const types[] = {"message", "function_call", "message"};
    struct world w;
    struct str events, whole;
    json_t *last;
    (void)state;
    str_init(&events, 1 << 20);
    str_init(&whole, 1 << 20);
    open_world(&w, false, &responses_response);
    say_all(&w, said, &events);
    assert_int_equal(w.call.response->write_end(&w.call, &w.prompt, 0, &events), STATUS_OK);
    assert_int_equal(w.call.response->write_last(&w.call, &events), STATUS_OK);
    assert_int_equal(w.call.response->write_whole(&w.call, &whole), STATUS_OK);
    json_t *items = told_items(events.ptr, &last), *answer = json_loads(whole.ptr, 0, NULL);
    assert_int_equal(json_array_size(items), 3);
    for (size_t i = 0; i < 3; i++) assert_string_equal(text_of(json_array_get(items, i), "type"), types[i]);
    const json_t *behind = json_array_get(json_object_get(json_array_get(items, 2), "content"), 0);
    assert_string_equal(text_of(behind, "text"), "\nB");
    assert_true(json_equal(items, json_object_get(answer, "output")));
    assert_true(json_equal(items, json_object_get(json_object_get(last, "response"), "output")));
    json_decref(items);
    json_decref(answer);
    json_decref(last);
    close_world(&w);
    str_deinit(&events);
    str_deinit(&whole);
}

/* An answer that said nothing is a message all the same, in a stream as well. */
static void test_nothing_is_a_message(void **state) {
    struct world w;
    struct str events;
    json_t *last;
    (void)state;
    str_init(&events, 1 << 20);
    open_world(&w, false, &responses_response);
    say_all(&w, "", &events);
    assert_int_equal(w.call.response->write_end(&w.call, &w.prompt, 0, &events), STATUS_OK);
    json_t *items = told_items(events.ptr, &last);
    assert_int_equal(json_array_size(items), 1);
    assert_string_equal(text_of(json_array_get(items, 0), "type"), "message");
    json_decref(items);
    json_decref(last);
    close_world(&w);
    str_deinit(&events);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_calls), cmocka_unit_test(test_one_call_ends_the_answer),
        cmocka_unit_test(test_order_is_kept), cmocka_unit_test(test_nothing_is_a_message)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
