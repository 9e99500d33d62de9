/* What a request is told before any work: refusals with their reasons and times, estimates, and the counts of both. */
#include "support/request_run.h"

#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "support/test.h"

#define MS INT64_C(1000000)
#define N_BEFORE 8

static struct engine *start(enum policy_kind policy, int max_sequences, const struct admission_limits *limits) {
    struct engine_options options = request_run_options(&request_run_plain, max_sequences, 8 * REQUEST_RUN_MAX_CONTEXT);
    struct status_note note = {0};
    struct engine *engine;
    options.max_chunk = 64;
    options.has_prefix_cache = true;
    options.policy = policy;
    /* A sanitizer's rows take so long that a step would have one: hundreds of steps for each prompt. */
    int64_t longer = test_is_slow_build() ? 20 : 1;
    options.target_itl_ns = 5 * longer * MS;
    options.max_step_ns = 6 * longer * MS;
    options.calibrate_ns = 200 * MS;
    if (limits) options.admission = *limits;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

static struct event next_of(struct engine *engine, uint64_t id, enum event_kind kind) {
    struct event event;
    do
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
    while (event.request_id != id || event.kind != kind);
    return event;
}

static struct event submit(struct engine *engine, struct request *request) {
    struct event event;
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    do
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
    while (event.request_id != request->id);
    return event;
}

static void expect_refused(struct engine *engine, struct request *request, enum status status,
                           enum admission_reason reason, bool may_come_again, const char *word) {
    struct event event = submit(engine, request);
    assert_int_equal(event.kind, EVENT_REFUSED);
    if (event.refusal != reason)
        fail_msg("refused as %s, not %s", admission_reason_name(event.refusal), admission_reason_name(reason));
    assert_int_equal(event.status, status);
    assert_true(may_come_again ? event.retry_after_ns > 0 : event.retry_after_ns == 0);
    if (!strstr(request->note.text, word)) fail_msg("'%s' does not say '%s'", request->note.text, word);
    engine_client_free(&request);
}

static struct engine_stats settled_stats(struct engine *engine, int64_t n_taken) {
    struct engine_stats stats = engine_read_stats(engine);
    for (int i = 0; i < 10000 && stats.n_taken < n_taken; i++) {
        thread_sleep_ms(1);
        stats = engine_read_stats(engine);
    }
    return stats;
}

static void what_can_never_be_is_said_so(void **state) {
    (void)state;
    struct admission_limits limits = {.max_prompt = {[TERMS_BATCH] = 100}};
    struct engine *engine = start(POLICY_PROMISES, 4, &limits);
    expect_refused(engine, request_run_make(1000, 25), STATUS_LIMIT, ADMISSION_CONTEXT, false, "1000 tokens");
    struct request *request = request_run_make(101, 4);
    request->class_ = REQUEST_BATCH;
    expect_refused(engine, request, STATUS_LIMIT, ADMISSION_INPUT_CAP, false, "100");
    request = request_run_make(101, 4);
    request->deadline_ns = clock_now_ns() - 1;
    expect_refused(engine, request, STATUS_TIMEOUT, ADMISSION_DEADLINE, false, "deadline");
    request = request_run_make(9, 4);
    request->min_new = 5;
    expect_refused(engine, request, STATUS_INVALID, ADMISSION_ADMITTED, false, "min_tokens");
    struct engine_stats stats = settled_stats(engine, 4);
    assert_true(stats.n_refused == 4 && stats.n_admitted == 0 && stats.n_in_inbox == 0);
    assert_int_equal(stats.n_refused_by[ADMISSION_CONTEXT], 1);
    assert_int_equal(stats.n_refused_by[ADMISSION_INPUT_CAP], 1);
    assert_int_equal(stats.n_refused_by[ADMISSION_DEADLINE], 1);
    assert_int_equal(stats.n_refused_by[ADMISSION_ADMITTED], 1);
    engine_destroy(&engine);
}

/* Somebody answers for a long time and takes three of four places. */
static void a_full_queue_says_when_to_come_again(void **state) {
    (void)state;
    struct engine *engine = start(POLICY_PROMISES, 4, NULL);
    struct request *long_one = engine_client_make_choices(request_run_prompt, 50, 900, 3);
    assert_non_null(long_one);
    assert_int_equal(submit(engine, long_one).kind, EVENT_ADMITTED);
    struct request *pair = engine_client_make_choices(request_run_prompt, 50, 4, 2);
    assert_non_null(pair);
    expect_refused(engine, pair, STATUS_BUSY, ADMISSION_QUEUE, true, "the queue is full");
    struct request *one = request_run_make(60, 900);
    assert_int_equal(submit(engine, one).kind, EVENT_ADMITTED);
    struct event event;
    struct request *more = request_run_make(70, 4);
    event = submit(engine, more);
    assert_true(event.kind == EVENT_REFUSED && event.refusal == ADMISSION_QUEUE);
    /* hundreds of tokens are to come before a place is free: not at once, and not in an hour */
    assert_true(event.retry_after_ns > 5 * MS && event.retry_after_ns < 3600 * 1000 * MS);
    engine_client_free(&more);
    assert_int_equal(engine_client_cancel(engine, long_one->id), STATUS_OK);
    assert_int_equal(engine_client_cancel(engine, one->id), STATUS_OK);
    request_run_await(engine, one->id); /* it was cancelled last */
    engine_destroy(&engine);
    engine_client_free(&long_one);
    engine_client_free(&one);
}

static void classes_have_queues_of_their_own(void **state) {
    (void)state;
    struct admission_limits limits = {.max_waiting = {[TERMS_BATCH] = 1}};
    struct engine *engine = start(POLICY_PROMISES, 6, &limits);
    struct request *requests[4];
    for (int i = 0; i < 4; i++) {
        requests[i] = request_run_make(900 + i, 1);
        requests[i]->class_ = i < 3 ? REQUEST_BATCH : REQUEST_INTERACTIVE;
        requests[i]->has_cache = false;
        assert_int_equal(engine_client_submit(engine, requests[i]), STATUS_OK);
    }
    int n_refused = 0;
    for (int n_home = 0; n_home < 4;) {
        struct event event;
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
        if (event.kind == EVENT_REFUSED) {
            assert_int_equal(event.refusal, ADMISSION_QUEUE);
            assert_int_equal(event.request->class_, REQUEST_BATCH);
            n_refused++;
        }
        n_home += event.kind == EVENT_REFUSED || event.kind == EVENT_FINISHED;
    }
    assert_int_equal(n_refused, 2);
    for (int i = 0; i < 4; i++) engine_client_free(&requests[i]);
    engine_destroy(&engine);
}

/* Told and measured, several times; the machine is shared, so the best of them counts. */
static void first_tokens_come_when_told(void **state) {
    (void)state;
    struct engine *engine = start(POLICY_PROMISES, 4, NULL);
    double best = 1e9;
    for (int i = 0; i < 6; i++) {
        struct request *request = request_run_make(800, 4);
        request->has_cache = false;
        struct event event = submit(engine, request);
        assert_true(event.kind == EVENT_ADMITTED && event.estimate_ns > 0);
        request_run_await(engine, request->id);
        const struct phase_stats *stats = &request->stats;
        assert_int_equal(stats->predicted_ns - stats->admitted_ns, event.estimate_ns);
        double ratio = (double)(stats->first_token_ns - stats->admitted_ns) / (double)event.estimate_ns;
        if (ratio < 1) ratio = 1 / ratio;
        if (ratio < best) best = ratio;
        engine_client_free(&request);
    }
    if (best > 4) fail_msg("first tokens came %.1f times earlier or later than told", best);
    struct engine_stats stats = engine_read_stats(engine);
    assert_true(stats.promises[REQUEST_INTERACTIVE].n == 6 && stats.promises[REQUEST_BATCH].n == 0);
    assert_true(stats.promises[REQUEST_INTERACTIVE].predicted_ns > 0);
    assert_int_equal(stats.n_prompt_tokens, 6 * 800);
    engine_destroy(&engine);
}

static int64_t asked_ns(struct engine *engine, int n_prompt) {
    struct request *request = request_run_make(n_prompt, 4);
    assert_int_equal(engine_client_ask(engine, request), STATUS_OK);
    int64_t estimate_ns = next_of(engine, request->id, EVENT_ESTIMATED).estimate_ns;
    engine_client_free(&request);
    return estimate_ns;
}

static void asking_is_free_and_knows_the_cache(void **state) {
    (void)state;
    struct engine *engine = start(POLICY_PROMISES, 4, NULL);
    int64_t cold_ns = asked_ns(engine, 800), short_ns = asked_ns(engine, 50);
    assert_true(cold_ns > 2 * short_ns && short_ns > 0);
    struct request *request = request_run_make(800, 4);
    request_run_ask(engine, request);
    assert_int_equal(request->stats.n_cached_tokens, 0); /* asking has computed nothing */
    engine_client_free(&request);
    assert_true(asked_ns(engine, 800) < cold_ns / 2);
    request = request_run_make(800, 4);
    request_run_ask(engine, request);
    int n_cached = request->stats.n_cached_tokens;
    assert_true(n_cached > 700);
    engine_client_free(&request);
    struct engine_stats stats = settled_stats(engine, 5);
    assert_true(stats.n_admitted == 2 && stats.n_refused == 0);
    assert_int_equal(stats.n_cache_asked, 1600);
    assert_int_equal(stats.n_cache_found, n_cached);
    assert_int_equal(stats.n_misses[PREFIX_MISS_NEW], 1);
    engine_destroy(&engine);
}

/* One who may wait much less than those before it take is told so, and by first come, first served it is not. */
static void a_deadline_behind_others(void **state) {
    (void)state;
    for (int is_fcfs = 0; is_fcfs < 2; is_fcfs++) {
        struct engine *engine = start(is_fcfs ? POLICY_FCFS : POLICY_PROMISES, N_BEFORE + 1, NULL);
        int64_t alone_ns = asked_ns(engine, 1000);
        struct request *before[N_BEFORE];
        for (int i = 0; i < N_BEFORE; i++) {
            before[i] = request_run_make(960 + i, 1);
            before[i]->has_cache = false;
            assert_int_equal(engine_client_submit(engine, before[i]), STATUS_OK);
        }
        struct request *late = request_run_make(1000, 1);
        late->has_cache = false;
        late->deadline_ns = clock_now_ns() + alone_ns * 3 / 2;
        assert_int_equal(engine_client_submit(engine, late), STATUS_OK);
        struct event event;
        do
            if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
        while (event.request_id != late->id);
        assert_int_equal(event.kind, is_fcfs ? EVENT_ADMITTED : EVENT_REFUSED);
        if (!is_fcfs) {
            assert_int_equal(event.refusal, ADMISSION_DEADLINE);
            assert_true(event.estimate_ns > alone_ns);
        }
        engine_destroy(&engine);
        engine_client_free(&late);
        for (int i = 0; i < N_BEFORE; i++) engine_client_free(&before[i]);
    }
}

/* Steps without bound and cost: nothing is foretold, so nothing is refused for it. */
static void without_costs_nothing_is_promised(void **state) {
    (void)state;
    struct engine *engine = request_run_start(&request_run_plain, 2);
    struct request *request = request_run_make(100, 2);
    request->deadline_ns = 1;
    struct event event = submit(engine, request);
    assert_true(event.kind == EVENT_ADMITTED && event.estimate_ns == 0);
    request_run_await(engine, request->id);
    assert_int_equal(request->stats.predicted_ns, 0);
    engine_client_free(&request);
    engine_destroy(&engine);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_never_be_is_said_so),       cmocka_unit_test(a_full_queue_says_when_to_come_again),
        cmocka_unit_test(classes_have_queues_of_their_own),   cmocka_unit_test(first_tokens_come_when_told),
        cmocka_unit_test(asking_is_free_and_knows_the_cache), cmocka_unit_test(a_deadline_behind_others),
        cmocka_unit_test(without_costs_nothing_is_promised),
    };
    return cmocka_run_group_tests(tests, request_run_set_up, request_run_tear_down);
}
