/* One request has one answer: ids and logits of the engine, bit for bit, whatever the EXACT options, the cache and the
 * other requests; and what happens to requests that are refused, cancelled or read late. */
#include "engine/engine.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "engine/engine_client.h"
#include "support/exact_options.h"
#include "support/model_file.h"
#include "support/test.h"
#include "weights/gguf.h"

#define N_ASKS 3
#define MAX_CONTEXT 512
#define N_VOCAB MODEL_FILE_N_VOCAB
#define N_LOGIT_ROWS 20 /* of the request that wants logits */

static char model_path[MODEL_FILE_MAX_PATH];
static struct gguf *gguf;

/* What is asked, and the answer that counts: computed alone, whole, on one thread, without a cache. */
struct ask {
    int n_prompt, max_new;
    struct sampling sampling;
    bool has_logits;
    uint32_t tokens[MAX_CONTEXT];
    float logits[N_LOGIT_ROWS][N_VOCAB];
};

static struct ask asks[N_ASKS] = {
    {.n_prompt = 120, .max_new = 40, .sampling = {.top_p = 1}},
    {.n_prompt = 47, .max_new = 40, .sampling = {.temperature = 1, .top_p = 1, .seed = 42}},
    {.n_prompt = 200,
     .max_new = 33,
     .has_logits = true,
     .sampling = {.temperature = 2, .top_k = 40, .top_p = 0.9f, .min_p = 0.01f, .seed = 7, .choice = 1}}};

static enum dtype kv_dtype = DTYPE_I8; /* the default */

static const struct exact_options plain = {.threads = 1, .block_tokens = 16};

