/* What each form of activations, and the int8 and q8_0 forms of attention, cost in accuracy: mean KL to the same model
 * with float activations, which `eval` compares with other implementations. Gemma has no reference distributions of its
 * own in golden. */
#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "support/bounds.h"
#include "support/model_run.h"
#include "support/test.h"

#define N_TOKENS 256
#define N_ROWS 64 /* of a step: logits of a large vocabulary */

static void read_ids(const char *name, uint32_t ids[N_TOKENS]) {
    char file[64];
    json_error_t error;
    snprintf(file, sizeof file, "real/%s.json", name);
    json_t *root = json_load_file(test_golden_file(file), 0, &error);
    const json_t *array = json_object_get(json_object_get(root, "perplexity"), "ids");
    assert_true(json_array_size(array) >= N_TOKENS);
    for (size_t i = 0; i < N_TOKENS; i++) ids[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    json_decref(root);
}

/* Logits of every position, [N_TOKENS][n_vocab]; free with mem_unmap_pages. */
static float *run(const char *path, enum activation_form form, enum dtype kv_dtype, const uint32_t *ids,
                  int *out_n_vocab) {
    struct model_run model;
    struct model_run_options options = {.kv_dtype = kv_dtype,
                                        .n_threads = 2,
                                        .block_tokens = 16,
                                        .max_tokens = N_TOKENS,
                                        .max_rows = N_ROWS,
                                        .max_logit_rows = N_ROWS,
                                        .tiers = cpu_detect(),
                                        .activations = form};
    model_run_open(&model, path, &options);
    float *logits = mem_map_pages((size_t)N_TOKENS * (size_t)model.n_vocab * sizeof(float));
    assert_non_null(logits);
    model_run_logits(&model, ids, N_TOKENS, N_ROWS, logits);
    *out_n_vocab = model.n_vocab;
    model_run_close(&model);
    return logits;
}

static double log_norm(const float *row, int n) {
    double max = (double)row[0], sum = 0;
    for (int i = 1; i < n; i++)
        if ((double)row[i] > max) max = (double)row[i];
    for (int i = 0; i < n; i++) sum += exp((double)row[i] - max);
    return max + log(sum);
}

static double mean_kl(const float *expected, const float *got, int n_vocab) {
    double total = 0;
    for (int t = 0; t < N_TOKENS; t++) {
        const float *p = expected + (size_t)t * (size_t)n_vocab, *q = got + (size_t)t * (size_t)n_vocab;
        double norm_p = log_norm(p, n_vocab), norm_q = log_norm(q, n_vocab);
        for (int i = 0; i < n_vocab; i++) {
            double log_p = (double)p[i] - norm_p;
            total += exp(log_p) * (log_p - ((double)q[i] - norm_q));
        }
    }
    return total / N_TOKENS;
}

static double kl_of(const char *path, enum activation_form form, enum dtype kv_dtype, const uint32_t *ids,
                    const float *expected) {
    int n_vocab;
    float *got = run(path, form, kv_dtype, ids, &n_vocab);
    double kl = mean_kl(expected, got, n_vocab);
    mem_unmap_pages(got, (size_t)N_TOKENS * (size_t)n_vocab * sizeof(float));
    return kl;
}

static void check_model(const char *name, const char *bound, const char *kv_bound) {
    uint32_t ids[N_TOKENS];
    int n_vocab;
    static const enum activation_form forms[] = {ACTIVATIONS_INT8, ACTIVATIONS_AUTO, ACTIVATIONS_INT16};
    double kl[3], kv_kl[3];
    test_skip_if_slow();
    read_ids(name, ids);
    char path[1024];
    snprintf(path, sizeof path, "%s", test_model_file(name));
    float *expected = run(path, ACTIVATIONS_F32, DTYPE_F16, ids, &n_vocab);
    for (int i = 0; i < 3; i++) {
        kl[i] = kl_of(path, forms[i], DTYPE_F16, ids, expected);
        kv_kl[i] = kl_of(path, forms[i], DTYPE_I8, ids, expected);
    }
    double q8_0_kl = kl_of(path, ACTIVATIONS_AUTO, DTYPE_Q8_0, ids, expected);
    mem_unmap_pages(expected, (size_t)N_TOKENS * (size_t)n_vocab * sizeof(float));
    print_message("%s: mean KL int8 %.6f, auto %.6f, int16 %.8f\n", name, kl[0], kl[1], kl[2]);
    print_message("%s: with int8 attention  %.6f, auto %.6f, int16 %.8f\n", name, kv_kl[0], kv_kl[1], kv_kl[2]);
    print_message("%s: with q8_0 attention, auto %.6f\n", name, q8_0_kl);
    assert_true(q8_0_kl > kl[1] && q8_0_kl < kv_kl[1]); /* between f16 and int8 */
    assert_true(kl[1] <= bounds_value(bound));          /* the default form */
    assert_true(kl[1] < kl[0]);
    assert_true(kl[2] <= bounds_value("kl_int16_mean"));
    assert_true(kv_kl[1] <= bounds_value(kv_bound));
    assert_true(kv_kl[1] > kl[1] && kv_kl[1] < kv_kl[0]);
}

static void smollm2(void **state) {
    (void)state;
    check_model("smollm2", "kl_smollm2_mean", "kl_smollm2_int8_kv");
}

static void gemma3(void **state) {
    (void)state;
    check_model("gemma3-270m", "kl_gemma3_mean", "kl_gemma3_int8_kv");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(smollm2), cmocka_unit_test(gemma3)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
