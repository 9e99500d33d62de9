/* A model with windowed layers, prompts far longer than the window: the engine's answers, whose windowed layers give
 * back what has left the window, beside those of one forward that keeps everything. */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "engine/engine_client.h"
#include "support/model_file.h"
#include "support/model_run.h"
#include "support/test.h"
#include "weights/gguf.h"

#define MAX_CONTEXT 512
#define N_PROMPT 330
#define N_NEW 60
#define N_LOGIT_ROWS 12

static char path[1024];
static struct gguf *gguf;
static int n_vocab, window;
static uint32_t tokens[MAX_CONTEXT]; /* the prompt and its answer */
static float *logits;                /* [N_PROMPT + N_NEW][n_vocab] of all positions, from one forward */

static uint32_t argmax(const float *row) {
    uint32_t best = 0;
    for (int i = 1; i < n_vocab; i++)
        if (row[i] > row[best]) best = (uint32_t)i;
    return best;
}

/* Greedy, each token from a forward over a cache of one group that holds everything. */
static void compute_reference(void) {
    struct model_run_options options = {.kv_dtype = DTYPE_F16,
                                        .n_threads = 1,
                                        .block_tokens = 16,
                                        .max_tokens = MAX_CONTEXT,
                                        .max_rows = MAX_CONTEXT,
                                        .max_logit_rows = MAX_CONTEXT,
                                        .tiers = cpu_detect()};
    struct model_run run;
    model_run_open(&run, path, &options);
    n_vocab = run.n_vocab;
    for (int i = 0; i < run.store.layers.n_layers; i++)
        if (forward_config(run.forward)->layers[i].window) window = forward_config(run.forward)->layers[i].window;
    logits = mem_alloc_array((size_t)(N_PROMPT + N_NEW) * (size_t)n_vocab, sizeof(float));
    assert_non_null(logits);
    model_file_random_ids(4711, n_vocab, tokens, N_PROMPT);
    struct model_run_sequence sequence = {tokens, N_PROMPT, 0, 1};
    for (int from = 0; from < N_PROMPT + N_NEW;) {
        int to = from < N_PROMPT ? N_PROMPT : from + 1;
        model_run_step(&run, &(struct model_run_piece){&sequence, from, to}, 1,
                       logits + (size_t)from * (size_t)n_vocab);
        tokens[to] = argmax(logits + (size_t)(to - 1) * (size_t)n_vocab);
        from = to;
    }
    model_run_close(&run);
}

static int set_up(void **state) {
    struct status_note note = {0};
    (void)state;
    if (!test_golden_dir()) return 0;
    snprintf(path, sizeof path, "%s", test_golden_file("gguf/gemma3.gguf"));
    if (gguf_open(&gguf, path, &note)) fail_msg("%s", note.text);
    compute_reference();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    mem_free(logits);
    gguf_close(&gguf);
    return 0;
}

static struct engine *start_engine(int chunk, int block_tokens, int n_threads) {
    struct engine_options options = {.gguf = gguf,
                                     .tiers = cpu_detect(),
                                     .kv_dtype = DTYPE_F16,
                                     .n_threads = n_threads,
                                     .max_chunk = chunk,
                                     .block_tokens = block_tokens,
                                     .max_context = MAX_CONTEXT,
                                     .max_sequences = 2,
                                     .kv_tokens = 3 * MAX_CONTEXT,
                                     .max_logit_rows = 16,
                                     .has_prefix_cache = true};
    struct status_note note = {0};
    struct engine *engine;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

/* Asks for the first n_prompt tokens and compares the answer and the logits before it. Returns the cached tokens. */
static int ask(struct engine *engine, int n_prompt, bool has_cache) {
    size_t row_bytes = (size_t)n_vocab * sizeof(float);
    float *got = mem_alloc_array(N_LOGIT_ROWS, row_bytes);
    struct request *request = engine_client_make(tokens, n_prompt, N_PROMPT + N_NEW - n_prompt);
    assert_non_null(got);
    assert_non_null(request);
    request->sampling.top_p = 1;
    request->has_cache = has_cache;
    request->logits = got;
    request->logits_from = n_prompt - N_LOGIT_ROWS;
    assert_int_equal(engine_client_run(engine, request), STATUS_OK);
    assert_memory_equal(request->tokens, tokens, (N_PROMPT + N_NEW) * sizeof *tokens);
    assert_memory_equal(got, logits + (size_t)request->logits_from * (size_t)n_vocab, N_LOGIT_ROWS * row_bytes);
    int n_cached = request->stats.n_cached_tokens;
    engine_client_free(&request);
    mem_free(got);
    return n_cached;
}

static void long_prompts_cold_and_cached(void **state) {
    (void)state;
    static const struct {
        int chunk, block_tokens, n_threads;
    } ways[] = {{512, 16, 1}, {7, 16, 2}, {33, 32, 1}, {64, 64, 2}, {1, 16, 1}};
    if (!gguf) skip();
    assert_true(window > 0 && window < N_PROMPT / 4);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct engine *engine = start_engine(ways[i].chunk, ways[i].block_tokens, ways[i].n_threads);
        assert_int_equal(ask(engine, N_PROMPT, false), 0);
        assert_int_equal(ask(engine, N_PROMPT, true), 0);
        assert_int_equal(ask(engine, N_PROMPT, true), N_PROMPT - N_LOGIT_ROWS);
        /* the next turn: the question and a part of the answer; the window's blocks at its end are still there */
        int n_full = (N_PROMPT + N_NEW - 1) / ways[i].block_tokens * ways[i].block_tokens, n_next = N_PROMPT + 40;
        int n_usable = n_next - N_LOGIT_ROWS;
        assert_int_equal(ask(engine, n_next, true), n_usable < n_full ? n_usable : n_full);
        engine_destroy(&engine);
    }
}

/* The whole KV of windowed layers takes less than that of the others. */
static void windowed_layers_take_less(void **state) {
    (void)state;
    if (!gguf) skip();
    struct engine *engine = start_engine(16, 16, 1);
    const struct model_config *config = engine_model(engine);
    size_t token_bytes = 2 * sizeof(uint16_t) * (size_t)(config->n_kv_heads * config->head_dim);
    assert_true(engine_kv_bytes(engine) < 3 * MAX_CONTEXT * token_bytes * (size_t)config->n_layers * 3 / 4);
    engine_destroy(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_prompts_cold_and_cached),
        cmocka_unit_test(windowed_layers_take_less),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