static struct engine *start_engine(const struct exact_options *exact, int max_sequences, int kv_tokens) {
    struct engine_options options = {.gguf = gguf,
                                     .tiers = cpu_detect(),
                                     .kv_dtype = kv_dtype,
                                     .n_threads = exact->threads,
                                     .n_decode_threads = exact->decode_threads,
                                     .is_unpinned = exact->is_unpinned,
                                     .max_chunk = exact->chunk ? exact->chunk : MAX_CONTEXT,
                                     .block_tokens = exact->block_tokens,
                                     .max_context = MAX_CONTEXT,
                                     .max_sequences = max_sequences,
                                     .kv_tokens = kv_tokens,
                                     .max_logit_rows = max_sequences > 16 ? max_sequences : 16,
                                     .has_prefix_cache = exact->has_prefix_cache,
                                     .policy = exact->is_fcfs ? POLICY_FCFS : POLICY_PROMISES,
                                     .admission = {.takes_late = true}, /* however slow the machine */
                                     .target_itl_ns = exact->target_itl_ms * INT64_C(1000000),
                                     .max_step_ns = exact->max_step_ms * INT64_C(1000000)};
    struct status_note note = {0};
    struct engine *engine;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

static struct request *make_request(const struct ask *ask, float *logits) {
    struct request *request = engine_client_make(ask->tokens, ask->n_prompt, ask->max_new);
    assert_non_null(request);
    request->sampling = ask->sampling;
    if (ask->has_logits) {
        request->logits = logits;
        request->logits_from = ask->n_prompt - N_LOGIT_ROWS;
    }
    return request;
}

/* Waits for the last events of n requests; every token event must be the request's next token. */
static void await(struct engine *engine, struct request **requests, int n, enum finish_reason *out_reasons) {
    int n_home = 0, n_seen[64] = {0};
    while (n_home < n) {
        struct event event;
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
        int i = 0;
        while (i < n && requests[i]->id != event.request_id) i++;
        assert_true(i < n);
        if (event.kind == EVENT_TOKEN) {
            assert_int_equal(event.token, requests[i]->tokens[requests[i]->n_prompt + n_seen[i]]);
            n_seen[i]++;
        }
        if (event.kind == EVENT_REFUSED) fail_msg("refused: %s", event.request->note.text);
        if (event.kind != EVENT_FINISHED) continue;
        assert_ptr_equal(event.request, requests[i]);
        int n_told = event.reason == FINISH_STOP ? n_seen[i] + 1 : n_seen[i];
        assert_int_equal(requests[i]->stats.n_new_tokens, n_told);
        out_reasons[i] = event.reason;
        n_home++;
    }
}

static void check_answer(const struct ask *ask, const struct request *request, const float *logits, const char *what,
                         const struct exact_options *exact) {
    int n = ask->n_prompt + ask->max_new;
    for (int i = 0; i < n; i++)
        if (request->tokens[i] != ask->tokens[i])
            fail_msg(
                "%s: token %d (answer %d) is %u, expected %u (threads %d, chunk %d, block %d, cache %d, %d cached)",
                what, i, i - ask->n_prompt, request->tokens[i], ask->tokens[i], exact->threads, exact->chunk,
                exact->block_tokens, exact->has_prefix_cache, request->stats.n_cached_tokens);
    if (ask->has_logits && memcmp(logits, ask->logits, sizeof ask->logits) != 0)
        fail_msg("%s: logits differ (threads %d, chunk %d, block %d, cache %d, %d cached)", what, exact->threads,
                 exact->chunk, exact->block_tokens, exact->has_prefix_cache, request->stats.n_cached_tokens);
}

/* Asks [first, first + n) at the same time. out_cached: [n] may be NULL. */
static void ask_together(struct engine *engine, int first, int n, const char *what, const struct exact_options *exact,
                         int *out_cached) {
    static float logits[N_ASKS][N_LOGIT_ROWS * N_VOCAB];
    struct request *requests[N_ASKS];
    enum finish_reason reasons[N_ASKS];
    for (int i = 0; i < n; i++) {
        requests[i] = make_request(&asks[first + i], logits[i]);
        assert_int_equal(engine_client_submit(engine, requests[i]), STATUS_OK);
    }
    await(engine, requests, n, reasons);
    for (int i = 0; i < n; i++) {
        assert_int_equal(reasons[i], FINISH_LENGTH);
        check_answer(&asks[first + i], requests[i], logits[i], what, exact);
        if (out_cached) out_cached[i] = requests[i]->stats.n_cached_tokens;
        engine_client_free(&requests[i]);
    }
}

/* The answer of a fresh engine without a cache to any request. */
static void answer_cold(struct ask *ask) {
    struct engine *engine = start_engine(&plain, 1, MAX_CONTEXT);
    struct request *request = make_request(ask, &ask->logits[0][0]);
    request->has_cache = false;
    assert_int_equal(engine_client_run(engine, request), STATUS_OK);
    assert_int_equal(request->stats.n_cached_tokens, 0);
    memcpy(ask->tokens, request->tokens, (size_t)(ask->n_prompt + ask->max_new) * sizeof(uint32_t));
    engine_client_free(&request);
    engine_destroy(&engine);
}

static int set_up(void **state) {
    struct status_note note = {0};
    (void)state;
    model_file_make(DTYPE_Q4_1, 5, model_path);
    if (gguf_open(&gguf, model_path, &note)) return -1;
    for (int i = 0; i < N_ASKS; i++) {
        model_file_random_ids(900 + (uint64_t)i, N_VOCAB, asks[i].tokens, asks[i].n_prompt);
        answer_cold(&asks[i]);
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    gguf_close(&gguf);
    return unlink(model_path);
}

/* ---- equal answers ---- */

static void sampled_answers_are_no_constants(void **state) {
    (void)state;
    for (int i = 0; i < N_ASKS; i++) {
        const uint32_t *answer = asks[i].tokens + asks[i].n_prompt;
        int n_changes = 0;
        for (int t = 1; t < asks[i].max_new; t++) n_changes += answer[t] != answer[t - 1];
        if (asks[i].sampling.temperature > 0) assert_true(n_changes > asks[i].max_new / 2);
    }
}

/* Tokens of an ask that its second run finds: all but the last, or those before the wanted logits, as far as full
 * blocks of the first run reach. */
static int expected_hit(const struct ask *ask, int block_tokens) {
    int n_usable = ask->has_logits ? ask->n_prompt - N_LOGIT_ROWS : ask->n_prompt - 1;
    int n_published = (ask->n_prompt + ask->max_new - 1) / block_tokens * block_tokens;
    return n_usable < n_published ? n_usable : n_published;
}

static void answers_do_not_depend_on_the_way(void **state) {
    (void)state;
    for (int sample = 0; sample < 2 * exact_options_n_values(); sample++) {
        struct exact_options exact = exact_options_sample(31, sample);
        struct engine *engine = start_engine(&exact, 4, 4 * MAX_CONTEXT);
        int cached[N_ASKS] = {0};
        for (int i = 0; i < N_ASKS; i++) ask_together(engine, i, 1, "alone", &exact, &cached[i]);
        for (int i = 0; i < N_ASKS; i++) assert_int_equal(cached[i], 0);
        ask_together(engine, 0, N_ASKS, "together", &exact, cached);
        for (int i = 0; i < N_ASKS; i++)
            assert_int_equal(cached[i], exact.has_prefix_cache ? expected_hit(&asks[i], exact.block_tokens) : 0);
        struct engine_stats stats = engine_read_stats(engine);
        assert_true(stats.layer_ops.attention_keys > 0);
        /* Where steps are bounded in time, a slow machine runs prompts a row at a time. */
        bool has_long_steps = exact.chunk != 1 && !exact.target_itl_ms && !exact.max_step_ms;
        assert_true(!has_long_steps || stats.layer_ops.attention_rows > 0);
        engine_destroy(&engine);
        engine = start_engine(&exact, 4, 4 * MAX_CONTEXT);
        ask_together(engine, 0, N_ASKS, "together, cold", &exact, NULL);
        engine_destroy(&engine);
    }
}

static void every_exact_option_is_toggled(void **state) {
    (void)state;
    exact_options_check();
}

/* More is asked for than the pool holds: requests wait, blocks are given away and come back. */
static void a_full_pool_changes_nothing(void **state) {
    (void)state;
    struct exact_options exact = {.threads = 2, .chunk = 33, .block_tokens = 16, .has_prefix_cache = true};
    struct engine *engine = start_engine(&exact, 8, MAX_CONTEXT);
    static float logits[9][N_LOGIT_ROWS * N_VOCAB];
    for (int round = 0; round < 3; round++) {
        struct request *requests[8];
        enum finish_reason reasons[8];
        for (int i = 0; i < 8; i++) {
            requests[i] = make_request(&asks[(i + round) % N_ASKS], logits[i]);
            assert_int_equal(engine_client_submit(engine, requests[i]), STATUS_OK);
        }
        await(engine, requests, 8, reasons);
        for (int i = 0; i < 8; i++) {
            check_answer(&asks[(i + round) % N_ASKS], requests[i], logits[i], "full pool", &exact);
            engine_client_free(&requests[i]);
        }
    }
    engine_destroy(&engine);
}

/* A prompt that shares part of a block with what fills the whole pool needs that block for itself. */
static void a_partial_hit_cannot_starve(void **state) {
    (void)state;
    struct exact_options exact = {.threads = 1, .chunk = 64, .block_tokens = 16, .has_prefix_cache = true};
    struct ask ask = {.n_prompt = MAX_CONTEXT - 1, .max_new = 1, .sampling = {.top_p = 1}};
    struct engine *engine = start_engine(&exact, 2, MAX_CONTEXT);
    model_file_random_ids(55, N_VOCAB, ask.tokens, MAX_CONTEXT);
    for (int round = 0; round < 2; round++) {
        struct request *request = make_request(&ask, NULL);
        enum finish_reason reason;
        assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
        await(engine, &request, 1, &reason);
        engine_client_free(&request);
        model_file_random_ids(56, N_VOCAB, ask.tokens + 5, MAX_CONTEXT - 5);
    }
    engine_destroy(&engine);
}

/* ---- what is reused ---- */

/* Prompts of whole blocks and one more or less, each three times, then with the answer and five more ids. */
static void a_prompt_that_fills_its_blocks_is_found(void **state) {
    (void)state;
    enum { B = 16 };
    static const int n_prompts[] = {B, 2 * B, 3 * B, 2 * B - 1, 2 * B + 1};
    struct exact_options exact = {.threads = 1, .block_tokens = B, .has_prefix_cache = true};
    struct engine *engine = start_engine(&exact, 2, 4 * MAX_CONTEXT);
    for (int i = 0; i < 5; i++) {
        struct ask ask = {.n_prompt = n_prompts[i], .max_new = 2 * B + 2, .sampling = {.top_p = 1}};
        model_file_random_ids(300 + (uint64_t)i, N_VOCAB, ask.tokens, ask.n_prompt);
        answer_cold(&ask);
        for (int run = 0; run < 3; run++) {
            struct request *request = make_request(&ask, NULL);
            assert_int_equal(engine_client_run(engine, request), STATUS_OK);
            check_answer(&ask, request, NULL, "again", &exact);
            assert_int_equal(request->stats.n_cached_tokens, run == 0 ? 0 : ask.n_prompt - 1);
            engine_client_free(&request);
        }
        int n_computed = ask.n_prompt + ask.max_new - 1;
        ask.n_prompt += ask.max_new + 5;
        model_file_random_ids(400 + (uint64_t)i, N_VOCAB, ask.tokens + ask.n_prompt - 5, 5);
        answer_cold(&ask);
        struct request *request = make_request(&ask, NULL);
        assert_int_equal(engine_client_run(engine, request), STATUS_OK);
        check_answer(&ask, request, NULL, "with its answer", &exact);
        assert_int_equal(request->stats.n_cached_tokens, n_computed);
        engine_client_free(&request);
    }
    engine_destroy(&engine);
}

/* 100 ids and 50 new ones: 149 have KV, since the last one sampled was never run. */
static void the_answer_is_reused(void **state) {
    (void)state;
    struct exact_options exact = {.threads = 2, .chunk = 7, .block_tokens = 16, .has_prefix_cache = true};
    struct engine *engine = start_engine(&exact, 1, MAX_CONTEXT);
    struct ask ask = {.n_prompt = 100, .max_new = 50, .sampling = {.temperature = 1, .top_p = 1, .seed = 3}};
    model_file_random_ids(500, N_VOCAB, ask.tokens, MAX_CONTEXT);
    for (int turn = 0; turn < 3; turn++) {
        uint32_t next[50];
        model_file_random_ids(501 + (uint64_t)turn, N_VOCAB, next, 50);
        answer_cold(&ask);
        struct request *request = make_request(&ask, NULL);
        assert_int_equal(engine_client_run(engine, request), STATUS_OK);
        check_answer(&ask, request, NULL, "turn", &exact);
        assert_int_equal(request->stats.n_cached_tokens, turn == 0 ? 0 : 100 * turn + 49);
        engine_client_free(&request);
        memcpy(ask.tokens + ask.n_prompt + 50, next, sizeof next);
        ask.n_prompt += 100;
    }
    engine_destroy(&engine);
}

static void a_request_may_refuse_the_cache(void **state) {
    (void)state;
    struct exact_options exact = {.threads = 1, .block_tokens = 16, .has_prefix_cache = true};
    struct engine *engine = start_engine(&exact, 1, MAX_CONTEXT);
    for (int run = 0; run < 4; run++) {
        struct request *request = make_request(&asks[0], NULL);
        request->has_cache = run == 1 || run == 2; /* neither fills (0 before 1) nor uses it (3 after 2) */
        assert_int_equal(engine_client_run(engine, request), STATUS_OK);
        assert_int_equal(request->stats.n_cached_tokens, run == 2 ? asks[0].n_prompt - 1 : 0);
        check_answer(&asks[0], request, NULL, "refuses the cache", &exact);
        engine_client_free(&request);
    }
    engine_destroy(&engine);
}

/* Prompts of one salt are found by that salt alone. */
static void tenants_do_not_meet_in_the_cache(void **state) {
    (void)state;
    static const uint8_t salts[] = {0, 1, 2, 1, 0, 2};
    struct exact_options exact = {.threads = 1, .block_tokens = 16, .has_prefix_cache = true};
    struct engine *engine = start_engine(&exact, 1, 4 * MAX_CONTEXT);
    for (int run = 0; run < 6; run++) {
        struct request *request = make_request(&asks[0], NULL);
        request->salt.bytes[31] = salts[run];
        assert_int_equal(engine_client_run(engine, request), STATUS_OK);
        assert_int_equal(request->stats.n_cached_tokens, run < 3 ? 0 : asks[0].n_prompt - 1);
        check_answer(&asks[0], request, NULL, "salted", &exact);
        engine_client_free(&request);
    }
    engine_destroy(&engine);
}

/* ---- the ends of a request ---- */

static void await_no_held_blocks(struct engine *engine) {
    int64_t end_ns = clock_now_ns() + 5000000000;
    while (engine_read_stats(engine).n_held_blocks != 0) {
        if (clock_now_ns() > end_ns) fail_msg("%d blocks are held", engine_read_stats(engine).n_held_blocks);
        usleep(1000);
    }
    struct engine_stats stats = engine_read_stats(engine);
    assert_int_equal(stats.n_running, 0);
    assert_true(stats.n_free_blocks + stats.n_reusable_blocks > 0);
}

static int64_t n_rows_to_end(const struct request *request) {
    return request->stats.n_prompt_tokens - request->stats.n_cached_tokens + request->stats.n_new_tokens - 1;
}

/* The neighbour has n % 12 tokens when the victim, which came first, leaves, at a time of its own for each n. Returns
 * whether that was within a step of both, which shows in a row that gave no token. */
static bool cancel_beside_a_neighbour(struct engine *engine, const struct exact_options *exact, int n) {
    struct ask victim = {.n_prompt = 30, .max_new = 400, .sampling = {.temperature = 1, .top_p = 1, .seed = 1}};
    model_file_random_ids(600, N_VOCAB, victim.tokens, victim.n_prompt);
    static float logits[N_LOGIT_ROWS * N_VOCAB];
    struct request *requests[2] = {make_request(&victim, NULL), make_request(&asks[2], logits)};
    enum finish_reason reasons[2];
    struct event event;
    int64_t n_rows = engine_read_stats(engine).n_rows;
    assert_int_equal(engine_client_submit(engine, requests[0]), STATUS_OK);
    for (int n_tokens = 0; n_tokens < 5;) {
        assert_true(engine_client_wait(engine, 60000, &event));
        n_tokens += event.kind == EVENT_TOKEN;
    }
    assert_int_equal(engine_client_submit(engine, requests[1]), STATUS_OK);
    for (int n_tokens = 0; n_tokens < n % 12;) {
        assert_true(engine_client_wait(engine, 60000, &event));
        n_tokens += event.kind == EVENT_TOKEN && event.request_id == requests[1]->id;
    }
    usleep((useconds_t)(n % 37 * 10)); /* not a busy wait, which keeps the engine between steps if they share a core */
    assert_int_equal(engine_client_cancel(engine, requests[0]->id), STATUS_OK);
    assert_int_equal(engine_client_cancel(engine, requests[0]->id), STATUS_OK); /* the second does nothing */
    for (int n_home = 0; n_home < 2;) {
        assert_true(engine_client_wait(engine, 60000, &event));
        if (event.kind != EVENT_FINISHED) continue;
        reasons[event.request == requests[1]] = event.reason;
        n_home++;
    }
    assert_int_equal(reasons[0], FINISH_CANCELLED);
    assert_int_equal(reasons[1], FINISH_LENGTH);
    assert_in_range(requests[0]->stats.n_new_tokens, 5, 399);
    check_answer(&asks[2], requests[1], logits, "neighbour of a cancelled request", exact);
    await_no_held_blocks(engine);
    n_rows = engine_read_stats(engine).n_rows - n_rows - n_rows_to_end(requests[0]) - n_rows_to_end(requests[1]);
    assert_in_range(n_rows, 0, 1);
    engine_client_free(&requests[0]);
    engine_client_free(&requests[1]);
    return n_rows == 1;
}

static void cancelling_in_decode_harms_no_neighbour(void **state) {
    (void)state;
    struct exact_options exact = {.threads = 2, .chunk = 16, .block_tokens = 16, .has_prefix_cache = true};
    struct engine *engine = start_engine(&exact, 4, 4 * MAX_CONTEXT);
    int n_within = 0;
    for (int i = 0; i < 1000 && n_within < 2; i++) n_within += cancel_beside_a_neighbour(engine, &exact, i);
    assert_int_equal(n_within, 2);
    engine_destroy(&engine);
}

static void cancelling_in_prefill_gives_blocks_back(void **state) {
    (void)state;
    struct exact_options exact = {.threads = 1, .chunk = 1, .block_tokens = 16, .has_prefix_cache = true};
    struct engine *engine = start_engine(&exact, 2, MAX_CONTEXT);
    struct ask victim = {.n_prompt = 500, .max_new = 4, .sampling = {.top_p = 1}};
    model_file_random_ids(601, N_VOCAB, victim.tokens, victim.n_prompt);
    struct request *request = make_request(&victim, NULL);
    enum finish_reason reason;
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    while (engine_read_stats(engine).n_steps < 20) usleep(100);
    assert_int_equal(engine_client_cancel(engine, request->id), STATUS_OK);
    await(engine, &request, 1, &reason);
    assert_int_equal(reason, FINISH_CANCELLED);
    assert_int_equal(request->stats.n_new_tokens, 0);
    assert_in_range(request->stats.n_prefill_steps, 20, 499);
    engine_client_free(&request);
    await_no_held_blocks(engine); /* with no step after the cancel */
    ask_together(engine, 0, 1, "after a cancel", &exact, NULL);
    engine_destroy(&engine);
}

static void expect_refusal(struct engine *engine, struct request *request, enum status status, const char *word) {
    assert_int_equal(engine_client_run(engine, request), status);
    if (!strstr(request->note.text, word)) fail_msg("'%s' does not say '%s'", request->note.text, word);
    engine_client_free(&request);
}

static void bad_requests_come_home_with_a_reason(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, 2, MAX_CONTEXT);
    uint32_t bad_ids[3] = {1, N_VOCAB, 2};
    struct request *request = engine_client_make(NULL, 0, 4);
    expect_refusal(engine, request, STATUS_INVALID, "no tokens");
    expect_refusal(engine, engine_client_make(bad_ids, 3, 4), STATUS_INVALID, "320");
    bad_ids[1] = UINT32_MAX;
    expect_refusal(engine, engine_client_make(bad_ids, 3, 4), STATUS_INVALID, "4294967295");
    expect_refusal(engine, engine_client_make(asks[0].tokens, 120, MAX_CONTEXT - 119), STATUS_LIMIT, "393");
    expect_refusal(engine, engine_client_make(asks[0].tokens, 120, INT32_MAX - 200), STATUS_LIMIT, "512");
    static const struct sampling samplings[] = {
        {.temperature = -1, .top_p = 1}, {.temperature = NAN, .top_p = 1}, {.top_p = 0}, {.top_p = 1.5f},
        {.top_p = 1, .top_k = -1},       {.top_p = 1, .min_p = 2}};
    static const char *const words[] = {"temperature", "temperature", "top_p", "top_p", "top_k", "min_p"};
    for (int i = 0; i < 6; i++) {
        request = make_request(&asks[0], NULL);
        request->sampling = samplings[i];
        expect_refusal(engine, request, STATUS_INVALID, words[i]);
    }
    float logit;
    for (int i = -1; i <= 1; i += 2) {
        request = make_request(&asks[0], NULL);
        request->logits = &logit;
        request->logits_from = i * asks[0].n_prompt;
        expect_refusal(engine, request, STATUS_INVALID, "logits");
    }
    request = make_request(&asks[0], NULL);
    request->class_ = REQUEST_N_CLASSES;
    expect_refusal(engine, request, STATUS_INVALID, "class 2");
    request = make_request(&asks[0], NULL);
    request->tenant_weight = -3;
    expect_refusal(engine, request, STATUS_INVALID, "tenant_weight -3");
    request = make_request(&asks[0], NULL);
    request->deadline_ns = -1;
    expect_refusal(engine, request, STATUS_INVALID, "deadline");
    ask_together(engine, 0, 1, "after refusals", &plain, NULL);
    engine_destroy(&engine);
}

static void edges_of_length(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, 1, MAX_CONTEXT);
    for (int max_new = 0; max_new <= 2; max_new++) {
        struct request *request = engine_client_make(asks[0].tokens, asks[0].n_prompt, max_new);
        assert_int_equal(engine_client_run(engine, request), STATUS_OK);
        assert_int_equal(request->stats.n_new_tokens, max_new);
        engine_client_free(&request);
    }
    struct request *whole = engine_client_make(asks[0].tokens, asks[0].n_prompt, MAX_CONTEXT - asks[0].n_prompt);
    assert_int_equal(engine_client_run(engine, whole), STATUS_OK);
    assert_int_equal(whole->stats.n_new_tokens, MAX_CONTEXT - asks[0].n_prompt);
    engine_client_free(&whole);
    await_no_held_blocks(engine);
    engine_destroy(&engine);
}

