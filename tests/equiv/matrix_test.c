/* Real models: ids, logits and log-probabilities of one prompt are the same bits for every chunk, with and without
 * cache, for one and two threads, alone, beside others, after losing all blocks and beside neighbours that are
 * cancelled, greedy and drawn, whoever goes first and however long steps may be. KVICK_LONG: every combination, with a
 * prompt longer than a partition of keys, a window and the largest chunk. */
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "engine/engine_client.h"
#include "support/model_file.h"
#include "support/test.h"
#include "weights/gguf.h"

#define SHORT_PROMPT 150
#define LONG_PROMPT 530
#define MAX_CONTEXT 576
#define BLOCK_TOKENS 16
#define N_OTHER 90 /* prompt of a neighbour */
#define N_NEW 32
#define N_LOGIT_ROWS 3
#define N_TOP 2
#define N_TRIES 10
#define N_NEIGHBOURS 2
#define N_SAMPLES 2 /* engines of each model when not all run */

enum company { ALONE, BATCHED, PREEMPTED, CANCELLED, N_COMPANIES };
static const char *const company_names[] = {"alone", "batched", "preempted", "beside cancelled ones"};

struct way {
    enum dtype kv_dtype;
    int chunk, n_threads; /* chunk 0: whole */
    bool has_cache, is_fcfs;
    int64_t max_step_ns; /* 0: unbounded */
};

/* What one way gave. */
struct answer {
    uint32_t ids[N_NEW];
    struct token_logprob logprobs[N_NEW][1 + N_TOP];
    float *logits; /* [N_LOGIT_ROWS][n_vocab] */
};

static struct gguf *gguf;
static const char *model_name;
static size_t logit_bytes;
static int n_prompt;
static uint32_t prompt[LONG_PROMPT], other_prompt[N_OTHER + N_NEIGHBOURS];
static struct answer expected[2]; /* greedy, drawn */
static const struct sampling samplings[2] = {{.top_p = 1}, {.temperature = 1, .top_p = 0.95f, .seed = 17}};

