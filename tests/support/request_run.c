#include "support/request_run.h"

#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "support/test.h"
#include "weights/gguf.h"

#define N_VOCAB MODEL_FILE_N_VOCAB

static char model_path[MODEL_FILE_MAX_PATH];
static struct gguf *gguf;
uint32_t request_run_prompt[REQUEST_RUN_MAX_CONTEXT];

struct engine_options request_run_options(const struct exact_options *exact, int max_sequences, int kv_tokens) {
    return (struct engine_options){.gguf = gguf,
                                   .tiers = cpu_detect(),
                                   .kv_dtype = DTYPE_F16,
                                   .n_threads = exact->threads,
                                   .max_chunk = exact->chunk ? exact->chunk : REQUEST_RUN_MAX_CONTEXT,
                                   .block_tokens = exact->block_tokens,
                                   .max_context = REQUEST_RUN_MAX_CONTEXT,
                                   .max_sequences = max_sequences,
                                   .kv_tokens = kv_tokens,
                                   .max_logit_rows = max_sequences > 48 ? max_sequences : 48,
                                   .has_prefix_cache = exact->has_prefix_cache,
                                   .admission = {.takes_late = true}}; /* however slow the machine */
}

struct engine *request_run_start_with(const struct exact_options *exact, int max_sequences, int kv_tokens) {
    struct engine_options options = request_run_options(exact, max_sequences, kv_tokens);
    struct status_note note = {0};
    struct engine *engine;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

struct engine *request_run_start(const struct exact_options *exact, int max_sequences) {
    return request_run_start_with(exact, max_sequences, 2 * max_sequences * REQUEST_RUN_MAX_CONTEXT);
}

const struct exact_options request_run_plain = {.threads = 1, .block_tokens = 16};

int request_run_set_up(void **state) {
    struct status_note note = {0};
    (void)state;
    model_file_make(DTYPE_Q4_1, 6, model_path);
    if (gguf_open(&gguf, model_path, &note)) return -1;
    model_file_random_ids(77, N_VOCAB, request_run_prompt, REQUEST_RUN_MAX_CONTEXT);
    return 0;
}

int request_run_tear_down(void **state) {
    (void)state;
    gguf_close(&gguf);
    return unlink(model_path);
}

struct request *request_run_make(int n_prompt, int max_new) {
    struct request *request = engine_client_make(request_run_prompt, n_prompt, max_new);
    assert_non_null(request);
    return request;
}

struct event request_run_await(struct engine *engine, uint64_t id) {
    struct event event;
    do
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
    while (event.request_id != id || (event.kind != EVENT_FINISHED && event.kind != EVENT_REFUSED));
    return event;
}

void request_run_ask(struct engine *engine, struct request *request) {
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    if (request_run_await(engine, request->id).kind == EVENT_REFUSED) fail_msg("refused: %s", request->note.text);
}

void request_run_expect_refusal(struct engine *engine, struct request *request, enum status status, const char *word) {
    assert_int_equal(engine_client_run(engine, request), status);
    if (!strstr(request->note.text, word)) fail_msg("'%s' does not say '%s'", request->note.text, word);
    engine_client_free(&request);
}

void request_run_every_way(request_run_way_fn *check) {
    for (int sample = -1; sample < exact_options_n_values() * (test_is_slow_build() ? 1 : 2); sample++) {
        struct exact_options exact = sample < 0 ? request_run_plain : exact_options_sample(5, sample);
        struct engine *engine = request_run_start(&exact, 6);
        check(engine, &exact, sample < 0);
        if (sample >= 0) {
            struct request *neighbour = request_run_make(300, 40);
            neighbour->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = (uint64_t)sample};
            assert_int_equal(engine_client_submit(engine, neighbour), STATUS_OK);
            check(engine, &exact, false);
            if (!neighbour->stats.finished_ns) request_run_await(engine, neighbour->id);
            engine_client_free(&neighbour);
        }
        engine_destroy(&engine);
    }
}
