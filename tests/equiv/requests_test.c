/* What a request may ask for beside its tokens, and when it may leave: log-probabilities, pooled states, masks, minimal
 * lengths, back-pressure, cancellation within a step; and that its time is accounted for. Each result is the same bits
 * on every way through the engine. */
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

#define MAX_CONTEXT 1024
#define N_VOCAB MODEL_FILE_N_VOCAB
#define D_MODEL 256
#define N_PROMPT 150
#define N_TOP 5

static char model_path[MODEL_FILE_MAX_PATH];
static struct gguf *gguf;
static uint32_t prompt[MAX_CONTEXT];

static struct engine *start_engine(const struct exact_options *exact, int max_sequences) {
    struct engine_options options = {.gguf = gguf,
                                     .tiers = cpu_detect(),
                                     .kv_dtype = DTYPE_F16,
                                     .n_threads = exact->threads,
                                     .max_chunk = exact->chunk ? exact->chunk : MAX_CONTEXT,
                                     .block_tokens = exact->block_tokens,
                                     .max_context = MAX_CONTEXT,
                                     .max_sequences = max_sequences,
                                     .kv_tokens = 2 * max_sequences * MAX_CONTEXT,
                                     .max_logit_rows = max_sequences > 48 ? max_sequences : 48,
                                     .has_prefix_cache = exact->has_prefix_cache};
    struct status_note note = {0};
    struct engine *engine;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

static const struct exact_options plain = {.threads = 1, .block_tokens = 16};

static int set_up(void **state) {
    struct status_note note = {0};
    (void)state;
    model_file_make(DTYPE_Q4_1, 6, model_path);
    if (gguf_open(&gguf, model_path, &note)) return -1;
    model_file_random_ids(77, N_VOCAB, prompt, MAX_CONTEXT);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    gguf_close(&gguf);
    return unlink(model_path);
}

static struct request *make_request(int n_prompt, int max_new) {
    struct request *request = engine_client_make(prompt, n_prompt, max_new);
    assert_non_null(request);
    return request;
}

/* Reads events until the request with this id is home. */
static struct event await_home(struct engine *engine, uint64_t id) {
    struct event event;
    do
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
    while (event.request_id != id || (event.kind != EVENT_FINISHED && event.kind != EVENT_REFUSED));
    return event;
}

static void run(struct engine *engine, struct request *request) {
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    if (await_home(engine, request->id).kind == EVENT_REFUSED) fail_msg("refused: %s", request->note.text);
}

static void expect_refusal(struct engine *engine, struct request *request, enum status status, const char *word) {
    assert_int_equal(engine_client_run(engine, request), status);
    if (!strstr(request->note.text, word)) fail_msg("'%s' does not say '%s'", request->note.text, word);
    engine_client_free(&request);
}

/* Engines on all kinds of ways, each cold and alone, then warm and with a neighbour; a plain one first. */
typedef void way_fn(struct engine *engine, const struct exact_options *exact, bool is_first);

static void on_every_way(way_fn *check) {
    for (int sample = -1; sample < exact_options_n_values() * (test_is_slow_build() ? 1 : 2); sample++) {
        struct exact_options exact = sample < 0 ? plain : exact_options_sample(5, sample);
        struct engine *engine = start_engine(&exact, 4);
        check(engine, &exact, sample < 0);
        if (sample >= 0) {
            struct request *neighbour = make_request(300, 40);
            neighbour->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = (uint64_t)sample};
            assert_int_equal(engine_client_submit(engine, neighbour), STATUS_OK);
            check(engine, &exact, false);
            if (!neighbour->stats.finished_ns) await_home(engine, neighbour->id);
            engine_client_free(&neighbour);
        }
        engine_destroy(&engine);
    }
}

/* ---- log-probabilities ---- */

static double log_softmax(const float *logits, uint32_t id) {
    double total = 0;
    for (int i = 0; i < N_VOCAB; i++) total += exp((double)logits[i]);
    return (double)logits[id] - log(total);
}

static void check_entry(const float *logits, uint32_t id, const struct token_logprob *entry) {
    assert_int_equal(entry[0].id, id);
    for (int i = 0; i <= N_TOP; i++) {
        if (fabs((double)entry[i].logprob - log_softmax(logits, entry[i].id)) > 1e-5)
            fail_msg("log-probability of %u is %g, expected %g", entry[i].id, (double)entry[i].logprob,
                     log_softmax(logits, entry[i].id));
        if (i > 1) assert_true(entry[i].logprob <= entry[i - 1].logprob);
    }
    int n_larger = 0;
    for (int i = 0; i < N_VOCAB; i++) n_larger += logits[i] > logits[entry[N_TOP].id];
    assert_int_equal(n_larger, N_TOP - 1);
}

