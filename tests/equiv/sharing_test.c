/* Requests that take each other's blocks: those that lose them to others and are computed anew, and those that use what
 * others are still computing. Every answer and its logits are bit for bit those of the request alone without a cache.
 */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "engine/engine_client.h"
#include "support/model_file.h"
#include "support/test.h"
#include "weights/gguf.h"

#define BLOCK 16
#define MAX_TOKENS 320
#define MAX_ASKS 16
#define N_LOGIT_ROWS 3

struct ask {
    int n_prompt, max_new;
    struct sampling sampling;
    uint32_t tokens[MAX_TOKENS]; /* the prompt and the answer that counts */
    float *logits;               /* [N_LOGIT_ROWS][n_vocab] of the prompt's last rows */
};

struct subject {
    char path[1024];
    bool is_made;
    struct gguf *gguf;
    int n_vocab;
    struct ask asks[MAX_ASKS];
};

static struct engine *start_engine(const struct subject *subject, int max_sequences, int kv_tokens, int chunk,
                                   bool has_cache) {
    struct engine_options options = {.gguf = subject->gguf,
                                     .tiers = cpu_detect(),
                                     .kv_dtype = DTYPE_F16,
                                     .n_threads = 2,
                                     .max_chunk = chunk,
                                     .block_tokens = BLOCK,
                                     .max_context = kv_tokens < MAX_TOKENS ? kv_tokens : MAX_TOKENS,
                                     .max_sequences = max_sequences,
                                     .kv_tokens = kv_tokens,
                                     .max_logit_rows = 2 * MAX_ASKS,
                                     .has_prefix_cache = has_cache};
    struct status_note note = {0};
    struct engine *engine;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

static struct request *submit(struct engine *engine, const struct subject *subject, const struct ask *ask) {
    struct request *request = engine_client_make(ask->tokens, ask->n_prompt, ask->max_new);
    assert_non_null(request);
    request->sampling = ask->sampling;
    request->logits = mem_alloc_array((size_t)N_LOGIT_ROWS * (size_t)subject->n_vocab, sizeof(float));
    request->logits_from = ask->n_prompt - N_LOGIT_ROWS;
    assert_non_null(request->logits);
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    return request;
}

/* Until n requests have come home, or n_tokens token events came. */
static void await(struct engine *engine, int n, int n_tokens) {
    for (int n_home = 0; n_home < n && n_tokens > 0;) {
        struct event event;
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
        if (event.kind == EVENT_REFUSED) fail_msg("refused: %s", event.request->note.text);
        n_home += event.kind == EVENT_FINISHED;
        n_tokens -= event.kind == EVENT_TOKEN;
    }
}

static void check_and_free(const struct subject *subject, const struct ask *ask, struct request **request) {
    int n = ask->n_prompt + ask->max_new;
    assert_int_equal((*request)->stats.n_new_tokens, ask->max_new);
    for (int i = 0; i < n; i++)
        if ((*request)->tokens[i] != ask->tokens[i])
            fail_msg("token %d of a prompt of %d is %u, expected %u (%d cached, %d times preempted)", i, ask->n_prompt,
                     (*request)->tokens[i], ask->tokens[i], (*request)->stats.n_cached_tokens,
                     (*request)->stats.n_preemptions);
    assert_memory_equal((*request)->logits, ask->logits,
                        (size_t)N_LOGIT_ROWS * (size_t)subject->n_vocab * sizeof(float));
    mem_free((*request)->logits);
    engine_client_free(request);
}

/* Makes the answer that counts: alone, in an engine without a cache. */
static void answer_alone(struct subject *subject, struct ask *ask) {
    struct engine *engine = start_engine(subject, 1, MAX_TOKENS, MAX_TOKENS, false);
    if (!ask->logits) ask->logits = mem_alloc_array((size_t)N_LOGIT_ROWS * (size_t)subject->n_vocab, sizeof(float));
    struct request *request = submit(engine, subject, ask);
    await(engine, 1, MAX_TOKENS);
    memcpy(ask->tokens, request->tokens, (size_t)(ask->n_prompt + ask->max_new) * sizeof *ask->tokens);
    memcpy(ask->logits, request->logits, (size_t)N_LOGIT_ROWS * (size_t)subject->n_vocab * sizeof(float));
    mem_free(request->logits);
    engine_client_free(&request);
    engine_destroy(&engine);
}

/* A new prompt; seeded ones are sampled, others greedy. */
static struct ask *make_ask(struct subject *subject, int i, int n_prompt, int max_new, int seed) {
    struct ask *ask = &subject->asks[i];
    ask->n_prompt = n_prompt;
    ask->max_new = max_new;
    ask->sampling = (struct sampling){.temperature = seed ? 1 : 0, .top_p = 1, .seed = (uint64_t)seed};
    model_file_random_ids(8000 + (uint64_t)i, subject->n_vocab, ask->tokens, n_prompt);
    answer_alone(subject, ask);
    return ask;
}

static void open_subject(struct subject *subject, const char *golden) {
    struct status_note note = {0};
    *subject = (struct subject){.is_made = !golden};
    if (golden)
        snprintf(subject->path, sizeof subject->path, "%s", test_golden_file(golden));
    else
        model_file_make(DTYPE_Q4_1, 5, subject->path);
    if (gguf_open(&subject->gguf, subject->path, &note)) fail_msg("%s", note.text);
    struct engine *engine = start_engine(subject, 1, MAX_TOKENS, MAX_TOKENS, false);
    subject->n_vocab = engine_model(engine)->n_vocab;
    engine_destroy(&engine);
}

static void close_subject(struct subject *subject) {
    for (int i = 0; i < MAX_ASKS; i++) mem_free(subject->asks[i].logits);
    gguf_close(&subject->gguf);
    if (subject->is_made) unlink(subject->path);
}

static void ask_together(struct engine *engine, struct subject *subject, int n, int *out_preempted) {
    struct request *requests[MAX_ASKS];
    for (int i = 0; i < n; i++) requests[i] = submit(engine, subject, &subject->asks[i]);
    await(engine, n, INT32_MAX);
    for (int i = 0; i < n; i++) {
        *out_preempted += requests[i]->stats.n_preemptions;
        assert_true(phase_stats_unaccounted_ns(&requests[i]->stats) < 1000000);
        if (requests[i]->stats.n_preemptions) assert_true(requests[i]->stats.part_ns[PHASE_PREEMPTED] > 0);
        check_and_free(subject, &subject->asks[i], &requests[i]);
    }
}

/* ---- preemption ---- */

static void preempt(struct subject *subject) {
    static const int n_prompts[] = {BLOCK, BLOCK + 1, BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1, 2 * BLOCK - 1};
    make_ask(subject, 0, 30, 45, 0);
    make_ask(subject, 1, 30, 45, 42);
    for (int cache = 0; cache < 2; cache++) {
        int n_preempted = 0;
        struct engine *engine = start_engine(subject, 2, 7 * BLOCK, 7 * BLOCK, cache);
        ask_together(engine, subject, 2, &n_preempted);
        assert_true(n_preempted > 0);
        struct engine_stats stats = engine_read_stats(engine);
        assert_int_equal(stats.n_preempted, n_preempted);
        engine_destroy(&engine);
    }
    for (int i = 0; i < MAX_ASKS; i++) make_ask(subject, i, n_prompts[i % 6], 60 + i, i % 2 ? 7 + i : 0);
    for (int cache = 0; cache < 2; cache++) {
        int n_preempted = 0;
        struct engine *engine = start_engine(subject, MAX_ASKS, 15 * BLOCK, 24, cache);
        for (int round = 0; round < 2; round++) ask_together(engine, subject, MAX_ASKS, &n_preempted);
        assert_true(n_preempted > 2);
        engine_destroy(&engine);
    }
}

/* ---- sharing ---- */

/* Two equal prompts at once: one is computed, in chunks that end inside of blocks. */
static void share_at_once(struct subject *subject) {
    struct ask *ask = make_ask(subject, 0, 200, 20, 0);
    struct engine *engine = start_engine(subject, 2, 4 * MAX_TOKENS, 24, true);
    struct request *first = submit(engine, subject, ask), *second = submit(engine, subject, ask);
    await(engine, 2, INT32_MAX);
    assert_int_equal(first->stats.n_cached_tokens + second->stats.n_cached_tokens, 200 / BLOCK * BLOCK);
    check_and_free(subject, ask, &first);
    check_and_free(subject, ask, &second);
    engine_destroy(&engine);
}

/* A prompt that is another one's and a part of the answer that is still being made. */
static void share_with_a_running_answer(struct subject *subject) {
    struct ask *first = make_ask(subject, 0, 100, 200, 0), *second = &subject->asks[1];
    second->n_prompt = 170;
    second->max_new = 20;
    second->sampling = first->sampling;
    memcpy(second->tokens, first->tokens, 170 * sizeof *first->tokens);
    answer_alone(subject, second);
    struct engine *engine = start_engine(subject, 2, 4 * MAX_TOKENS, 64, true);
    struct request *running = submit(engine, subject, first);
    await(engine, 1, 80); /* 179 rows have been run */
    struct request *request = submit(engine, subject, second);
    await(engine, 2, INT32_MAX);
    assert_int_equal(request->stats.n_cached_tokens, 170 - N_LOGIT_ROWS);
    check_and_free(subject, first, &running);
    check_and_free(subject, second, &request);
    engine_destroy(&engine);
}

/* Agrees with another up to the middle of a block, which the other holds. */
static void share_part_of_a_block(struct subject *subject) {
    struct ask *first = make_ask(subject, 0, 150, 150, 0), *second = &subject->asks[1];
    second->n_prompt = 160;
    second->max_new = 20;
    second->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = 5};
    memcpy(second->tokens, first->tokens, 105 * sizeof *first->tokens);
    model_file_random_ids(9000, subject->n_vocab, second->tokens + 105, 55);
    second->tokens[105] = (first->tokens[105] + 1) % (uint32_t)subject->n_vocab;
    answer_alone(subject, second);
    struct engine *engine = start_engine(subject, 2, 4 * MAX_TOKENS, 64, true);
    struct request *running = submit(engine, subject, first);
    await(engine, 1, 10);
    struct request *request = submit(engine, subject, second);
    await(engine, 2, INT32_MAX);
    assert_int_equal(request->stats.n_cached_tokens, 105);
    check_and_free(subject, first, &running);
    check_and_free(subject, second, &request);
    engine_destroy(&engine);
}

typedef void part_fn(struct subject *subject);

static void on_both_models(part_fn *part) {
    static struct subject subject;
    open_subject(&subject, NULL);
    part(&subject);
    close_subject(&subject);
    if (!test_golden_dir()) return;
    open_subject(&subject, "gguf/gemma3.gguf");
    part(&subject);
    close_subject(&subject);
}

static void preempted_as_alone(void **state) {
    (void)state;
    on_both_models(preempt);
}

static void equal_prompts_at_once(void **state) {
    (void)state;
    on_both_models(share_at_once);
}

static void an_answer_that_is_being_made(void **state) {
    (void)state;
    on_both_models(share_with_a_running_answer);
}

static void a_part_of_a_block(void **state) {
    (void)state;
    on_both_models(share_part_of_a_block);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preempted_as_alone),
        cmocka_unit_test(equal_prompts_at_once),
        cmocka_unit_test(an_answer_that_is_being_made),
        cmocka_unit_test(a_part_of_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
