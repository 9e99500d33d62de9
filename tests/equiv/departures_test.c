/* When a request may leave: cancelled within a step, blocked by its client, with several answers; and that its time is
 * accounted for. */
#include "support/request_run.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/test.h"

#define N_PROMPT 150

/* ---- leaving ---- */

/* A step of a thousand rows takes long enough to be left within; nothing of it is kept. */
static void a_step_nobody_waits_for_is_abandoned(void **state) {
    (void)state;
    struct engine *engine = request_run_start(&request_run_plain, 2);
    struct engine_stats before = engine_read_stats(engine), after = before;
    for (int round = 0; round < 1000 && after.n_abandoned_steps < 5; round++, before = after) {
        struct request *request = request_run_make(1000, 10);
        assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
        usleep((useconds_t)(200 * (round % 50)));
        assert_int_equal(engine_client_cancel(engine, request->id), STATUS_OK);
        struct event event = request_run_await(engine, request->id);
        do after = engine_read_stats(engine);
        while (after.n_running || after.n_finished == before.n_finished);
        if (after.n_abandoned_steps > before.n_abandoned_steps) {
            assert_int_equal(event.reason, FINISH_CANCELLED);
            assert_int_equal(after.n_rows, before.n_rows);
            assert_int_equal(request->stats.n_new_tokens, 0);
            assert_int_equal(after.n_held_blocks, 0);
            assert_int_equal(after.n_cancelled, before.n_cancelled + 1);
        }
        engine_client_free(&request);
    }
    assert_int_equal(after.n_abandoned_steps, 5);
    engine_destroy(&engine);
}

/* What such a step had computed is not found by others: not even its first layers' K and V are all there. */
static void an_abandoned_step_leaves_no_trace(void **state) {
    (void)state;
    struct exact_options exact = {.threads = 1, .block_tokens = 16, .has_prefix_cache = true};
    struct engine *engine = request_run_start(&exact, 2);
    int n_abandoned = 0;
    for (int round = 0; round < 1000 && n_abandoned < 3; round++) {
        struct engine_stats before = engine_read_stats(engine), after;
        struct request *requests[3]; /* the one that leaves, one that may find what it left, one that may not */
        for (int i = 0; i < 3; i++) {
            requests[i] = request_run_make(900, 10);
            requests[i]->tokens[0] = (uint32_t)round % MODEL_FILE_N_VOCAB; /* each round a prompt of its own */
            requests[i]->tokens[1] = (uint32_t)round / MODEL_FILE_N_VOCAB;
            requests[i]->has_cache = i < 2;
        }
        assert_int_equal(engine_client_submit(engine, requests[0]), STATUS_OK);
        usleep((useconds_t)(200 * (round % 50)));
        assert_int_equal(engine_client_cancel(engine, requests[0]->id), STATUS_OK);
        request_run_await(engine, requests[0]->id);
        do after = engine_read_stats(engine);
        while (after.n_running || after.n_finished == before.n_finished);
        if (after.n_abandoned_steps > before.n_abandoned_steps) {
            n_abandoned++;
            for (int i = 1; i < 3; i++) request_run_ask(engine, requests[i]);
            assert_int_equal(requests[1]->stats.n_cached_tokens, 0);
            assert_memory_equal(engine_client_answer(requests[1], 0), engine_client_answer(requests[2], 0),
                                10 * sizeof(uint32_t));
        }
        for (int i = 0; i < 3; i++) engine_client_free(&requests[i]);
    }
    assert_int_equal(n_abandoned, 3);
    engine_destroy(&engine);
}

/* Batch work alone, and an interactive request within its long step: that is left, and the batch answer is the same. */
static void a_long_step_ends_for_who_is_waited_for(void **state) {
    (void)state;
    uint32_t expected[10];
    bool is_left = false;
    for (int round = 0; round < 200 && !is_left; round++) {
        struct engine *engine = request_run_start(&request_run_plain, 2);
        struct request *batch = request_run_make(1000, 10), *other = request_run_make(10, 0);
        int n_home = round == 0; /* alone at first */
        batch->class_ = REQUEST_BATCH;
        assert_int_equal(engine_client_submit(engine, batch), STATUS_OK);
        usleep((useconds_t)(200 * (round % 50)));
        if (round > 0) assert_int_equal(engine_client_submit(engine, other), STATUS_OK);
        while (n_home < 2) {
            struct event event;
            if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
            n_home += event.kind == EVENT_FINISHED;
        }
        is_left = engine_read_stats(engine).n_abandoned_steps > 0;
        if (round == 0) memcpy(expected, engine_client_answer(batch, 0), sizeof expected);
        assert_memory_equal(engine_client_answer(batch, 0), expected, sizeof expected);
        engine_client_free(&batch);
        engine_client_free(&other);
        engine_destroy(&engine);
    }
    assert_true(is_left);
}

