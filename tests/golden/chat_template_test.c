/* Rendered chats against texts made by jinja2 as transformers sets it up: chat.json holds the conversations and, for
 * each template, the text or the error. Own templates lie in tests/golden/chat, the public ones in golden/chat.
 *
 * Templates given up: none (at most 5 are allowed). A result whose `raises` begins with TemplateError is the template's
 * own refusal and must come with its words; other `raises` are Python's type errors, where any answer is accepted. */
#include "chat/chat_template.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "support/test.h"

#define NOW_S 1795910400 /* 2026-11-29T00:00:00 */
#define REFUSAL "TemplateError: "

static struct chat_template_token token(const json_t *special, const char *key) {
    const json_t *text = json_object_get(special, key);
    return (struct chat_template_token){json_string_value(text), json_string_length(text)};
}

static struct chat_template *load(const char *path, const json_t *special) {
    struct chat_template_tokens tokens = {.bos = token(special, "bos_token"),
                                          .eos = token(special, "eos_token"),
                                          .unk = token(special, "unk_token"),
                                          .pad = token(special, "pad_token")};
    struct status_note note = {0};
    struct file_map file;
    struct chat_template *chat_template = NULL;
    if (file_map_open(&file, path, &note)) fail_msg("%s: %s", path, note.text);
    if (chat_template_create(&chat_template, (const char *)file.bytes, file.n_bytes, &tokens, &note))
        fail_msg("%s: %s", path, note.text);
    file_map_close(&file);
    return chat_template;
}

static enum status render(const struct chat_template *chat_template, const json_t *request, struct str *out,
                          struct chat_template_spans *out_user, struct status_note *note) {
    char *text = json_dumps(request, 0);
    assert_non_null(text);
    enum status status = chat_template_render(chat_template, text, strlen(text), NOW_S, out, out_user, note);
    free(text);
    return status;
}

/* The request with every ASCII letter of the contents replaced by its successor. */
static json_t *with_other_letters(const json_t *request) {
    json_t *other = json_deep_copy(request), *message;
    size_t i;
    json_array_foreach(json_object_get(other, "messages"), i, message) {
        const char *content = json_string_value(json_object_get(message, "content"));
        if (!content) continue;
        char *copy = mem_strdup(content);
        assert_non_null(copy);
        for (char *c = copy; *c; c++)
            if ((*c >= 'a' && *c < 'z') || (*c >= 'A' && *c < 'Z')) ++*c;
        json_object_set_new(message, "content", json_string(copy));
        mem_free(copy);
    }
    return other;
}

/* Bytes outside the spans do not depend on what the user wrote; bytes inside are not all the template's. */
static bool spans_hold(const struct chat_template *chat_template, const json_t *request, const struct str *text,
                       const struct chat_template_spans *user) {
    json_t *other = with_other_letters(request);
    struct str other_text;
    str_init(&other_text, CHAT_TEMPLATE_MAX_OUT_BYTES);
    bool is_right = render(chat_template, other, &other_text, NULL, NULL) == STATUS_OK;
    size_t at = 0, n_user = 0;
    if (is_right && other_text.n_bytes == text->n_bytes) {
        for (size_t i = 0; i <= user->n_items; i++) {
            size_t to = i < user->n_items ? user->items[i].from : text->n_bytes;
            is_right = is_right && to >= at && memcmp(text->ptr + at, other_text.ptr + at, to - at) == 0;
            if (i == user->n_items) break;
            at = user->items[i].to;
            n_user += at - to;
        }
        is_right = is_right && n_user > 0 && n_user < text->n_bytes;
    }
    str_deinit(&other_text);
    json_decref(other);
    return is_right;
}

static bool is_result_right(const struct chat_template *chat_template, const json_t *request, const json_t *result) {
    const char *name = json_string_value(json_object_get(result, "template"));
    const char *case_name = json_string_value(json_object_get(result, "case"));
    const char *want = json_string_value(json_object_get(result, "text"));
    const char *raises = json_string_value(json_object_get(result, "raises"));
    struct status_note note = {0};
    struct chat_template_spans user;
    struct str text;
    str_init(&text, CHAT_TEMPLATE_MAX_OUT_BYTES);
    enum status status = render(chat_template, request, &text, &user, &note);
    bool is_right = true;
    if (want)
        is_right = !status && strcmp(text.ptr, want) == 0;
    else if (strncmp(raises, REFUSAL, strlen(REFUSAL)) == 0)
        is_right = status == STATUS_INVALID && strstr(note.text, raises + strlen(REFUSAL)) != NULL;
    if (!is_right)
        print_error("%s, %s:\n  want %s\n  got  %s\n", name, case_name, want ? want : raises,
                    status ? note.text : text.ptr);
    if (is_right && !status && !spans_hold(chat_template, request, &text, &user)) {
        print_error("%s, %s: spans do not tell the user's bytes\n", name, case_name);
        is_right = false;
    }
    chat_template_spans_deinit(&user);
    str_deinit(&text);
    return is_right;
}

static void check_all(const char *json_path, const char *templates_dir, size_t n_expected) {
    json_error_t error;
    json_t *root = json_load_file(json_path, 0, &error);
    if (!root) fail_msg("%s: %s", json_path, error.text);
    const json_t *special = json_object_get(root, "special"), *result;
    size_t i, n_wrong = 0;
    assert_int_equal(json_array_size(json_object_get(root, "results")), n_expected);
    json_array_foreach(json_object_get(root, "results"), i, result) {
        char path[2048];
        snprintf(path, sizeof path, "%s/%s", templates_dir, json_string_value(json_object_get(result, "template")));
        struct chat_template *chat_template = load(path, special);
        const char *case_name = json_string_value(json_object_get(result, "case"));
        const json_t *request = json_object_get(json_object_get(root, "cases"), case_name);
        assert_non_null(request);
        n_wrong += !is_result_right(chat_template, request, result);
        chat_template_destroy(&chat_template);
    }
    json_decref(root);
    if (n_wrong) fail_msg("%zu of %zu results are wrong", n_wrong, n_expected);
}

static void own_templates_give_their_texts(void **state) {
    (void)state;
    check_all("tests/golden/chat/chat.json", "tests/golden/chat", 10);
}

static void public_templates_give_their_texts(void **state) {
    (void)state;
    char json_path[1024], templates_dir[1024];
    snprintf(json_path, sizeof json_path, "%s", test_golden_file("chat/chat.json"));
    snprintf(templates_dir, sizeof templates_dir, "%s", test_golden_file("chat/templates"));
    check_all(json_path, templates_dir, 288);
}

int main(void) {
#ifndef KVICK_BRIDGE
    print_message("KVICK_BRIDGE=OFF: chat templates are not tested\n0 passed, 0 failed, 1 skipped\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_templates_give_their_texts),
        cmocka_unit_test(public_templates_give_their_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