static void a_stop_token_ends_the_answer_unseen(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, 1, MAX_CONTEXT);
    const uint32_t *answer = asks[1].tokens + asks[1].n_prompt;
    int n_until = 0;
    while (answer[n_until] != answer[10]) n_until++;
    struct request *request = make_request(&asks[1], NULL);
    enum finish_reason reason;
    request->stop_tokens[0] = N_VOCAB;
    request->stop_tokens[1] = answer[10];
    request->n_stop_tokens = 2;
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    await(engine, &request, 1, &reason);
    assert_int_equal(reason, FINISH_STOP);
    assert_int_equal(request->stats.n_new_tokens, n_until + 1);
    engine_client_free(&request);
    engine_destroy(&engine);
}

/* ---- a slow reader ---- */

enum { N_SLOW = 16, SLOW_NEW = 400 };

static void submit_slow(struct engine *engine, struct request **requests) {
    for (int i = 0; i < N_SLOW; i++) {
        struct ask ask = {.n_prompt = 10, .max_new = SLOW_NEW, .sampling = {.temperature = 1, .top_p = 1, .seed = 9}};
        model_file_random_ids(700 + (uint64_t)i, N_VOCAB, ask.tokens, ask.n_prompt);
        requests[i] = make_request(&ask, NULL);
        assert_int_equal(engine_client_submit(engine, requests[i]), STATUS_OK);
    }
}