static struct engine *start(const struct way *way, int kv_tokens) {
    struct engine_options options = {.gguf = gguf,
                                     .tiers = cpu_detect(),
                                     .kv_dtype = way->kv_dtype,
                                     .n_threads = way->n_threads,
                                     .max_chunk = way->chunk ? way->chunk : MAX_CONTEXT,
                                     .block_tokens = BLOCK_TOKENS,
                                     .max_context = MAX_CONTEXT,
                                     .max_sequences = 4,
                                     .kv_tokens = kv_tokens,
                                     .max_logit_rows = 8,
                                     .has_prefix_cache = way->has_cache,
                                     .policy = way->is_fcfs ? POLICY_FCFS : POLICY_PROMISES,
                                     .admission = {.takes_late = true}, /* however slow the machine */
                                     .target_itl_ns = way->max_step_ns,
                                     .max_step_ns = way->max_step_ns};
    struct status_note note = {0};
    struct engine *engine;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

/* Slots in which the prompt and a neighbour's can start, but not both grow. */
static int small_pool(void) {
    int n_blocks = (n_prompt + BLOCK_TOKENS - 1) / BLOCK_TOKENS + (N_OTHER + BLOCK_TOKENS - 1) / BLOCK_TOKENS + 2;
    return n_blocks * BLOCK_TOKENS;
}

static struct request *make(const uint32_t *tokens, int n_tokens, int max_new) {
    struct request *request = engine_client_make(tokens, n_tokens, max_new);
    assert_non_null(request);
    request->ignore_eos = true;
    return request;
}

static struct event next_event(struct engine *engine) {
    struct event event;
    if (!engine_client_wait(engine, 120000, &event)) fail_msg("no event within two minutes");
    if (event.kind == EVENT_REFUSED) fail_msg("refused: %s", event.request->note.text);
    return event;
}

/* Asks for the prompt in the company that is wanted. Returns the cached tokens. */
static int ask(struct engine *engine, enum company company, const struct sampling *sampling, struct answer *out) {
    struct request *request = make(prompt, n_prompt, N_NEW), *neighbours[N_NEIGHBOURS] = {0};
    int n_neighbours = company == ALONE ? 0 : company == PREEMPTED ? 1 : N_NEIGHBOURS, n_running = n_neighbours + 1;
    request->sampling = *sampling;
    request->logits = out->logits;
    request->logits_from = n_prompt - N_LOGIT_ROWS;
    request->logprobs = out->logprobs[0];
    request->n_top_logprobs = N_TOP;
    for (int i = 0; i < n_neighbours; i++) {
        neighbours[i] = make(other_prompt + i, N_OTHER, company == PREEMPTED ? 130 : 60);
        neighbours[i]->sampling = samplings[1];
        assert_int_equal(engine_client_submit(engine, neighbours[i]), STATUS_OK);
    }
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    while (n_running > 0) {
        struct event event = next_event(engine);
        bool is_first = event.kind == EVENT_TOKEN && event.request_id == request->id && event.token_idx == 0;
        for (int i = 0; i < n_neighbours && company == CANCELLED && is_first; i++)
            assert_int_equal(engine_client_cancel(engine, neighbours[i]->id), STATUS_OK);
        n_running -= event.kind == EVENT_FINISHED;
    }
    assert_int_equal(request->stats.n_new_tokens, N_NEW);
    memcpy(out->ids, engine_client_answer(request, 0), sizeof out->ids);
    int n_cached = request->stats.n_cached_tokens;
    engine_client_free(&request);
    for (int i = 0; i < n_neighbours; i++) engine_client_free(&neighbours[i]);
    return n_cached;
}

static void check(const struct way *way, enum company company, int is_drawn, bool is_again, struct engine *engine,
                  struct answer *got) {
    memset(got->logits, 0x55, logit_bytes);
    int n_cached = ask(engine, company, &samplings[is_drawn], got);
    const struct answer *right = &expected[is_drawn];
    const char *what = memcmp(got->ids, right->ids, sizeof got->ids) != 0                  ? "ids"
                       : memcmp(got->logits, right->logits, logit_bytes) != 0              ? "logits"
                       : memcmp(got->logprobs, right->logprobs, sizeof got->logprobs) != 0 ? "log-probabilities"
                                                                                           : NULL;
    if (what)
        fail_msg("%s: %s differ: KV %s, chunk %d, cache %d, %d threads, %s, %s, %s, steps of %lld ns, %d cached",
                 model_name, what, dtype_name(way->kv_dtype), way->chunk, way->has_cache, way->n_threads,
                 company_names[company], is_drawn ? "drawn" : "greedy", way->is_fcfs ? "fcfs" : "promises",
                 (long long)way->max_step_ns, n_cached);
    if (is_again) assert_int_equal(n_cached, way->has_cache ? n_prompt - N_LOGIT_ROWS : 0);
    if (!way->has_cache) assert_int_equal(n_cached, 0);
}

/* All kinds of company, greedy and drawn; the first answer is cold. */
static void check_way(const struct way *way, struct answer *got) {
    struct engine *engine = start(way, 6 * MAX_CONTEXT);
    static const enum company order[] = {BATCHED, ALONE, CANCELLED};
    for (int i = 0; i < 3; i++)
        for (int is_drawn = 0; is_drawn < 2; is_drawn++) check(way, order[i], is_drawn, i || is_drawn, engine, got);
    engine_destroy(&engine);
    engine = start(way, small_pool());
    for (int is_drawn = 0; is_drawn < 2; is_drawn++) {
        int64_t n_before = engine_read_stats(engine).n_preempted;
        bool was_preempted = false;
        /* On a busy machine the neighbour may have ended before the request is there. */
        for (int i = 0; i < N_TRIES && !was_preempted; i++) {
            check(way, PREEMPTED, is_drawn, false, engine, got);
            was_preempted = engine_read_stats(engine).n_preempted > n_before;
        }
        if (!was_preempted) fail_msg("nobody was preempted");
    }
    engine_destroy(&engine);
}

/* 20 ways of chunk, cache and threads; the bounds of steps and the policy go along, each with all others in turn. */
static struct way way_of(int idx, enum dtype kv_dtype) {
    static const int chunks[] = {7, 16, 64, 512, 0};
    static const int64_t steps_ns[] = {0, 1, 20000000};
    return (struct way){.kv_dtype = kv_dtype,
                        .chunk = chunks[idx % 5],
                        .has_cache = idx / 5 % 2 == 0,
                        .n_threads = 1 + idx / 10 % 2,
                        .is_fcfs = idx % 2 == 0,
                        .max_step_ns = steps_ns[(idx + idx / 5) % 3]};
}

/* The answers that count: alone, whole, on one thread, without a cache. */
static void answer_plainly(enum dtype kv_dtype) {
    const struct way plain = {.kv_dtype = kv_dtype, .n_threads = 1, .is_fcfs = true};
    struct engine *engine = start(&plain, MAX_CONTEXT);
    for (int i = 0; i < 2; i++) ask(engine, ALONE, &samplings[i], &expected[i]);
    engine_destroy(&engine);
    assert_true(memcmp(expected[0].ids, expected[1].ids, sizeof expected[0].ids) != 0);
}

/* All ways, or some that differ in everything. */
static void check_kv_type(enum dtype kv_dtype, bool is_whole, struct answer *got) {
    static const int sampled[N_SAMPLES] = {7, 14};
    answer_plainly(kv_dtype);
    for (int i = 0; i < (is_whole ? 20 : N_SAMPLES); i++) {
        struct way way = way_of(is_whole ? i : sampled[i], kv_dtype);
        check_way(&way, got);
    }
}

static int read_vocabulary(void) {
    const struct way plain = {.kv_dtype = DTYPE_I8, .n_threads = 1};
    struct engine *engine = start(&plain, MAX_CONTEXT);
    int n_vocab = engine_model(engine)->n_vocab;
    engine_destroy(&engine);
    return n_vocab;
}

static void check_model(const char *name) {
    struct status_note note = {0};
    test_skip_if_slow();
    bool is_long = getenv("KVICK_LONG") != NULL;
    model_name = name;
    n_prompt = is_long ? LONG_PROMPT : SHORT_PROMPT;
    if (gguf_open(&gguf, test_model_file(name), &note)) fail_msg("%s", note.text);
    int n_vocab = read_vocabulary();
    logit_bytes = (size_t)n_vocab * N_LOGIT_ROWS * sizeof(float);
    struct answer got = {.logits = mem_alloc(logit_bytes)};
    assert_non_null(got.logits);
    for (int i = 0; i < 2; i++) {
        expected[i].logits = mem_alloc(logit_bytes);
        assert_non_null(expected[i].logits);
    }
    model_file_random_ids(2026, n_vocab, prompt, LONG_PROMPT);
    model_file_random_ids(2027, n_vocab, other_prompt, N_OTHER + N_NEIGHBOURS);
    check_kv_type(DTYPE_I8, is_long, &got);
    if (is_long || strcmp(name, "smollm2") == 0) check_kv_type(DTYPE_Q8_0, is_long, &got); /* the faster model */
    if (is_long) check_kv_type(DTYPE_F16, false, &got);
    mem_free(got.logits);
    for (int i = 0; i < 2; i++) mem_free(expected[i].logits);
    gguf_close(&gguf);
}

static void smollm2_answers_alike(void **state) {
    (void)state;
    check_model("smollm2");
}

static void gemma3_answers_alike(void **state) {
    (void)state;
    check_model("gemma3-270m");
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2_answers_alike),
        cmocka_unit_test(gemma3_answers_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