static struct token_logprob scores[N_PROMPT][1 + N_TOP], answer_scores[20][1 + N_TOP];

static void prompt_scores(struct engine *engine, const struct exact_options *exact, bool is_first) {
    static struct token_logprob got[N_PROMPT][1 + N_TOP];
    static float logits[N_PROMPT * N_VOCAB];
    struct request *request = make_request(N_PROMPT, 0);
    request->logits = is_first ? logits : NULL;
    request->n_top_logprobs = N_TOP;
    request->prompt_logprobs = got[0];
    memset(got, 0x55, sizeof got);
    run(engine, request);
    assert_int_equal(request->stats.n_cached_tokens, 0); /* they are computed, not remembered */
    assert_int_equal(request->stats.n_new_tokens, 0);
    engine_client_free(&request);
    assert_int_equal(got[0][0].id, 0x55555555); /* nothing tells of the first token */
    if (is_first) {
        for (int pos = 1; pos < N_PROMPT; pos++)
            check_entry(logits + (size_t)(pos - 1) * N_VOCAB, prompt[pos], got[pos]);
        memcpy(scores, got, sizeof got);
    } else if (memcmp(scores[1], got[1], sizeof got - sizeof got[0]) != 0) {
        fail_msg("prompt log-probabilities differ (threads %d, chunk %d, block %d, cache %d)", exact->threads,
                 exact->chunk, exact->block_tokens, exact->has_prefix_cache);
    }
    /* they are published all the same */
    request = make_request(N_PROMPT, 1);
    run(engine, request);
    int n_full = N_PROMPT / exact->block_tokens * exact->block_tokens, n_cached = request->stats.n_cached_tokens;
    assert_true(exact->has_prefix_cache ? n_cached >= n_full : n_cached == 0);
    engine_client_free(&request);
}

static void the_prompt_is_scored(void **state) {
    (void)state;
    on_every_way(prompt_scores);
}

static void answer_with_scores(struct engine *engine, const struct exact_options *exact, bool is_first) {
    static struct token_logprob got[20][1 + N_TOP];
    struct request *request = make_request(N_PROMPT, 20);
    request->sampling = (struct sampling){.temperature = 1.5f,
                                          .top_p = 0.95f,
                                          .presence_penalty = 1,
                                          .frequency_penalty = 0.5f,
                                          .repetition_penalty = 1.2f,
                                          .seed = 11};
    request->n_top_logprobs = N_TOP;
    request->logprobs = got[0];
    run(engine, request);
    const uint32_t *answer = engine_client_answer(request, 0);
    assert_int_equal(request->choices[0].n_new_tokens, 20);
    if (is_first) {
        /* each is the distribution that the prompt with the answer so far gives */
        struct request *whole = engine_client_make(request->tokens, N_PROMPT + 20, 0);
        static struct token_logprob all[N_PROMPT + 20][1 + N_TOP];
        assert_non_null(whole);
        whole->n_top_logprobs = N_TOP;
        whole->prompt_logprobs = all[0];
        run(engine, whole);
        assert_memory_equal(all[N_PROMPT], got, sizeof got);
        engine_client_free(&whole);
        for (int i = 0; i < 20; i++) assert_int_equal(got[i][0].id, answer[i]);
        memcpy(answer_scores, got, sizeof got);
    } else if (memcmp(answer_scores, got, sizeof got) != 0) {
        fail_msg("log-probabilities differ (threads %d, chunk %d, block %d, cache %d)", exact->threads, exact->chunk,
                 exact->block_tokens, exact->has_prefix_cache);
    }
    engine_client_free(&request);
}

static void the_answer_is_scored(void **state) {
    (void)state;
    on_every_way(answer_with_scores);
}

/* ---- pooled states ---- */

static float mean[D_MODEL], last[D_MODEL];

