#include "chat/chat_template.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/test.h"

#define NOW_S 1795943107 /* 2026-11-29T09:05:07 */
#define HI "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"

struct outcome {
    enum status status;
    struct status_note note;
    struct str text;
    struct chat_template_spans user;
};

static struct outcome render(const char *source, const char *request) {
    struct outcome outcome = {0};
    str_init(&outcome.text, CHAT_TEMPLATE_MAX_OUT_BYTES);
    struct chat_template_tokens tokens = {.bos = {"<s>", 3}};
    struct chat_template *chat_template = NULL;
    outcome.status = chat_template_create(&chat_template, source, strlen(source), &tokens, &outcome.note);
    if (!outcome.status)
        outcome.status = chat_template_render(chat_template, request, strlen(request), NOW_S, &outcome.text,
                                              &outcome.user, &outcome.note);
    chat_template_destroy(&chat_template);
    return outcome;
}

static void outcome_free(struct outcome *outcome) {
    str_deinit(&outcome->text);
    chat_template_spans_deinit(&outcome->user);
}

static void expect_text(const char *source, const char *request, const char *want) {
    struct outcome outcome = render(source, request);
    if (outcome.status) fail_msg("%s: %s", source, outcome.note.text);
    assert_string_equal(outcome.text.ptr, want);
    outcome_free(&outcome);
}

static void expect_error(const char *source, const char *request, enum status status, const char *words) {
    struct outcome outcome = render(source, request);
    if (outcome.status != status || !strstr(outcome.note.text, words))
        fail_msg("%.80s: want status %d with '%s', got %d with '%s'", source, status, words, outcome.status,
                 outcome.note.text);
    assert_int_equal(outcome.text.n_bytes, 0);
    assert_int_equal(outcome.user.n_items, 0);
    outcome_free(&outcome);
}

/* Texts made by jinja2 3.1 in the sandbox of transformers. */
static void expressions_mean_what_jinja2_means(void **state) {
    (void)state;
    json_error_t error;
    json_t *root = json_load_file(test_own_file("unit/chat/semantics.json"), JSON_ALLOW_NUL, &error), *row;
    if (!root) fail_msg("semantics.json: %s", error.text);
    json_t *request = json_loads(HI, 0, NULL);
    json_object_set(request, "chat_template_kwargs", json_object_get(root, "vars"));
    char *request_text = json_dumps(request, 0);
    size_t i, n_wrong = 0;
    json_array_foreach(json_object_get(root, "rows"), i, row) {
        const char *source = json_string_value(json_object_get(row, "source"));
        struct outcome outcome = render(source, request_text);
        const char *want = json_string_value(json_object_get(row, "text"));
        if (outcome.status || strcmp(outcome.text.ptr, want) != 0) {
            print_error("%s\n  want %s\n  got  %s\n", source, want,
                        outcome.status ? outcome.note.text : outcome.text.ptr);
            n_wrong++;
        }
        outcome_free(&outcome);
    }
    assert_true(i >= 38);
    free(request_text);
    json_decref(request);
    json_decref(root);
    assert_int_equal(n_wrong, 0);
}

static void endless_templates_are_stopped(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{% endfor %}{% endfor %}{% endfor "
        "%}",
        "{{ 'x' * 1000000000 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(s='xxxx') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}",
        "{% set a = 'a' * 1000000 %}{{ a|replace('a', a) }}",
        "{% set a = 'a' * 10000000 %}{{ a.split('a')|length }}",
        "{% set a = 'a' * 10000000 %}{% for i in range(99999) %}{{ 'b' in a }}{% endfor %}",
        "{{ range(1000000000)|list }}",
        "{{ 'a'|center(1000000000) }}",
        "{{ 9**9**9**9 }}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    };
    /* 1 s is the promise on an idle machine; the suites run side by side. */
    int64_t max_s = test_is_slow_build() ? 30 : 5;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        int64_t start_ns = clock_now_ns();
        expect_error(sources[i], HI, STATUS_LIMIT, "chat template: line 1: ");
        if (clock_now_ns() - start_ns > max_s * 1000000000) fail_msg("%s: took more than %d s", sources[i], (int)max_s);
    }
}

