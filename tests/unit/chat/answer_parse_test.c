/* answer_parse: what a model says, in every form, cut everywhere; and what only looks like a call. */
#include "support/test.h"

#include <string.h>

#include "chat/answer_parse.h"

struct expected {
    const char *words, *text, *reasoning;
    const char *calls; /* name(arguments) of each, one after the other */
};

static bool is_tool(const void *owner, const char *name, size_t n_bytes) {
    (void)owner;
    return (n_bytes == 3 && memcmp(name, "add", 3) == 0) || (n_bytes == 7 && memcmp(name, "weather", 7) == 0);
}

/* Everything that was told, put together as a stream's reader would. */
struct told {
    struct str text, reasoning, calls;
    bool is_open;
};

static void tell(struct told *told, struct answer *answer) {
    assert_int_equal(answer_join(answer, ANSWER_IS_TEXT, true, &told->text), STATUS_OK);
    assert_int_equal(answer_join(answer, ANSWER_IS_REASONING, true, &told->reasoning), STATUS_OK);
    for (int i = 0; i < answer->n_parts; i++) {
        struct answer_part *part = &answer->parts[i];
        if (part->kind == ANSWER_IS_CALL && !part->is_told) {
            if (told->is_open) assert_int_equal(str_append_text(&told->calls, ")"), STATUS_OK);
            assert_int_equal(str_append_fmt(&told->calls, "%s(", part->name.ptr), STATUS_OK);
            told->is_open = true;
        }
        if (part->kind == ANSWER_IS_CALL)
            assert_int_equal(str_append_text(&told->calls, part->text.ptr + part->n_told_bytes), STATUS_OK);
    }
    answer_mark_told(answer);
    assert_false(answer_has_news(answer));
}

/* pieces: the words cut at a and at b. */
static void check(struct answer_rules rules, bool has_tools, const struct expected *is, size_t a, size_t b) {
    struct answer answer;
    struct answer_parse parse;
    struct told told = {0};
    size_t n = strlen(is->words), cuts[] = {0, a, b, n};
    str_init(&told.text, 10000);
    str_init(&told.reasoning, 10000);
    str_init(&told.calls, 10000);
    answer_init(&answer);
    answer_parse_init(&parse, rules, has_tools, is_tool, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(answer_parse_push(&parse, is->words + cuts[i], cuts[i + 1] - cuts[i], &answer), STATUS_OK);
        tell(&told, &answer);
    }
    assert_int_equal(answer_parse_finish(&parse, &answer), STATUS_OK);
    tell(&told, &answer);
    if (told.is_open) assert_int_equal(str_append_text(&told.calls, ")"), STATUS_OK);
    assert_string_equal(told.text.ptr, is->text);
    assert_string_equal(told.reasoning.ptr, is->reasoning);
    assert_string_equal(told.calls.ptr, is->calls);
    answer_parse_deinit(&parse);
    answer_deinit(&answer);
    str_deinit(&told.text);
    str_deinit(&told.reasoning);
    str_deinit(&told.calls);
}

static void check_all(struct answer_rules rules, bool has_tools, const struct expected *cases, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t a = 0; a <= strlen(cases[i].words); a++)
            for (size_t b = a; b <= strlen(cases[i].words); b++) check(rules, has_tools, &cases[i], a, b);
}

#define CHECK(which, cases)                                                                                            \
    check_all((struct answer_rules){.form = which, .has_reasoning = true}, true, cases, sizeof cases / sizeof cases[0])