static void pooled(struct engine *engine, const struct exact_options *exact, bool is_first) {
    for (int pooling = POOLING_MEAN; pooling <= POOLING_LAST; pooling++) {
        float *expected = pooling == POOLING_MEAN ? mean : last, got[D_MODEL], unit[D_MODEL];
        for (int is_normalised = 0; is_normalised < 2; is_normalised++) {
            struct request *request = make_request(N_PROMPT, 0);
            request->pooling = (enum request_pooling)pooling;
            request->embedding = is_normalised ? unit : got;
            request->is_normalised = is_normalised;
            run(engine, request);
            if (pooling == POOLING_MEAN) assert_int_equal(request->stats.n_cached_tokens, 0);
            if (pooling == POOLING_LAST && exact->has_prefix_cache) assert_true(request->stats.n_cached_tokens > 0);
            engine_client_free(&request);
        }
        if (is_first) memcpy(expected, got, sizeof got);
        if (memcmp(expected, got, sizeof got) != 0)
            fail_msg("pooling %d differs (threads %d, chunk %d, block %d, cache %d)", pooling, exact->threads,
                     exact->chunk, exact->block_tokens, exact->has_prefix_cache);
        double squares = 0, dot = 0, length = 0;
        for (int i = 0; i < D_MODEL; i++) {
            squares += (double)unit[i] * (double)unit[i];
            dot += (double)unit[i] * (double)got[i];
            length += (double)got[i] * (double)got[i];
        }
        assert_true(fabs(squares - 1) < 1e-6 && fabs(dot - sqrt(length)) < 1e-4 * sqrt(length));
    }
}

/* The mean is that of the last states of all prefixes. */
static void prompts_are_pooled(void **state) {
    (void)state;
    on_every_way(pooled);
    struct engine *engine = start_engine(&plain, 1);
    double sums[D_MODEL] = {0};
    for (int n = 1; n <= N_PROMPT; n++) {
        struct request *request = make_request(n, 0);
        float got[D_MODEL];
        request->pooling = POOLING_LAST;
        request->embedding = got;
        run(engine, request);
        for (int i = 0; i < D_MODEL; i++) sums[i] += (double)got[i];
        if (n == N_PROMPT) assert_memory_equal(got, last, sizeof got);
        engine_client_free(&request);
    }
    for (int i = 0; i < D_MODEL; i++) assert_true((float)(sums[i] * (1.0 / N_PROMPT)) == mean[i]);
    engine_destroy(&engine);
}

/* ---- which tokens may come ---- */

/* Allows id t % 7 of every 7 at the answer's token t; every id at each fifth; after `end` tokens none. */
struct grammar {
    int n_accepted, end;
    uint32_t accepted[64];
};

static bool grammar_fill(void *arg, uint32_t choice, uint32_t *words) {
    struct grammar *grammar = arg;
    assert_int_equal(choice, 0);
    for (size_t i = 0; i < SAMPLER_MASK_WORDS(N_VOCAB); i++) assert_int_equal(words[i], 0);
    if (grammar->n_accepted % 5 == 4) return false;
    if (grammar->n_accepted >= grammar->end) return true;
    for (uint32_t id = (uint32_t)grammar->n_accepted % 7; id < N_VOCAB; id += 7) words[id / 32] |= 1u << (id % 32);
    return true;
}

static void grammar_accept(void *arg, uint32_t choice, uint32_t token) {
    struct grammar *grammar = arg;
    assert_int_equal(choice, 0);
    grammar->accepted[grammar->n_accepted++] = token;
}

static uint32_t masked_answer[30];

static void masked(struct engine *engine, const struct exact_options *exact, bool is_first) {
    struct grammar grammar = {.end = 22};
    struct request *request = make_request(N_PROMPT, 30);
    (void)exact;
    request->sampling = (struct sampling){.temperature = 2, .top_p = 1, .seed = 5};
    request->mask = (struct token_mask){grammar_fill, grammar_accept, &grammar};
    run(engine, request);
    const uint32_t *answer = engine_client_answer(request, 0);
    assert_int_equal(request->choices[0].n_new_tokens, 22);
    assert_int_equal(request->choices[0].reason, FINISH_STOP);
    assert_int_equal(grammar.n_accepted, 22);
    assert_memory_equal(grammar.accepted, answer, 22 * sizeof *answer);
    for (uint32_t i = 0; i < 22; i++)
        if (i % 5 != 4) assert_int_equal(answer[i] % 7, i % 7);
    if (is_first) memcpy(masked_answer, answer, 22 * sizeof *answer);
    assert_memory_equal(masked_answer, answer, 22 * sizeof *answer);
    engine_client_free(&request);
}

static void a_mask_rules(void **state) {
    (void)state;
    on_every_way(masked);
}

