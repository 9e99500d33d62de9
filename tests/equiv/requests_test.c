/* What a request may ask for beside its tokens: log-probabilities, pooled states, masks, minimal lengths. Each result
 * is the same bits on every way through the engine. */
#include "support/request_run.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

#define N_VOCAB MODEL_FILE_N_VOCAB
#define D_MODEL 256
#define N_PROMPT 150
#define N_TOP 5

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
    struct request *request = request_run_make(N_PROMPT, 0);
    request->logits = is_first ? logits : NULL;
    request->n_top_logprobs = N_TOP;
    request->prompt_logprobs = got[0];
    memset(got, 0x55, sizeof got);
    request_run_ask(engine, request);
    assert_int_equal(request->stats.n_cached_tokens, 0); /* they are computed, not remembered */
    assert_int_equal(request->stats.n_new_tokens, 0);
    engine_client_free(&request);
    assert_int_equal(got[0][0].id, 0x55555555); /* nothing tells of the first token */
    if (is_first) {
        for (int pos = 1; pos < N_PROMPT; pos++)
            check_entry(logits + (size_t)(pos - 1) * N_VOCAB, request_run_prompt[pos], got[pos]);
        memcpy(scores, got, sizeof got);
    } else if (memcmp(scores[1], got[1], sizeof got - sizeof got[0]) != 0) {
        fail_msg("prompt log-probabilities differ (threads %d, chunk %d, block %d, cache %d)", exact->threads,
                 exact->chunk, exact->block_tokens, exact->has_prefix_cache);
    }
    /* they are published all the same */
    request = request_run_make(N_PROMPT, 1);
    request_run_ask(engine, request);
    int n_full = N_PROMPT / exact->block_tokens * exact->block_tokens, n_cached = request->stats.n_cached_tokens;
    assert_true(exact->has_prefix_cache ? n_cached >= n_full : n_cached == 0);
    engine_client_free(&request);
}

static void the_prompt_is_scored(void **state) {
    (void)state;
    request_run_every_way(prompt_scores);
}

static void answer_with_scores(struct engine *engine, const struct exact_options *exact, bool is_first) {
    static struct token_logprob got[20][1 + N_TOP];
    struct request *request = request_run_make(N_PROMPT, 20);
    request->sampling = (struct sampling){.temperature = 1.5f,
                                          .top_p = 0.95f,
                                          .presence_penalty = 1,
                                          .frequency_penalty = 0.5f,
                                          .repetition_penalty = 1.2f,
                                          .seed = 11};
    request->n_top_logprobs = N_TOP;
    request->logprobs = got[0];
    request_run_ask(engine, request);
    const uint32_t *answer = engine_client_answer(request, 0);
    assert_int_equal(request->choices[0].n_new_tokens, 20);
    if (is_first) {
        /* each is the distribution that the prompt with the answer so far gives */
        struct request *whole = engine_client_make(request->tokens, N_PROMPT + 20, 0);
        static struct token_logprob all[N_PROMPT + 20][1 + N_TOP];
        assert_non_null(whole);
        whole->n_top_logprobs = N_TOP;
        whole->prompt_logprobs = all[0];
        request_run_ask(engine, whole);
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
    request_run_every_way(answer_with_scores);
}

/* ---- pooled states ---- */

static float mean[D_MODEL], last[D_MODEL];

static void pooled(struct engine *engine, const struct exact_options *exact, bool is_first) {
    for (int pooling = POOLING_MEAN; pooling <= POOLING_LAST; pooling++) {
        float *expected = pooling == POOLING_MEAN ? mean : last, got[D_MODEL], unit[D_MODEL];
        for (int is_normalised = 0; is_normalised < 2; is_normalised++) {
            struct request *request = request_run_make(N_PROMPT, 0);
            request->pooling = (enum request_pooling)pooling;
            request->embedding = is_normalised ? unit : got;
            request->is_normalised = is_normalised;
            request_run_ask(engine, request);
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
    request_run_every_way(pooled);
    struct engine *engine = request_run_start(&request_run_plain, 1);
    double sums[D_MODEL] = {0};
    for (int n = 1; n <= N_PROMPT; n++) {
        struct request *request = request_run_make(n, 0);
        float got[D_MODEL];
        request->pooling = POOLING_LAST;
        request->embedding = got;
        request_run_ask(engine, request);
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
    struct request *request = request_run_make(N_PROMPT, 30);
    (void)exact;
    request->sampling = (struct sampling){.temperature = 2, .top_p = 1, .seed = 5};
    request->mask = (struct token_mask){grammar_fill, grammar_accept, &grammar};
    request_run_ask(engine, request);
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
    request_run_every_way(masked);
}

/* Of a greedy answer the tenth token is made a stop token. */
static void stop_tokens_wait_for_the_minimum(void **state) {
    (void)state;
    struct engine *engine = request_run_start(&request_run_plain, 1);
    struct request *request = request_run_make(N_PROMPT, 30);
    uint32_t answer[30];
    request->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = 3};
    request_run_ask(engine, request);
    memcpy(answer, engine_client_answer(request, 0), sizeof answer);
    int n_until = 0;
    while (answer[n_until] != answer[9]) n_until++;
    for (int min_new = 0; min_new < 30; min_new += 5) {
        for (int is_end = 0; is_end < 2; is_end++)
            for (int ignores = 0; ignores < 2; ignores++) {
                struct request *again = request_run_make(N_PROMPT, 30);
                again->sampling = request->sampling;
                again->stop_tokens[0] = answer[9];
                again->n_stop_tokens = 1;
                again->n_end_tokens = is_end;
                again->ignore_eos = ignores;
                again->min_new = min_new;
                request_run_ask(engine, again);
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
    struct engine *engine = request_run_start(&request_run_plain, 2);
    struct request *request = request_run_make(9, 4);
    float embedding[D_MODEL];
    request->min_new = 5;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "min_tokens 5");
    request = request_run_make(9, 4);
    request->n_stop_tokens = REQUEST_MAX_STOP_TOKENS + 1;
    request_run_expect_refusal(engine, request, STATUS_LIMIT, "33 stop tokens");
    request = request_run_make(9, 4);
    request->n_end_tokens = 1;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "1 of 0 stop tokens");
    request = request_run_make(9, 4);
    request->n_top_logprobs = SAMPLER_MAX_TOP_LOGPROBS + 1;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "top_logprobs 21");
    request = request_run_make(9, 4);
    request->pooling = POOLING_MEAN;
    request->embedding = embedding;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "max_tokens 4");
    request = request_run_make(9, 0);
    request->pooling = POOLING_LAST;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "no place");
    request = request_run_make(9, 0);
    request->pooling = (enum request_pooling)3;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "pooling 3");
    request = request_run_make(9, 4);
    request->max_unread = -1;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "max_unread -1");
    static const struct logit_bias bias = {N_VOCAB, 1};
    request = request_run_make(9, 4);
    request->sampling.biases = &bias;
    request->sampling.n_biases = 1;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "logit_bias of id 320");
    request = request_run_make(9, 4);
    request->n_choices = 0;
    request_run_expect_refusal(engine, request, STATUS_LIMIT, "n 0");
    assert_null(engine_client_make_choices(request_run_prompt, 9, 4, REQUEST_MAX_CHOICES + 1));
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
    };
    return cmocka_run_group_tests(tests, request_run_set_up, request_run_tear_down);
}