static void repeat_expect(const char *open, const char *middle, const char *close, size_t n, enum status status) {
    struct str source;
    str_init(&source, (size_t)1 << 20);
    for (size_t i = 0; i < n; i++) assert_int_equal(str_append_text(&source, open), STATUS_OK);
    assert_int_equal(str_append_text(&source, middle), STATUS_OK);
    for (size_t i = 0; i < n; i++) assert_int_equal(str_append_text(&source, close), STATUS_OK);
    expect_error(source.ptr, HI, status, "chat template: line 1: ");
    str_deinit(&source);
}

static void deep_sources_are_refused(void **state) {
    (void)state;
    repeat_expect("{% if true %}", "", "{% endif %}", 10000, STATUS_LIMIT);
    repeat_expect("{% for x in [1] %}", "", "{% endfor %}", 10000, STATUS_LIMIT);
    repeat_expect("{% if 0 %}{% elif 0 %}", "{% elif 0 %}", "", 10000, STATUS_LIMIT);
    repeat_expect("{{ x }}{{ [", "", "", 1, STATUS_FORMAT);
    expect_error("{{ (((((((((1))))))))) }}{% if %}", HI, STATUS_FORMAT, "line 1");
    struct str source;
    str_init(&source, (size_t)1 << 20);
    assert_int_equal(str_append_text(&source, "{{ 1"), STATUS_OK);
    for (int i = 0; i < 100000; i++) assert_int_equal(str_append_text(&source, "+1"), STATUS_OK);
    assert_int_equal(str_append_text(&source, " }}"), STATUS_OK);
    expect_error(source.ptr, HI, STATUS_LIMIT, "tokens in one tag");
    str_deinit(&source);
}

static void syntax_errors_name_the_line(void **state) {
    (void)state;
    expect_error("a\nb\n{% if %}", HI, STATUS_FORMAT, "chat template: line 3: ");
    expect_error("{% if true %}", HI, STATUS_FORMAT, "end of input");
    expect_error("\xff", HI, STATUS_FORMAT, "UTF-8");
    expect_error("a\n{{ x.y.z }}", HI, STATUS_INVALID, "line 2: 'x' is undefined");
}

static void refusals_carry_the_template_s_words(void **state) {
    (void)state;
    const char *source = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
                         "{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
                         "{{ raise_exception('Roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}";
    expect_error(source,
                 "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]}",
                 STATUS_INVALID, "System role not supported");
    expect_error(source, "{\"messages\":[{\"role\":\"user\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]}",
                 STATUS_INVALID, "Roles must alternate");
    expect_error(source, "{\"messages\":[{\"role\":\"banana\",\"content\":\"x\"}]}", STATUS_INVALID, "alternate");
    expect_text(source, HI, "hi");
}

