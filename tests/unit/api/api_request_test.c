/* Which route's form a body has, before anybody knows whether it is sound. */
#include "api/api_request.h"

#include <string.h>

#include "support/test.h"

static void test_chat_or_text(void **state) {
    static const struct {
        const char *body;
        bool is_chat;
    } cases[] = {
        {"{\"messages\":[]}", true},
        {"{\"a\":[{\"b\":1}], \"messages\" :[]}", true},
        {"{\"prompt\":\"x\"}", false},
        {"{\"messages\":[],\"prompt\":\"x\"}", false},
        {"{\"a\":{\"messages\":[]}}", false},
        {"{\"a\":\"messages\"}", false},
        {"{\"a\":\"\\\"messages\\\":\"}", false},
        {"{\"messages\":[],\"tools\":[{\"properties\":{\"prompt\":{}}}]}", true},
        {"{\"messages\":[{\"content\":\"\\\"prompt\\\":1, {{{\"}]}", true},
        {"{\"xmessages\":1}", false},
        {"{\"messages", false},
        {"messages", false},
        {"", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(api_request_is_chat(cases[i].body, strlen(cases[i].body)), cases[i].is_chat);
}

static void test_every_path_has_its_form(void **state) {
    (void)state;
    assert_ptr_equal(api_request_ask_of("/v1/chat/completions"), &chat_request);
    assert_ptr_equal(api_request_ask_of("/v1/responses"), &responses_request);
    assert_null(api_request_ask_of("/v1/chat"));
    assert_null(api_request_ask_of(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chat_or_text),
                                       cmocka_unit_test(test_every_path_has_its_form)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