/* A request that comes while a step runs is heard before the step ends: the first prompt is one step. */
static void requests_are_admitted_between_layers(void **state) {
    (void)state;
    struct engine *engine = request_run_start(&request_run_plain, 2);
    bool is_seen = false;
    for (int round = 0; round < 1000 && !is_seen; round++) {
        struct request *first = request_run_make(1000, 0), *second = request_run_make(10, 0);
        assert_int_equal(engine_client_submit(engine, first), STATUS_OK);
        usleep((useconds_t)(200 * (round % 50)));
        assert_int_equal(engine_client_submit(engine, second), STATUS_OK);
        for (int n_home = 0; n_home < 2;) {
            struct event event;
            if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
            n_home += event.kind == EVENT_FINISHED;
        }
        assert_int_equal(first->stats.n_prefill_steps, 1);
        is_seen = second->stats.admitted_ns < first->stats.prefill_end_ns &&
                  second->stats.admitted_ns > first->stats.prefill_start_ns;
        engine_client_free(&first);
        engine_client_free(&second);
    }
    assert_true(is_seen);
    engine_destroy(&engine);
}

/* Returns how many of the two have finished meanwhile: until then their stats are the engine's. */
static int count_tokens(struct engine *engine, struct request *const *requests, int *n_tokens, int n_wanted) {
    int n_finished = 0;
    while (n_tokens[1] < n_wanted) {
        struct event event;
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
        for (int i = 0; i < 2; i++) n_tokens[i] += event.kind == EVENT_TOKEN && event.request_id == requests[i]->id;
        n_finished += event.kind == EVENT_FINISHED;
    }
    return n_finished;
}

/* One client reads nothing: it alone waits, with as many tokens as it said. */
static void a_slow_reader_waits_alone(void **state) {
    (void)state;
    struct engine *engine = request_run_start(&request_run_plain, 2);
    struct request *requests[2] = {request_run_make(20, 60), request_run_make(40, 400)};
    int n_tokens[2] = {0};
    for (int i = 0; i < 2; i++) {
        requests[i]->max_unread = i == 0 ? 7 : 0;
        assert_int_equal(engine_client_submit(engine, requests[i]), STATUS_OK);
    }
    count_tokens(engine, requests, n_tokens, 100);
    assert_int_equal(n_tokens[0], 7);
    engine_client_acknowledge(requests[0], 3);
    count_tokens(engine, requests, n_tokens, 200);
    assert_int_equal(n_tokens[0], 10);
    engine_client_acknowledge(requests[0], 1000);
    int n_finished = count_tokens(engine, requests, n_tokens, 400);
    while (n_finished < 2) {
        struct event event;
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
        n_finished += event.kind == EVENT_FINISHED;
        n_tokens[0] += event.kind == EVENT_TOKEN && event.request_id == requests[0]->id;
    }
    assert_int_equal(n_tokens[0], 60);
    assert_true(requests[0]->stats.part_ns[PHASE_BLOCKED] > 0);
    assert_int_equal(requests[1]->stats.part_ns[PHASE_BLOCKED], 0);
    for (int i = 0; i < 2; i++) engine_client_free(&requests[i]);
    engine_destroy(&engine);
}

static void who_never_reads_is_cut(void **state) {
    (void)state;
    struct engine *engine = request_run_start(&request_run_plain, 1);
    struct request *request = request_run_make(20, 60);
    request->max_unread = 5;
    request->max_blocked_ns = 30000000;
    int64_t start_ns = clock_now_ns();
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    struct event event = request_run_await(engine, request->id);
    assert_int_equal(event.reason, FINISH_UNREAD);
    assert_int_equal(request->choices[0].n_new_tokens, 5);
    assert_true(clock_now_ns() - start_ns >= 30000000);
    assert_true(request->stats.part_ns[PHASE_BLOCKED] >= 25000000);
    if (!strstr(request->note.text, "5 tokens")) fail_msg("it says '%s'", request->note.text);
    engine_client_free(&request);
    /* the engine goes on */
    request = request_run_make(20, 5);
    request_run_ask(engine, request);
    engine_client_free(&request);
    engine_destroy(&engine);
}

/* ---- accounts ---- */

static void check_account(const struct request *request) {
    const struct phase_stats *stats = &request->stats;
    int64_t all_ns = stats->finished_ns - stats->submitted_ns, sum_ns = 0;
    for (int i = 0; i < N_PHASES; i++) {
        assert_true(stats->part_ns[i] >= 0);
        sum_ns += stats->part_ns[i];
    }
    if (phase_stats_unaccounted_ns(stats) > 1000000 || phase_stats_unaccounted_ns(stats) < 0)
        fail_msg("%lld ns of %lld are unaccounted", (long long)phase_stats_unaccounted_ns(stats), (long long)all_ns);
    assert_true(sum_ns > 0);
}

