/* load_client, load_target: against a server that streams, stalls, refuses and breaks off as others do. */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "bench/load_target.h"
#include "http/sse.h"
#include "support/http_host.h"

#define PAUSE_TICKS 15 /* of 10 ms: before the first content */

struct fixture {
    struct http_host host;
    struct http_exchange *streams[32];
    int n_ticks[32];
    bool refuses_extras, has_no_chat;
};

static void send_data(struct http_exchange *exchange, const char *data) {
    char event[1000];
    http_exchange_send(exchange, event, (size_t)snprintf(event, sizeof event, "data: %s\n\n", data));
}

static void on_tick(void *owner) {
    struct fixture *fixture = owner;
    for (int i = 0; i < 32; i++) {
        struct http_exchange *exchange = fixture->streams[i];
        if (!exchange || ++fixture->n_ticks[i] < PAUSE_TICKS) continue;
        if (fixture->n_ticks[i] == PAUSE_TICKS)
            send_data(exchange, "{\"choices\":[{\"delta\":{\"content\":\"Hel\"},\"token_ids\":[5]}]}");
        if (fixture->n_ticks[i] < PAUSE_TICKS * 2) continue;
        send_data(exchange, "{\"choices\":[{\"delta\":{\"content\":\"lo\"},\"token_ids\":[6,7]}]}");
        send_data(exchange, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}");
        send_data(exchange, "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,"
                            "\"prompt_tokens_details\":{\"cached_tokens\":4},\"kvick\":{\"unaccounted_ms\":0.5,"
                            "\"queue_ms\":1.5,\"decode_ms\":2.5}}}");
        send_data(exchange, "[DONE]");
        http_exchange_end(exchange);
        fixture->streams[i] = NULL;
    }
}

static void begin_stream(struct fixture *fixture, struct http_exchange *exchange) {
    int i = 0;
    while (i < 31 && fixture->streams[i]) i++;
    fixture->streams[i] = exchange;
    fixture->n_ticks[i] = 0;
    sse_start(exchange);
    http_exchange_send(exchange, ": ping\n\n", 8);
    send_data(exchange, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}");
    send_data(exchange, "{\"choices\":[],\"prompt_progress\":{\"processed\":3}}");
}

static void reply(struct http_exchange *exchange, int code, const char *text) {
    http_exchange_reply(exchange, code, "application/json", text, strlen(text));
}

static void break_off(struct http_exchange *exchange, const char *how) {
    sse_start(exchange);
    send_data(exchange, "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}");
    if (strstr(how, "do garbage")) send_data(exchange, "no json");
    if (strstr(how, "do error")) send_data(exchange, "{\"error\":{\"message\":\"out of blocks\"}}");
    if (strstr(how, "do cut"))
        http_exchange_abort(exchange);
    else
        http_exchange_end(exchange); /* "do unfinished": without [DONE] */
}

static void handle(void *owner, struct http_exchange *exchange) {
    struct fixture *fixture = owner;
    const char *path = http_exchange_path(exchange);
    size_t n;
    const char *body = http_exchange_body(exchange, &n), *key = http_exchange_header(exchange, "authorization");
    if (strcmp(path, "/v1/models") == 0)
        reply(exchange, 200, "{\"data\":[{\"id\":\"tiny\",\"max_model_len\":640}]}");
    else if (!key || strcmp(key, "Bearer sesame") != 0)
        reply(exchange, 401, "{\"error\":{\"message\":\"who are you\"}}");
    else if (fixture->has_no_chat && strcmp(path, "/v1/chat/completions") == 0)
        reply(exchange, 404, "nothing here");
    else if (fixture->refuses_extras && memmem(body, n, "ignore_eos", 10))
        reply(exchange, 400, "{\"error\":{\"message\":\"ignore_eos\"}}");
    else if (memmem(body, n, "do busy", 7)) {
        http_exchange_set_header(exchange, "Retry-After", "3");
        reply(exchange, 429, "{\"error\":{\"message\":\"later\"}}");
    } else if (memmem(body, n, "do bad", 6))
        reply(exchange, 422, "<html>no</html>");
    else if (memmem(body, n, "do ", 3))
        break_off(exchange, body);
    else
        begin_stream(fixture, exchange);
}

static void start(struct fixture *fixture) {
    http_host_start(&fixture->host, handle, on_tick, fixture);
}

static void stop(struct fixture *fixture) {
    http_host_stop(&fixture->host);
}

static struct load_target find(const struct fixture *fixture, const char *behind) {
    struct load_target target;
    struct status_note note;
    char url[100];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", fixture->host.port, behind);
    struct load_target_wishes wishes = {.url = url, .api_key = "sesame"};
    if (load_target_find(&target, &wishes, &note)) fail_msg("%s", note.text);
    return target;
}

