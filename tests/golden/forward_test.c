/* Logits and greedy ids of the GGUFs against another implementation, within tests/bounds.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "cmd/reference.h"
#include "support/bounds.h"
#include "support/model_run.h"
#include "support/test.h"

#define MAX_TOKENS 512

static uint32_t argmax(const float *values, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (values[i] > values[best]) best = i;
    return (uint32_t)best;
}

/* |difference| of the last rows over the standard deviation of the reference's logits. */
static void check_logits(const struct reference_case *item, const float *logits, int n_vocab, double max_diff) {
    size_t n = (size_t)item->n_logit_rows * (size_t)n_vocab;
    const float *ours = logits + (size_t)(item->n_prompt - item->n_logit_rows) * (size_t)n_vocab;
    double sum = 0, squares = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        double expected = (double)item->logits[i], diff = fabs(expected - (double)ours[i]);
        sum += expected;
        squares += expected * expected;
        if (!(diff <= largest)) largest = diff;
    }
    double std = sqrt(squares / (double)n - sum / (double)n * (sum / (double)n));
    if (!(largest <= max_diff * std))
        fail_msg("prompt of %d: largest difference %g std, bound %g", item->n_prompt, largest / std, max_diff);
}

static void check_greedy(const struct reference_case *item, const float *logits, int n_vocab, double sure_gap) {
    for (int i = 0; i < item->n_greedy; i++) {
        int row = item->n_prompt - 1 + i;
        if (item->gaps[i] > sure_gap)
            assert_int_equal(argmax(logits + (size_t)row * (size_t)n_vocab, n_vocab), item->tokens[row + 1]);
    }
}

/* gguf/mistral-swa.gguf with the window that its model has and its converter left out, in place of two names. */
static void write_mistral(const char *path) {
    static char bytes[4 << 20];
    FILE *file = fopen(test_golden_file("gguf/mistral-swa.gguf"), "rb");
    assert_non_null(file);
    size_t n_bytes = fread(bytes, 1, sizeof bytes, file), at = 0;
    fclose(file);
    const char name[] = "general.name", window[] = "llama.attention.sliding_window";
    const uint64_t name_bytes = sizeof name - 1, window_bytes = sizeof window - 1, value_bytes = 7;
    const uint32_t text = 8, u32 = 4, keys = 48; /* GGUF's numbers of types; the model's window */
    while (at < n_bytes && memcmp(bytes + at, name, name_bytes)) at++;
    assert_true(at < n_bytes);
    char *to = bytes + at - sizeof(uint64_t);
#define PUT(src, n) memcpy(to, src, n), to += (n)
    PUT(&window_bytes, 8), PUT(window, window_bytes), PUT(&u32, 4), PUT(&keys, 4);
    PUT(&name_bytes, 8), PUT(name, name_bytes), PUT(&text, 4), PUT(&value_bytes, 8), PUT("Mistral", value_bytes);
#undef PUT
    assert_memory_equal(to + 8, "llama.block_count", 17); /* nothing else has moved */
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

/* The model's file; true: it was made, and is to be removed. */
static bool find_model(const char *name, char path[1024]) {
    char file[128];
    bool is_made = strcmp(name, "mistral-swa") == 0;
    snprintf(file, sizeof file, "gguf/%s.gguf", name);
    snprintf(path, 1024, "%s", is_made ? "/tmp/kvick-mistral-XXXXXX" : test_golden_file(file));
    if (!is_made) return false;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_mistral(path);
    return true;
}

static void logits_are_the_reference_s(void **state) {
    const char *name = *state;
    char path[1024], file[128];
    struct status_note note = {0};
    struct reference *reference;
    snprintf(file, sizeof file, "tiny/%s/reference.json", name);
    if (reference_load(&reference, test_golden_file(file), &note)) fail_msg("%s: %s", file, note.text);
    bool is_made = find_model(name, path);
    struct model_run_options options = {.kv_dtype = DTYPE_F32,
                                        .n_threads = 2,
                                        .block_tokens = 16,
                                        .max_tokens = MAX_TOKENS,
                                        .max_rows = MAX_TOKENS,
                                        .max_logit_rows = MAX_TOKENS,
                                        .tiers = cpu_detect(),
                                        .activations = ACTIVATIONS_F32,
                                        .has_bf16_tables = reference->has_bf16_tables};
    struct model_run run;
    model_run_open(&run, path, &options);
    if (is_made) unlink(path);
    float *logits = mem_alloc_array((size_t)MAX_TOKENS * (size_t)run.n_vocab, sizeof(float));
    assert_non_null(logits);
    int n_logit_cases = 0, n_long = 0;
    for (int i = 0; i < reference->n_cases; i++) {
        const struct reference_case *item = &reference->cases[i];
        int n_tokens = item->n_prompt + item->n_greedy;
        assert_in_range(n_tokens, 1, MAX_TOKENS);
        model_run_logits(&run, item->tokens, n_tokens, 0, logits);
        if (item->logits) check_logits(item, logits, run.n_vocab, bounds_value("tiny_logit_rel"));
        check_greedy(item, logits, run.n_vocab, bounds_value("argmax_gap_tiny"));
        n_logit_cases += item->logits != NULL;
        n_long += item->n_prompt >= 200;
    }
    assert_true(n_logit_cases >= 4); /* the file says what it is for */
    assert_true(n_long >= 1);
    mem_free(logits);
    model_run_close(&run);
    reference_free(&reference);
}

int main(void) {
    static const char *const names[] = {"llama",  "llama-tied-mqa", "llama3-rope", "llama-yarn",
                                        "gemma3", "qwen2",          "qwen3",       "mistral-swa"};
    struct CMUnitTest tests[sizeof names / sizeof names[0]];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        tests[i] = (struct CMUnitTest){names[i], logits_are_the_reference_s, NULL, NULL, (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
