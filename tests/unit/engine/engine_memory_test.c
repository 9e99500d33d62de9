/* What a loaded model takes: the packed weights, the KV pool, and little else; the file is given back. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/engine_client.h"
#include "support/bounds.h"
#include "support/test.h"

#define MAX_CONTEXT 8192
#define N_PROMPT 600
#define WAIT_MS 20000

static double resident_bytes(void) {
    long n_pages = 0, n_resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &n_pages, &n_resident), 2);
    fclose(file);
    return (double)n_resident * (double)sysconf(_SC_PAGESIZE);
}

/* Waits until an idle engine has nothing left to tidy up, as far as memory shows it. */
static double settled_bytes(double at_least) {
    double before = 0, now = resident_bytes();
    for (int ms = 0; (now < at_least || now != before) && ms < WAIT_MS; ms += 50) {
        thread_sleep_ms(50);
        before = now;
        now = resident_bytes();
    }
    return now;
}

static void ask(struct engine *engine) {
    static uint32_t tokens[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++) tokens[i] = (uint32_t)(i * 7 + 1);
    struct request *request = engine_client_make(tokens, N_PROMPT, 2);
    struct event event = {0};
    assert_non_null(request);
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    while (event.kind != EVENT_FINISHED)
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
    engine_client_free(&request);
}

static void a_model_takes_its_weights_and_its_cache(void **state) {
    (void)state;
    test_skip_if_slow(); /* a sanitizer's shadow is memory too */
    const char *path = test_model_file("smollm2");
    struct stat file;
    struct gguf *gguf;
    struct engine *engine;
    struct status_note note = {0};
    assert_int_equal(stat(path, &file), 0);
    if (gguf_open(&gguf, path, &note)) fail_msg("%s", note.text);
    struct engine_options options = {.gguf = gguf,
                                     .tiers = cpu_detect(),
                                     .kv_dtype = DTYPE_F16,
                                     .n_threads = 2,
                                     .max_chunk = 512,
                                     .block_tokens = 16,
                                     .max_context = MAX_CONTEXT,
                                     .max_sequences = 1,
                                     .kv_tokens = MAX_CONTEXT + 16,
                                     .max_logit_rows = 1,
                                     .has_prefix_cache = true};
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    double weights = (double)engine_weight_bytes(engine), pool = (double)engine_kv_bytes(engine);
    assert_true(weights <= bounds_value("packed_over_file") * (double)file.st_size);
    double bound = bounds_value("rss_over_pools") * (weights + pool);

    /* The idle engine backs the pool ahead of use. */
    double loaded = settled_bytes(weights + pool);
    if (loaded < weights + pool)
        fail_msg("%.0f MB are resident, the weights and the pool alone are %.0f", loaded / 1e6, (weights + pool) / 1e6);
    if (loaded > bound) fail_msg("loaded: %.0f MB are resident, bound %.0f", loaded / 1e6, bound / 1e6);
    ask(engine);
    double used = settled_bytes(weights + pool);
    if (used > bound) fail_msg("after a request: %.0f MB are resident, bound %.0f", used / 1e6, bound / 1e6);
    engine_destroy(&engine);
    gguf_close(&gguf);
}

/* An engine that is no longer wanted does not load to the end. */
static void loading_can_be_given_up(void **state) {
    (void)state;
    struct gguf *gguf;
    struct status_note note = {0};
    if (gguf_open(&gguf, test_model_file("smollm2"), &note)) fail_msg("%s", note.text);
    struct engine_options options = {.gguf = gguf,
                                     .tiers = cpu_detect(),
                                     .kv_dtype = DTYPE_F16,
                                     .n_threads = 2,
                                     .max_chunk = 64,
                                     .block_tokens = 16,
                                     .max_context = 64,
                                     .max_sequences = 1,
                                     .kv_tokens = 128,
                                     .max_logit_rows = 1};
    long n_live = mem_n_live();
    for (int ms = 0; ms < 40; ms += 8) {
        struct engine *engine;
        if (engine_begin(&engine, &options, &note)) fail_msg("%s", note.text);
        thread_sleep_ms(ms);
        engine_destroy(&engine);
        assert_null(engine);
    }
    assert_int_equal(mem_n_live(), n_live);
    gguf_close(&gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_takes_its_weights_and_its_cache),
        cmocka_unit_test(loading_can_be_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
