/* load_client, load_target, load_replay: against a server that streams, stalls, refuses and breaks off as others do. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/load_replay.h"
#include "bench/load_target.h"
#include "http/sse.h"
#include "support/http_host.h"

#define PAUSE_TICKS 15 /* of 10 ms: before the first content */

struct fixture {
    struct http_host host;
    struct http_exchange *streams[32];
    int n_ticks[32];
    int n_more_ticks; /* until the end */
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
        if (fixture->n_ticks[i] < PAUSE_TICKS * 2 + fixture->n_more_ticks) continue;
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

static void on_gone(void *owner) {
    struct http_exchange **stream = owner;
    *stream = NULL;
}

static void begin_stream(struct fixture *fixture, struct http_exchange *exchange) {
    int i = 0;
    while (i < 31 && fixture->streams[i]) i++;
    fixture->streams[i] = exchange;
    fixture->n_ticks[i] = 0;
    http_exchange_on_gone(exchange, on_gone, &fixture->streams[i]);
    sse_start(exchange);
    http_exchange_send(exchange, ": ping\n\n", 8);
    send_data(exchange, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}");
    send_data(exchange, "{\"choices\":[],\"prompt_progress\":{\"processed\":3}}");
}

static void reply(struct http_exchange *exchange, int code, const char *text) {
    http_exchange_reply(exchange, code, "application/json", text, strlen(text));
}

static bool says(const char *body, size_t n, const char *words) {
    return memmem(body, n, words, strlen(words)) != NULL;
}

static void break_off(struct http_exchange *exchange, const char *how, size_t n_how) {
    sse_start(exchange);
    send_data(exchange, "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}");
    if (says(how, n_how, "do garbage")) send_data(exchange, "no json");
    if (says(how, n_how, "do error")) send_data(exchange, "{\"error\":{\"message\":\"out of blocks\"}}");
    if (says(how, n_how, "do cut"))
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
    else if (fixture->refuses_extras && says(body, n, "ignore_eos"))
        reply(exchange, 400, "{\"error\":{\"message\":\"ignore_eos\"}}");
    else if (says(body, n, "do busy")) {
        http_exchange_set_header(exchange, "Retry-After", "3");
        reply(exchange, 429, "{\"error\":{\"message\":\"later\"}}");
    } else if (says(body, n, "do bad"))
        reply(exchange, 422, "<html>no</html>");
    else if (says(body, n, "do "))
        break_off(exchange, body, n);
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

static void a_traces_clients_leave_when_it_says(void **state) {
    static const char *const lines =
        "{\"kvick_trace\":1,\"name\":\"leaving\"}\n"
        "{\"arrival_ms\":0,\"prompt_tokens\":9,\"output_tokens\":3}\n"
        "{\"arrival_ms\":0,\"prompt_tokens\":9,\"output_tokens\":3,\"cancel_ms\":200}\n"
        "{\"arrival_ms\":0,\"prompt_tokens\":9,\"output_tokens\":3,\"after\":1}\n"
        "{\"arrival_ms\":10,\"prompt_tokens\":9,\"output_tokens\":3,\"cancel_ms\":60000}\n";
    static const enum outcome_kind expected[] = {OUTCOME_FINISHED, OUTCOME_CANCELLED, OUTCOME_SKIPPED,
                                                 OUTCOME_FINISHED};
    char path[] = "/tmp/kvick-trace-XXXXXX";
    int fd = mkstemp(path), n_failed;
    struct fixture fixture = {.n_more_ticks = 120};
    struct trace trace;
    struct outcomes outcomes;
    struct status_note note;
    const struct load_replay_options options = {.scale = 1, .tokens_per_word = 1, .timeout_ms = 20000};
    (void)state;
    assert_int_equal(write(fd, lines, strlen(lines)), (ssize_t)strlen(lines));
    close(fd);
    if (trace_read(&trace, path, &note)) fail_msg("%s", note.text);
    unlink(path);
    start(&fixture);
    struct load_target target = find(&fixture, "");
    for (int n_clients = 0; n_clients <= 4; n_clients += 4) { /* at the trace's times, and as fast as four can */
        struct load_replay_options how = options;
        how.n_clients = n_clients;
        assert_int_equal(outcomes_init(&outcomes, &trace), STATUS_OK);
        if (load_replay_run(&target, &how, &outcomes, &n_failed, &note)) fail_msg("%s", note.text);
        assert_int_equal(n_failed, 0);
        for (int i = 0; i < 4; i++) assert_int_equal(outcomes.of[i].kind, expected[i]);
        /* Its first content came after 150 ms; its second would have after 1.5 s. */
        assert_int_equal(outcomes.of[1].n_tokens, 1);
        int64_t stayed_ns = outcomes.of[1].finished_ns - outcomes.of[1].arrival_ns;
        assert_true(stayed_ns >= 200000000 && stayed_ns < 1400000000);
        outcomes_deinit(&outcomes);
    }
    stop(&fixture);
    trace_deinit(&trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_token_is_the_first_content),
        cmocka_unit_test(every_failure_has_its_class),
        cmocka_unit_test(plainer_servers_are_asked_plainly),
        cmocka_unit_test(a_traces_clients_leave_when_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