/* Of a greedy answer the tenth token is made a stop token. */
static void stop_tokens_wait_for_the_minimum(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, 1);
    struct request *request = make_request(N_PROMPT, 30);
    uint32_t answer[30];
    request->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = 3};
    run(engine, request);
    memcpy(answer, engine_client_answer(request, 0), sizeof answer);
    int n_until = 0;
    while (answer[n_until] != answer[9]) n_until++;
    for (int min_new = 0; min_new < 30; min_new += 5) {
        for (int is_end = 0; is_end < 2; is_end++)
            for (int ignores = 0; ignores < 2; ignores++) {
                struct request *again = make_request(N_PROMPT, 30);
                again->sampling = request->sampling;
                again->stop_tokens[0] = answer[9];
                again->n_stop_tokens = 1;
                again->n_end_tokens = is_end;
                again->ignore_eos = ignores;
                again->min_new = min_new;
                run(engine, again);
                const uint32_t *got = engine_client_answer(again, 0);
                struct request_choice choice = again->choices[0];
                if (is_end && ignores) { /* as if there were no stop tokens */
                    assert_int_equal(choice.n_new_tokens, 30);
                    assert_memory_equal(got, answer, sizeof answer);
                } else if (min_new <= n_until) {
                    assert_int_equal(choice.n_new_tokens, n_until + 1);
                    assert_int_equal(choice.reason, FINISH_STOP);
                } else {
                    assert_true(choice.n_new_tokens >= min_new);
                    for (int i = 0; i < min_new; i++) assert_int_not_equal(got[i], answer[9]);
                    assert_memory_equal(got, answer, (size_t)n_until * sizeof *got);
                }
                engine_client_free(&again);
            }
    }
    engine_client_free(&request);
    engine_destroy(&engine);
}

/* ---- refusals ---- */

static void what_makes_no_sense_is_named(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, 2);
    struct request *request = make_request(9, 4);
    float embedding[D_MODEL];
    request->min_new = 5;
    expect_refusal(engine, request, STATUS_INVALID, "min_tokens 5");
    request = make_request(9, 4);
    request->n_stop_tokens = REQUEST_MAX_STOP_TOKENS + 1;
    expect_refusal(engine, request, STATUS_LIMIT, "33 stop tokens");
    request = make_request(9, 4);
    request->n_end_tokens = 1;
    expect_refusal(engine, request, STATUS_INVALID, "1 of 0 stop tokens");
    request = make_request(9, 4);
    request->n_top_logprobs = SAMPLER_MAX_TOP_LOGPROBS + 1;
    expect_refusal(engine, request, STATUS_INVALID, "top_logprobs 21");
    request = make_request(9, 4);
    request->pooling = POOLING_MEAN;
    request->embedding = embedding;
    expect_refusal(engine, request, STATUS_INVALID, "max_tokens 4");
    request = make_request(9, 0);
    request->pooling = POOLING_LAST;
    expect_refusal(engine, request, STATUS_INVALID, "no place");
    request = make_request(9, 0);
    request->pooling = (enum request_pooling)3;
    expect_refusal(engine, request, STATUS_INVALID, "pooling 3");
    request = make_request(9, 4);
    request->max_unread = -1;
    expect_refusal(engine, request, STATUS_INVALID, "max_unread -1");
    static const struct logit_bias bias = {N_VOCAB, 1};
    request = make_request(9, 4);
    request->sampling.biases = &bias;
    request->sampling.n_biases = 1;
    expect_refusal(engine, request, STATUS_INVALID, "logit_bias of id 320");
    request = make_request(9, 4);
    request->n_choices = 0;
    expect_refusal(engine, request, STATUS_INVALID, "n 0");
    request->n_choices = 0;
    assert_null(engine_client_make_choices(prompt, 9, 4, REQUEST_MAX_CHOICES + 1));
    engine_destroy(&engine);
}

/* ---- leaving ---- */