/* A prompt beside a running stream and another prompt: own steps, lost ones, and what its rows cost. */
static void time_goes_where_it_was_spent(void **state) {
    (void)state;
    struct exact_options exact = {.threads = 1, .chunk = 64, .block_tokens = 16};
    struct engine *engine = request_run_start(&exact, 4);
    struct request *requests[4];
    for (int i = 0; i < 4; i++) {
        requests[i] = request_run_make(i == 3 ? 20 : 600, i == 3 ? 200 : 10);
        requests[i]->tokens[0] = (uint32_t)i;
        assert_int_equal(engine_client_submit(engine, requests[i]), STATUS_OK);
    }
    assert_int_equal(engine_client_cancel(engine, requests[2]->id), STATUS_OK);
    for (int n_home = 0; n_home < 4;) {
        struct event event;
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
        n_home += event.kind == EVENT_FINISHED;
    }
    for (int i = 0; i < 4; i++) check_account(requests[i]);
    for (int i = 0; i < 2; i++) {
        const struct phase_stats *stats = &requests[i]->stats;
        assert_true(stats->part_ns[PHASE_PREFILL_OWN] > 0 && stats->part_ns[PHASE_FIRST_SAMPLE] > 0);
        assert_true(stats->part_ns[PHASE_DECODE] > 0);
        /* 2 layers of 256 x (256 + 128 + 128 + 256) + 3 x 256 x 512, at 2 FLOPs, and the output layer */
        double products = 2 * 600.0 * 2 * (256.0 * 768 + 3 * 256.0 * 512) + 2.0 * 256 * 320;
        double attention = 2 * 4 * 256.0 * (600.0 * 601 / 2);
        assert_true(fabs(stats->prefill.flops - products - attention) < 1e-6 * products);
        assert_true(stats->prefill.kv_bytes_written == 600.0 * 2 * 2 * 128 * 2);
        assert_true(stats->decode.kv_bytes_written == 9.0 * 2 * 2 * 128 * 2);
        assert_true(stats->decode.bytes_read > 0 && stats->prefill.bytes_read > 0);
    }
    assert_int_equal(requests[2]->choices[0].reason, FINISH_CANCELLED);
    for (int i = 0; i < 4; i++) engine_client_free(&requests[i]);
    engine_destroy(&engine);
}

/* The caller's own parts count from the first byte on. */
static void the_callers_parts_are_kept(void **state) {
    (void)state;
    struct engine *engine = request_run_start(&request_run_plain, 1);
    struct request *request = request_run_make(20, 5);
    int64_t now_ns = clock_now_ns();
    request->stats.received_ns = now_ns - 10000000;
    phase_stats_add(&request->stats, PHASE_READ, now_ns - 10000000, now_ns - 7000000);
    phase_stats_add(&request->stats, PHASE_TOKENIZE, now_ns - 7000000, now_ns);
    request_run_ask(engine, request);
    assert_int_equal(request->stats.part_ns[PHASE_READ], 3000000);
    assert_int_equal(request->stats.part_ns[PHASE_TOKENIZE], 7000000);
    check_account(request);
    engine_client_free(&request);
    engine_destroy(&engine);
}

/* ---- several answers ---- */

enum { N_CHOICES = 4, N_ANSWER = 40 };

static uint32_t choice_answers[N_CHOICES][N_ANSWER];
static bool is_room_scarce;

/* Each choice of n is what a request of its own gives with the choice's number. */
static void alone(struct engine *engine, int choice, uint32_t *out_answer) {
    struct request *request = request_run_make(N_PROMPT, N_ANSWER);
    request->sampling = (struct sampling){.temperature = 1.2f, .top_p = 1, .seed = 21, .choice = (uint32_t)choice};
    request->has_cache = false;
    request_run_ask(engine, request);
    memcpy(out_answer, engine_client_answer(request, 0), N_ANSWER * sizeof *out_answer);
    engine_client_free(&request);
}