static void hermes(void **state) {
    static const struct expected cases[] = {
        {"Hello <b> </b>\n", "Hello <b> </b>\n", "", ""},
        {"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>", "", "", "add({\"a\": 1})"},
        {"Well. \n<tool_call>{\"arguments\": {\"a\": \"}\\\"\"}, \"name\": "
         "\"f\"}</tool_call>\n\n<tool_call>{\"name\":\"g\"}"
         "</tool_call>",
         "Well.", "", "f({\"a\": \"}\\\"\"})g({})"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "", "", "f({\"a\": 1})"},
        {"<tool_call>{\"name\": \"f\", \"id\": 5, \"parameters\": {\"a\": [1, {}]}, \"x\": [{}]}</tool_call> bye",
         " bye", "", "f({\"a\": [1, {}]})"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1", "", "", "f({\"a\": 1)"}, /* cut off by a limit */
        {"<tool_call>f(1)</tool_call>", "<tool_call>f(1)</tool_call>", "", ""},
        {"<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>", "", ""},
        {"<tool_call>{\"name\": 5}", "<tool_call>{\"name\": 5}", "", ""},
        {"<tool_call>{\"na", "<tool_call>{\"na", "", ""},
        {"a <tool_", "a <tool_", "", ""},
        {"<tool_call>{\"name\": \"\\u00e9\", \"arguments\": {}}</tool_call>", "", "", "\xc3\xa9({})"},
        {"{\"name\": \"add\", \"arguments\": {}}", "{\"name\": \"add\", \"arguments\": {}}", "", ""},
        {"<think>\nso\n</think>\n\nYes", "Yes", "so", ""},
        {"<think>so <tool_call></think><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "", "so <tool_call>",
         "f({})"},
        {"<think>never ends", "", "never ends", ""},
        {"a <think>b</think>", "a <think>b</think>", "", ""}};
    (void)state;
    CHECK(ANSWER_HERMES, cases);
}

static void llama(void **state) {
    static const struct expected cases[] = {
        {"{\"name\": \"add\", \"parameters\": {\"a\": \"1\"}}", "", "", "add({\"a\": \"1\"})"},
        {"<|python_tag|>{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {\"x\":2}}",
         "", "", "add({})weather({\"x\":2})"},
        {" {\"name\": \"Alice\", \"age\": 3}", " {\"name\": \"Alice\", \"age\": 3}", "", ""},
        {"Sure: {\"name\": \"add\", \"parameters\": {}}", "Sure: {\"name\": \"add\", \"parameters\": {}}", "", ""},
        {"{\"x\": 1} and so on", "{\"x\": 1} and so on", "", ""}};
    (void)state;
    CHECK(ANSWER_LLAMA, cases);
}

static void mistral(void **state) {
    static const struct expected cases[] = {
        {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": \"g\", \"arguments\": {}}]", "", "",
         "f({\"a\": [1]})g({})"},
        {"[TOOL_CALLS]f[ARGS]{\"a\": {}}", "", "", "f({\"a\": {}})"},
        {"Hm.[TOOL_CALLS]f{\"a\": 1}[TOOL_CALLS]g[ARGS]{}", "Hm.", "", "f({\"a\": 1})g({})"},
        {"[TOOL_CALLS] 5", "[TOOL_CALLS] 5", "", ""},
        {"[TOOL] [TOOL_CALLS", "[TOOL] [TOOL_CALLS", "", ""}};
    (void)state;
    CHECK(ANSWER_MISTRAL, cases);
}

static void gemma(void **state) {
    static const struct expected cases[] = {
        {"```json\n{\"name\": \"add\", \"parameters\": {\"a\": 1}}\n```", "", "", "add({\"a\": 1})"},
        {"{\"name\": \"weather\", \"parameters\": {}}", "", "", "weather({})"},
        {"```python\nprint(1)\n```", "```python\nprint(1)\n```", "", ""},
        {"Text ```{\"name\": \"add\"}```", "Text ```{\"name\": \"add\"}```", "", ""}};
    (void)state;
    CHECK(ANSWER_GEMMA, cases);
}

static void nothing_is_looked_for_unasked(void **state) {
    static const struct expected cases[] = {{"<think>a</think> <tool_call>{\"name\":\"f\"}</tool_call>",
                                             "<think>a</think> <tool_call>{\"name\":\"f\"}</tool_call>", "", ""}};
    static const struct expected thought[] = {{"<think>a</think> [TOOL_CALLS]f{}", "[TOOL_CALLS]f{}", "a", ""}};
    (void)state;
    check_all((struct answer_rules){.form = ANSWER_HERMES}, false, cases, 1);
    check_all((struct answer_rules){.form = ANSWER_MISTRAL, .has_reasoning = true}, false, thought, 1);
}

static void parts_stand_in_the_order_in_which_they_came(void **state) {
    static const struct {
        const char *words, *order; /* r, t, c: kinds of parts */
        enum answer_form form;
    } cases[] = {
        {"A<tool_call>{\"name\":\"f\"}</tool_call>\nB <tool_call>{\"name\":\"g\"}</tool_call>\n", "tctc",
         ANSWER_HERMES},
        {"<think>a</think>\n\n<tool_call>{\"name\":\"f\"}</tool_call> \n", "rc", ANSWER_HERMES},
        {"<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"g\"}</tool_call>B", "cct", ANSWER_HERMES},
        {"Hm.[TOOL_CALLS]f{\"a\": 1}[TOOL_CALLS]g[ARGS]{} ", "tcc", ANSWER_MISTRAL},
        {"", "", ANSWER_HERMES}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct answer answer;
        struct answer_parse parse;
        char order[ANSWER_MAX_PARTS + 1] = "";
        answer_init(&answer);
        answer_parse_init(&parse, (struct answer_rules){cases[i].form, true}, true, is_tool, NULL);
        assert_int_equal(answer_parse_push(&parse, cases[i].words, strlen(cases[i].words), &answer), STATUS_OK);
        assert_int_equal(answer_parse_finish(&parse, &answer), STATUS_OK);
        for (int k = 0; k < answer.n_parts; k++) order[k] = "rtc"[answer.parts[k].kind];
        assert_string_equal(order, cases[i].order);
        answer_parse_deinit(&parse);
        answer_deinit(&answer);
    }
}

static void a_prompt_may_begin_the_reasoning(void **state) {
    struct answer answer;
    struct answer_parse parse;
    (void)state;
    answer_init(&answer);
    answer_parse_init(&parse, (struct answer_rules){.has_reasoning = true}, false, NULL, NULL);
    answer_parse_begin_thinking(&parse);
    assert_int_equal(answer_parse_push(&parse, "\nhm</think>\nyes", 15, &answer), STATUS_OK);
    assert_int_equal(answer.n_parts, 2);
    assert_string_equal(answer.parts[0].text.ptr, "hm");
    assert_string_equal(answer.parts[1].text.ptr, "yes");
    answer_parse_deinit(&parse);
    answer_deinit(&answer);
}

static void templates_tell_their_form(void **state) {
    static const struct {
        const char *source;
        enum answer_form form;
        bool has_reasoning;
    } cases[] = {{"{{ '<tool_call>' }} </think>", ANSWER_HERMES, true},
                 {"<|start_header_id|>", ANSWER_LLAMA, false},
                 {"[TOOL_CALLS]", ANSWER_MISTRAL, false},
                 {"<start_of_turn>", ANSWER_GEMMA, false},
                 {"<|im_start|>", ANSWER_HERMES, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct answer_rules rules = answer_parse_rules(cases[i].source, strlen(cases[i].source));
        assert_int_equal(rules.form, cases[i].form);
        assert_int_equal(rules.has_reasoning, cases[i].has_reasoning);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hermes),
        cmocka_unit_test(llama),
        cmocka_unit_test(mistral),
        cmocka_unit_test(gemma),
        cmocka_unit_test(nothing_is_looked_for_unasked),
        cmocka_unit_test(parts_stand_in_the_order_in_which_they_came),
        cmocka_unit_test(a_prompt_may_begin_the_reasoning),
        cmocka_unit_test(templates_tell_their_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