/* Returns when the engine has made no step for a while: the outbox is full. */
static void await_standstill(struct engine *engine) {
    int64_t n_steps;
    do {
        n_steps = engine_read_stats(engine).n_steps;
        usleep(400000);
    } while (engine_read_stats(engine).n_steps != n_steps || n_steps == 0);
    assert_true(n_steps < SLOW_NEW);
}

static void a_slow_reader_loses_nothing(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, N_SLOW, 16 * MAX_CONTEXT);
    struct request *requests[N_SLOW];
    enum finish_reason reasons[N_SLOW];
    submit_slow(engine, requests);
    await_standstill(engine);
    await(engine, requests, N_SLOW, reasons);
    for (int i = 0; i < N_SLOW; i++) {
        assert_int_equal(reasons[i], FINISH_LENGTH);
        assert_int_equal(requests[i]->stats.n_new_tokens, SLOW_NEW);
        engine_client_free(&requests[i]);
    }
    engine_destroy(&engine);
}

/* Ends (and does not hang or abort) although nobody reads. */
static void an_engine_ends_with_a_full_outbox(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, N_SLOW, 16 * MAX_CONTEXT);
    struct request *requests[N_SLOW];
    submit_slow(engine, requests);
    await_standstill(engine);
    alarm(20);
    engine_destroy(&engine);
    alarm(0);
    for (int i = 0; i < N_SLOW; i++) engine_client_free(&requests[i]);
}

