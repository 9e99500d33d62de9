/* quantize: how far the answers of a quantized file are from those of its source. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "support/bounds.h"
#include "support/model_file.h"
#include "support/model_run.h"
#include "support/run_kvick.h"
#include "support/test.h"
#include "weights/synth.h"

#define N_TOKENS 64
#define N_VOCAB 2000

static char source[MODEL_FILE_MAX_PATH], target[MODEL_FILE_MAX_PATH];

static void make_source(void) {
    struct synth_spec spec = {.seed = 3};
    struct status_note note = {0};
    struct progress progress;
    assert_int_equal(model_shape_find("llama-3.2-1b", &spec.shape, &note), STATUS_OK);
    assert_int_equal(file_type_find("F32", &spec.type, &note), STATUS_OK);
    spec.shape.n_layers = 2;
    spec.shape.n_vocab = N_VOCAB;
    spec.shape.d_model = 256;
    spec.shape.d_ff = 512;
    spec.shape.n_heads = 4;
    spec.shape.n_kv_heads = 2;
    snprintf(source, sizeof source, "/tmp/kvick-quantize-%d.gguf", (int)getpid());
    snprintf(target, sizeof target, "/tmp/kvick-quantize-%d.out.gguf", (int)getpid());
    progress_start(&progress, "test", synth_bytes(&spec));
    if (synth_write(&spec, source, &progress, &note)) fail_msg("%s", note.text);
    progress_end(&progress);
}

static float *logits_of(const char *path, const uint32_t *ids) {
    struct model_run_options options = {.kv_dtype = DTYPE_F32,
                                        .n_threads = 1,
                                        .block_tokens = 16,
                                        .max_tokens = N_TOKENS,
                                        .max_rows = N_TOKENS,
                                        .max_logit_rows = N_TOKENS,
                                        .tiers = cpu_detect(),
                                        .activations = ACTIVATIONS_F32};
    struct model_run run;
    model_run_open(&run, path, &options);
    float *logits = mem_alloc_array((size_t)N_TOKENS * N_VOCAB, sizeof *logits);
    assert_non_null(logits);
    model_run_logits(&run, ids, N_TOKENS, 0, logits);
    model_run_close(&run);
    return logits;
}

static double log_norm(const float *row) {
    double sum = 0;
    for (int i = 0; i < N_VOCAB; i++) sum += exp((double)row[i]);
    return log(sum);
}

static double mean_kl(const float *expected, const float *got) {
    double total = 0;
    for (int t = 0; t < N_TOKENS; t++) {
        const float *p = expected + (size_t)t * N_VOCAB, *q = got + (size_t)t * N_VOCAB;
        double norm_p = log_norm(p), norm_q = log_norm(q);
        for (int i = 0; i < N_VOCAB; i++) {
            double log_p = (double)p[i] - norm_p;
            total += exp(log_p) * (log_p - ((double)q[i] - norm_q));
        }
    }
    return total / N_TOKENS;
}

static void answers_stay_near_those_of_the_source(void **state) {
    (void)state;
    static const struct {
        const char *type, *bound;
    } rows[] = {{"F32", NULL},
                {"F16", "kl_quantize_f16"},
                {"BF16", "kl_quantize_bf16"},
                {"Q8_0", "kl_quantize_q8_0"},
                {"Q6_K", "kl_quantize_q6_k"},
                {"Q4_1", "kl_quantize_q4"},
                {"Q4_0", "kl_quantize_q4"}};
    uint32_t ids[N_TOKENS];
    model_file_random_ids(5, N_VOCAB, ids, N_TOKENS);
    make_source();
    float *expected = logits_of(source, ids);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run_kvick run;
        run_kvick(&run, (const char *const[]){"quantize", source, target, "--type", rows[i].type, NULL});
        if (run.exit_code != 0) fail_msg("%s", run.err);
        run_kvick_deinit(&run);
        float *got = logits_of(target, ids);
        double kl = mean_kl(expected, got), bound = rows[i].bound ? bounds_value(rows[i].bound) : 0;
        print_message("%s: mean KL %.3g, bound %g\n", rows[i].type, kl, bound);
        if (!(kl <= bound)) fail_msg("%s: mean KL is %g, at most %g", rows[i].type, kl, bound);
        mem_free(got);
    }
    mem_free(expected);
}

static int remove_files(void **state) {
    (void)state;
    unlink(source);
    unlink(target);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(answers_stay_near_those_of_the_source, remove_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