static void the_first_token_is_the_first_content(void **state) {
    struct fixture fixture = {0};
    struct load_client *client;
    struct load_answer answers[24];
    struct status_note note;
    const struct load_turn turn = {"user", "hi"};
    struct load_ask ask = {.turns = &turn, .n_turns = 1, .max_tokens = 3, .wants_ids = true, .timeout_ms = 20000};
    (void)state;
    start(&fixture);
    struct load_target target = find(&fixture, "/v1/");
    assert_string_equal(target.model, "tiny");
    assert_int_equal(target.max_context, 640);
    assert_true(target.endpoint == LOAD_CHAT && target.takes_extras && target.takes_usage && target.is_kvick);
    assert_int_equal(load_client_create(&client, &target, 24, &note), STATUS_OK);
    for (int i = 0; i < 24; i++) {
        assert_int_equal(load_answer_init(&answers[i], 3), STATUS_OK);
        assert_int_equal(load_client_start(client, &ask, &answers[i], NULL, NULL, &note), STATUS_OK);
    }
    while (load_client_run(client, 100)) continue;
    for (int i = 0; i < 24; i++) {
        struct load_answer *answer = &answers[i];
        assert_int_equal(answer->end, LOAD_OK);
        assert_string_equal(answer->text.ptr, "Hello");
        assert_string_equal(answer->finish_reason, "length");
        assert_true(answer->n_prompt == 9 && answer->n_cached == 4 && answer->n_new == 3 && answer->n_content == 2);
        assert_true(answer->n_ids == 3 && answer->ids[0] == 5 && answer->ids[2] == 7);
        /* Role, ping and progress came at once; the content 140 ms later. */
        assert_true(load_answer_ttft_ms(answer) > 120);
        assert_true(load_answer_token_ms(answer) > 60 &&
                    load_answer_token_ms(answer) < phase_stats_ms(answer->content_ns[0], answer->ended_ns));
        assert_true(answer->has_phases && answer->phase_ms[PHASE_QUEUE] == 1.5 &&
                    answer->phase_ms[PHASE_DECODE] == 2.5);
        load_answer_deinit(answer);
    }
    load_client_destroy(&client);
    stop(&fixture);
}

static void every_failure_has_its_class(void **state) {
    static const struct {
        const char *words, *note;
        enum load_end end;
        int code;
    } cases[] = {{"do busy", "later", LOAD_REFUSED, 429},
                 {"do bad", "422", LOAD_BAD_REQUEST, 422},
                 {"do garbage", "JSON", LOAD_MALFORMED, 200},
                 {"do error", "out of blocks", LOAD_SERVER_ERROR, 200},
                 {"do cut", "", LOAD_CUT, 0},
                 {"do unfinished", "[DONE]", LOAD_CUT, 200}};
    struct fixture fixture = {0};
    struct load_client *client;
    struct load_answer answer;
    struct status_note note;
    (void)state;
    start(&fixture);
    struct load_target target = find(&fixture, "");
    assert_int_equal(load_client_create(&client, &target, 1, &note), STATUS_OK);
    assert_int_equal(load_answer_init(&answer, 3), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct load_turn turn = {"user", cases[i].words};
        struct load_ask ask = {.turns = &turn, .n_turns = 1, .max_tokens = 3, .timeout_ms = 20000};
        assert_int_equal(load_client_ask(client, &ask, &answer, &note), STATUS_OK);
        if (answer.end != cases[i].end || (cases[i].code && answer.code != cases[i].code) ||
            !strstr(answer.note, cases[i].note))
            fail_msg("%s: %s, %d: %s", cases[i].words, load_answer_end_name(answer.end), answer.code, answer.note);
        assert_int_equal(answer.retry_after_s, i == 0 ? 3 : -1);
    }
    const struct load_turn turn = {"user", "hi"};
    struct load_ask ask = {.turns = &turn, .n_turns = 1, .max_tokens = 3, .timeout_ms = 50};
    assert_int_equal(load_client_ask(client, &ask, &answer, &note), STATUS_OK);
    assert_int_equal(answer.end, LOAD_TIMEOUT);
    ask.timeout_ms = 20000;
    assert_int_equal(load_client_start(client, &ask, &answer, NULL, NULL, &note), STATUS_OK);
    load_client_run(client, 20);
    load_client_cancel(client, &answer);
    assert_int_equal(answer.end, LOAD_CANCELLED);
    stop(&fixture);
    assert_int_equal(load_client_ask(client, &ask, &answer, &note), STATUS_OK);
    assert_int_equal(answer.end, LOAD_NO_SERVER);
    load_answer_deinit(&answer);
    load_client_destroy(&client);
}

static void plainer_servers_are_asked_plainly(void **state) {
    struct fixture fixture = {.refuses_extras = true};
    struct load_target target;
    struct status_note note;
    char url[100];
    (void)state;
    start(&fixture);
    target = find(&fixture, "/v1");
    assert_true(!target.takes_extras && target.takes_usage && target.endpoint == LOAD_CHAT);
    stop(&fixture);
    fixture = (struct fixture){.has_no_chat = true};
    start(&fixture);
    target = find(&fixture, "/v1");
    assert_true(target.takes_extras && target.endpoint == LOAD_COMPLETION);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", fixture.host.port);
    struct load_target_wishes wishes = {.url = url, .api_key = "sesame", .endpoint = "chat"};
    assert_int_equal(load_target_find(&target, &wishes, &note), STATUS_PEER);
    assert_non_null(strstr(note.text, "404"));
    wishes = (struct load_target_wishes){.url = url, .api_key = "wrong"};
    assert_int_equal(load_target_find(&target, &wishes, &note), STATUS_PEER);
    wishes.endpoint = "speech";
    assert_int_equal(load_target_find(&target, &wishes, &note), STATUS_INVALID);
    wishes = (struct load_target_wishes){.url = "localhost"};
    assert_int_equal(load_target_find(&target, &wishes, &note), STATUS_INVALID);
    stop(&fixture);
    wishes = (struct load_target_wishes){.url = url};
    assert_int_equal(load_target_find(&target, &wishes, &note), STATUS_PEER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_token_is_the_first_content),
        cmocka_unit_test(every_failure_has_its_class),
        cmocka_unit_test(plainer_servers_are_asked_plainly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