static void contents_come_in_several_forms(void **state) {
    (void)state;
    const char *source = "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}"
                         "{% elif m.content is none %}-{% endif %}{% endfor %}";
    expect_text(source,
                "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"tell me \"},"
                "{\"type\":\"text\",\"text\":\"a joke\"}]}]}",
                "[user]tell me a joke");
    expect_text(source, "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]}]}", "[assistant]-");
    expect_text("{{ messages[0].role + messages[0].content }}", "{\"messages\":[{\"role\":\"tool\",\"content\":null}]}",
                "tool");
    expect_error(source, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", STATUS_INVALID,
                 "messages[0].content[0].type is 'image_url'");
    expect_error(source, "{\"messages\":[{\"role\":\"user\"}]}", STATUS_INVALID, "messages[0].content is missing");
    expect_error(source, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", STATUS_INVALID, "messages[0].content");
    expect_error(source, "{\"messages\":[]}", STATUS_INVALID, "messages is empty");
    expect_error(source, "{\"messages\":[5]}", STATUS_INVALID, "messages[0]");
    expect_error(source, "{}", STATUS_INVALID, "messages is missing");
    expect_error(source, "[", STATUS_INVALID, "JSON");
}

static void requests_bring_no_template(void **state) {
    (void)state;
    expect_error("x", "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"chat_template\":\"y\"}", STATUS_INVALID,
                 "chat_template is not accepted");
    expect_error("x",
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"chat_template_kwargs\":{\"chat_template\":1}}",
                 STATUS_INVALID, "chat_template_kwargs.chat_template is not accepted");
    expect_text(
        "{{ enable_thinking }}{{ add_generation_prompt }}{{ bos_token }}{{ eos_token is defined }}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"chat_template_kwargs\":{\"enable_thinking\":false}}",
        "FalseTrue<s>False");
}

static void arguments_are_objects_or_text(void **state) {
    (void)state;
    const char *request = "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\","
                          "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}]}]}";
    expect_text("{{ messages[0].tool_calls[0].function.arguments|tojson }}", request, "{\"a\": 1}");
    expect_text("{{ messages[0].tool_calls[0].function.arguments + '' }}", request, "{\"a\": 1}");
}

/* The user's bytes in brackets. */
static void expect_marked(const char *source, const char *request, const char *want) {
    struct outcome outcome = render(source, request);
    if (outcome.status) fail_msg("%s: %s", source, outcome.note.text);
    struct str marked;
    str_init(&marked, 4096);
    size_t at = 0;
    for (size_t i = 0; i < outcome.user.n_items; i++) {
        struct chat_template_span span = outcome.user.items[i];
        assert_true(at <= span.from && span.from < span.to && span.to <= outcome.text.n_bytes);
        assert_int_equal(str_append(&marked, outcome.text.ptr + at, span.from - at), STATUS_OK);
        assert_int_equal(str_append_text(&marked, "["), STATUS_OK);
        assert_int_equal(str_append(&marked, outcome.text.ptr + span.from, span.to - span.from), STATUS_OK);
        assert_int_equal(str_append_text(&marked, "]"), STATUS_OK);
        at = span.to;
    }
    assert_int_equal(str_append(&marked, outcome.text.ptr + at, outcome.text.n_bytes - at), STATUS_OK);
    assert_string_equal(marked.ptr, want);
    str_deinit(&marked);
    outcome_free(&outcome);
}

static void spans_follow_the_user_s_bytes(void **state) {
    (void)state;
    const char *request = "{\"messages\":[{\"role\":\"user\",\"content\":\" A<|x|>\\nB \"}]}";
    expect_marked("<|x|>{{ messages[0].content }}<|x|>", request, "<|x|>[ A<|x|>\nB ]<|x|>");
    expect_marked("{{ messages[0].content|trim }}.", request, "[A<|x|>\nB].");
    expect_marked("{{ messages[0].content.split('<|x|>')[1] }}", request, "[\nB ]");
    expect_marked("{{ ('<|x|>' ~ messages[0].content[1:3])|upper }}", request, "<|X|>[A<]");
    expect_marked("{{ messages[0].content|replace('|x|', '-')|trim }}", request, "[A<]-[>\nB]");
    expect_marked("{{ messages[0].content|tojson }}", request, "\"[ A<|x|>\\nB ]\"");
    expect_marked("{{ ['<|x|>', messages[0].content|trim]|join('+') }}", request, "<|x|>+[A<|x|>\nB]");
    expect_marked("{{ '%s|%s' % (messages[0].content[1], '<') }}", request, "[A]|<");
    expect_marked("{% set x %}<{{ messages[0].role }}>{% endset %}{{ x }}", request, "<[user]>");
    expect_marked("{{ messages[0].content|length }}{{ bos_token }}", request, "10<s>");
}

static void failing_memory_is_an_error(void **state) {
    (void)state;
    struct chat_template_tokens tokens = {0};
    struct chat_template *chat_template = NULL;
    struct status_note note;
    mem_fail_from(1);
    enum status status = chat_template_create(&chat_template, "x", 1, &tokens, &note);
    mem_fail_from(0);
    assert_int_equal(status, STATUS_NOMEM);
    assert_null(chat_template);
    struct str small;
    str_init(&small, 2);
    assert_int_equal(chat_template_create(&chat_template, "abc", 3, &tokens, &note), STATUS_OK);
    assert_int_equal(chat_template_render(chat_template, HI, strlen(HI), NOW_S, &small, NULL, &note), STATUS_LIMIT);
    assert_int_equal(small.n_bytes, 0);
    str_deinit(&small);
    chat_template_destroy(&chat_template);
}

int main(void) {
#ifndef KVICK_BRIDGE
    print_message("KVICK_BRIDGE=OFF: chat templates are not tested\n0 passed, 0 failed, 1 skipped\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_mean_what_jinja2_means),
        cmocka_unit_test(endless_templates_are_stopped),
        cmocka_unit_test(deep_sources_are_refused),
        cmocka_unit_test(syntax_errors_name_the_line),
        cmocka_unit_test(refusals_carry_the_template_s_words),
        cmocka_unit_test(contents_come_in_several_forms),
        cmocka_unit_test(requests_bring_no_template),
        cmocka_unit_test(arguments_are_objects_or_text),
        cmocka_unit_test(spans_follow_the_user_s_bytes),
        cmocka_unit_test(failing_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