/* The other type of bytes, last: its answers are others. */
static void q8_0_answers_alike_too(void **state) {
    static float by_int8[sizeof asks[2].logits / sizeof(float)];
    memcpy(by_int8, asks[2].logits, sizeof by_int8);
    tear_down(state);
    kv_dtype = DTYPE_Q8_0;
    assert_int_equal(set_up(state), 0);
    assert_memory_not_equal(asks[2].logits, by_int8, sizeof by_int8);
    answers_do_not_depend_on_the_way(state);
    a_full_pool_changes_nothing(state);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampled_answers_are_no_constants),
        cmocka_unit_test(answers_do_not_depend_on_the_way),
        cmocka_unit_test(every_exact_option_is_toggled),
        cmocka_unit_test(a_full_pool_changes_nothing),
        cmocka_unit_test(a_partial_hit_cannot_starve),
        cmocka_unit_test(a_prompt_that_fills_its_blocks_is_found),
        cmocka_unit_test(the_answer_is_reused),
        cmocka_unit_test(a_request_may_refuse_the_cache),
        cmocka_unit_test(tenants_do_not_meet_in_the_cache),
        cmocka_unit_test(cancelling_in_decode_harms_no_neighbour),
        cmocka_unit_test(cancelling_in_prefill_gives_blocks_back),
        cmocka_unit_test(bad_requests_come_home_with_a_reason),
        cmocka_unit_test(edges_of_length),
        cmocka_unit_test(a_stop_token_ends_the_answer_unseen),
        cmocka_unit_test(a_slow_reader_loses_nothing),
        cmocka_unit_test(an_engine_ends_with_a_full_outbox),
        cmocka_unit_test(q8_0_answers_alike_too),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