static void choices(struct engine *engine, const struct exact_options *exact, bool is_first) {
    for (int i = 0; is_first && i < N_CHOICES; i++) alone(engine, i, choice_answers[i]);
    struct request *request = engine_client_make_choices(request_run_prompt, N_PROMPT, N_ANSWER, N_CHOICES);
    assert_non_null(request);
    static struct token_logprob scored[N_CHOICES][N_ANSWER][1];
    request->sampling = (struct sampling){.temperature = 1.2f, .top_p = 1, .seed = 21};
    request->logprobs = scored[0][0];
    int64_t n_before = engine_read_stats(engine).n_prefill_rows;
    request_run_ask(engine, request);
    for (int i = 0; i < N_CHOICES; i++) {
        assert_int_equal(request->choices[i].reason, FINISH_LENGTH);
        assert_int_equal(request->choices[i].n_new_tokens, N_ANSWER);
        if (memcmp(engine_client_answer(request, i), choice_answers[i], sizeof choice_answers[i]) != 0)
            fail_msg("choice %d differs (threads %d, chunk %d, block %d, cache %d)", i, exact->threads, exact->chunk,
                     exact->block_tokens, exact->has_prefix_cache);
        for (int t = 0; t < N_ANSWER; t++) assert_int_equal(scored[i][t][0].id, choice_answers[i][t]);
    }
    assert_int_equal(request->stats.n_new_tokens, N_CHOICES * N_ANSWER);
    /* the prompt was computed once, but for choices that had to wait for room */
    double computed_tokens = request->stats.prefill.kv_bytes_written / 1024;
    assert_true(is_room_scarce ? computed_tokens > N_PROMPT || exact->has_prefix_cache : computed_tokens <= N_PROMPT);
    if (is_first) assert_int_equal(engine_read_stats(engine).n_prefill_rows - n_before, N_PROMPT);
    engine_client_free(&request);
}

static void choices_share_a_prompt(void **state) {
    (void)state;
    request_run_every_way(choices);
}

/* Some of the choices find no blocks when the prompt has been computed: they come later, with the same tokens. */
static void choices_wait_for_room(void **state) {
    (void)state;
    is_room_scarce = true;
    for (int has_cache = 0; has_cache < 2; has_cache++) {
        struct exact_options exact = {.threads = 1, .chunk = 32, .block_tokens = 16, .has_prefix_cache = has_cache};
        struct engine *engine = request_run_start_with(&exact, N_CHOICES, N_PROMPT + N_ANSWER + 16);
        choices(engine, &exact, false);
        struct engine_stats stats;
        do stats = engine_read_stats(engine);
        while (stats.n_running);
        assert_int_equal(stats.n_held_blocks, 0);
        engine_destroy(&engine);
    }
    is_room_scarce = false;
}

/* Cancelled in the prompt: all end at once; cancelled later: none is left behind. */
static void all_choices_leave_together(void **state) {
    (void)state;
    struct exact_options exact = {.threads = 1, .chunk = 1, .block_tokens = 16, .has_prefix_cache = true};
    struct engine *engine = request_run_start(&exact, N_CHOICES);
    for (int round = 0; round < 2; round++) {
        struct request *request = engine_client_make_choices(request_run_prompt + round, 500, 400, N_CHOICES);
        assert_non_null(request);
        int64_t n_steps = engine_read_stats(engine).n_steps;
        assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
        while (engine_read_stats(engine).n_steps < n_steps + (round ? 520 : 20)) usleep(100);
        assert_int_equal(engine_client_cancel(engine, request->id), STATUS_OK);
        int n_ended = 0;
        struct event event;
        do {
            if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
            n_ended += event.kind == EVENT_CHOICE_FINISHED;
        } while (event.kind != EVENT_FINISHED);
        assert_int_equal(n_ended, N_CHOICES);
        for (int i = 0; i < N_CHOICES; i++) {
            assert_int_equal(request->choices[i].reason, FINISH_CANCELLED);
            assert_true(round ? request->choices[i].n_new_tokens > 0 : request->choices[i].n_new_tokens == 0);
        }
        check_account(request);
        engine_client_free(&request);
        struct engine_stats stats;
        do stats = engine_read_stats(engine);
        while (stats.n_running);
        assert_int_equal(stats.n_held_blocks, 0);
    }
    struct request *request = engine_client_make_choices(request_run_prompt, 5, 5, N_CHOICES + 1);
    request_run_expect_refusal(engine, request, STATUS_LIMIT, "n 5 is not within 1..4");
    request = engine_client_make_choices(request_run_prompt, 5, 0, 2);
    request_run_expect_refusal(engine, request, STATUS_INVALID, "n 2 with max_tokens 0");
    engine_destroy(&engine);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_nobody_waits_for_is_abandoned),
        cmocka_unit_test(an_abandoned_step_leaves_no_trace),
        cmocka_unit_test(a_long_step_ends_for_who_is_waited_for),
        cmocka_unit_test(requests_are_admitted_between_layers),
        cmocka_unit_test(a_slow_reader_waits_alone),
        cmocka_unit_test(who_never_reads_is_cut),
        cmocka_unit_test(time_goes_where_it_was_spent),
        cmocka_unit_test(the_callers_parts_are_kept),
        cmocka_unit_test(choices_share_a_prompt),
        cmocka_unit_test(choices_wait_for_room),
        cmocka_unit_test(all_choices_leave_together),
    };
    return cmocka_run_group_tests(tests, request_run_set_up, request_run_tear_down);
}