/* A step of a thousand rows takes long enough to be left within; nothing of it is kept. */
static void a_step_nobody_waits_for_is_abandoned(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, 2);
    struct engine_stats before = engine_read_stats(engine), after = before;
    for (int round = 0; round < 1000 && after.n_abandoned_steps < 5; round++, before = after) {
        struct request *request = make_request(1000, 10);
        assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
        usleep((useconds_t)(200 * (round % 50)));
        assert_int_equal(engine_client_cancel(engine, request->id), STATUS_OK);
        struct event event = await_home(engine, request->id);
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

/* A request that comes while a step runs is heard before the step ends. */
static void requests_are_admitted_between_layers(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, 2);
    bool is_seen = false;
    for (int round = 0; round < 50 && !is_seen; round++) {
        struct request *first = make_request(1000, 0), *second = make_request(10, 0);
        assert_int_equal(engine_client_submit(engine, first), STATUS_OK);
        usleep((useconds_t)(200 * (round % 20)));
        int64_t n_steps = engine_read_stats(engine).n_steps;
        assert_int_equal(engine_client_submit(engine, second), STATUS_OK);
        await_home(engine, second->id);
        is_seen = second->stats.admitted_ns < first->stats.prefill_end_ns &&
                  second->stats.admitted_ns > first->stats.prefill_start_ns && n_steps == 2 * round;
        /* the first may have come home before the second */
        while (!first->stats.finished_ns) await_home(engine, first->id);
        engine_client_free(&first);
        engine_client_free(&second);
    }
    assert_true(is_seen);
    engine_destroy(&engine);
}

static void count_tokens(struct engine *engine, struct request *const *requests, int *n_tokens, int n_wanted) {
    while (n_tokens[1] < n_wanted) {
        struct event event;
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
        for (int i = 0; i < 2; i++) n_tokens[i] += event.kind == EVENT_TOKEN && event.request_id == requests[i]->id;
    }
}

/* One client reads nothing: it alone waits, with as many tokens as it said. */
static void a_slow_reader_waits_alone(void **state) {
    (void)state;
    struct engine *engine = start_engine(&plain, 2);
    struct request *requests[2] = {make_request(20, 60), make_request(40, 400)};
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
    count_tokens(engine, requests, n_tokens, 400);
    while (requests[0]->stats.finished_ns == 0 || requests[1]->stats.finished_ns == 0) {
        struct event event;
        if (!engine_client_wait(engine, 1000, &event)) break;
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
    struct engine *engine = start_engine(&plain, 1);
    struct request *request = make_request(20, 60);
    request->max_unread = 5;
    request->max_blocked_ns = 30000000;
    int64_t start_ns = clock_now_ns();
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    struct event event = await_home(engine, request->id);
    assert_int_equal(event.reason, FINISH_UNREAD);
    assert_int_equal(request->choices[0].n_new_tokens, 5);
    assert_true(clock_now_ns() - start_ns >= 30000000);
    assert_true(request->stats.part_ns[PHASE_BLOCKED] >= 25000000);
    if (!strstr(request->note.text, "5 tokens")) fail_msg("it says '%s'", request->note.text);
    engine_client_free(&request);
    /* the engine goes on */
    request = make_request(20, 5);
    run(engine, request);
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
    struct engine *engine = start_engine(&exact, 4);
    struct request *requests[4];
    for (int i = 0; i < 4; i++) {
        requests[i] = make_request(i == 3 ? 20 : 600, i == 3 ? 200 : 10);
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
    struct engine *engine = start_engine(&plain, 1);
    struct request *request = make_request(20, 5);
    int64_t now_ns = clock_now_ns();
    request->stats.received_ns = now_ns - 10000000;
    phase_stats_add(&request->stats, PHASE_READ, now_ns - 10000000, now_ns - 7000000);
    phase_stats_add(&request->stats, PHASE_TOKENIZE, now_ns - 7000000, now_ns);
    run(engine, request);
    assert_int_equal(request->stats.part_ns[PHASE_READ], 3000000);
    assert_int_equal(request->stats.part_ns[PHASE_TOKENIZE], 7000000);
    check_account(request);
    engine_client_free(&request);
    engine_destroy(&engine);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_prompt_is_scored),
        cmocka_unit_test(the_answer_is_scored),
        cmocka_unit_test(prompts_are_pooled),
        cmocka_unit_test(a_mask_rules),
        cmocka_unit_test(stop_tokens_wait_for_the_minimum),
        cmocka_unit_test(what_makes_no_sense_is_named),
        cmocka_unit_test(a_step_nobody_waits_for_is_abandoned),
        cmocka_unit_test(requests_are_admitted_between_layers),
        cmocka_unit_test(a_slow_reader_waits_alone),
        cmocka_unit_test(who_never_reads_is_cut),
        cmocka_unit_test(time_goes_where_it_was_spent),
        cmocka_unit_test(the_callers_parts_are_kept),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
