/* `kvick eval reference` on all three kinds of references: within the bounds, and exit 1 outside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "support/bounds.h"
#include "support/run_kvick.h"
#include "support/test.h"

/* The JSON that eval prints; fails the running test unless it exits with exit_code. */
static json_t *eval(const char *model, const char *reference, int exit_code) {
    struct run_kvick run;
    run_kvick(&run, (const char *[]){"eval", "reference", model, "--reference", reference, "--json", NULL});
    if (run.exit_code != exit_code) fail_msg("%s: exit %d: %s%s", reference, run.exit_code, run.out, run.err);
    json_t *root = json_loads(run.out, 0, NULL);
    if (!root) fail_msg("%s: no JSON: %s", reference, run.out);
    assert_int_equal(json_is_true(json_object_get(root, "within_bounds")), exit_code == 0);
    run_kvick_deinit(&run);
    return root;
}

static double number_of(const json_t *root, const char *name) {
    const json_t *value = json_object_get(root, name);
    if (!json_is_number(value)) fail_msg("no number %s", name);
    return json_number_value(value);
}

static void smollm2_agrees(void **state) {
    (void)state;
    char model[1024];
    test_skip_if_slow();
    snprintf(model, sizeof model, "%s", test_model_file("smollm2"));
    json_t *root = eval(model, test_golden_file("real/smollm2.json"), 0);
    assert_true(number_of(root, "sure_steps") > 100);
    assert_true(number_of(root, "sure_disagreements") == 0);
    json_decref(root);
}

/* The bounds were made with int8 activations everywhere, the default is closer. */
static void check_divergence(const char *activations, const char *kv_dtype, const char *bound) {
    char model[1024];
    struct run_kvick run;
    snprintf(model, sizeof model, "%s", test_model_file("smollm2"));
    run_kvick(&run, (const char *[]){"eval", "reference", model, "--reference",
                                     test_golden_file("real/smollm2.logprobs.json"), "--activations", activations,
                                     "--kv-cache-dtype", kv_dtype, "--json", NULL});
    if (run.exit_code) fail_msg("exit %d: %s%s", run.exit_code, run.out, run.err);
    json_t *root = json_loads(run.out, 0, NULL);
    double mean_kl = number_of(root, "mean_kl");
    print_message("activations %s, KV %s: mean KL %.6f\n", activations, kv_dtype, mean_kl);
    if (!(mean_kl > 0 && mean_kl <= bounds_value(bound))) fail_msg("mean_kl %g", mean_kl);
    json_decref(root);
    run_kvick_deinit(&run);
}

static void smollm2_is_within_its_divergence(void **state) {
    (void)state;
    test_skip_if_slow();
    check_divergence("int8", "f16", "kl_smollm2_mean");
    check_divergence("auto", "f16", "kl_smollm2_mean");
    check_divergence("int8", "int8", "kl_smollm2_int8_kv");
    check_divergence("auto", "int8", "kl_smollm2_int8_kv");
}

static void tiny_models_agree(void **state) {
    (void)state;
    static const char *const names[] = {"llama",  "llama-tied-mqa", "llama3-rope", "llama-yarn",
                                        "gemma3", "qwen2",          "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char model[1024], file[128];
        snprintf(file, sizeof file, "gguf/%s.gguf", names[i]);
        snprintf(model, sizeof model, "%s", test_golden_file(file));
        snprintf(file, sizeof file, "tiny/%s/reference.json", names[i]);
        struct run_kvick run;
        run_kvick(&run, (const char *[]){"eval", "reference", model, "--reference", test_golden_file(file),
                                         "--kv-cache-dtype", "f32", NULL});
        if (run.exit_code) fail_msg("%s: exit %d: %s%s", names[i], run.exit_code, run.out, run.err);
        assert_non_null(strstr(run.out, "max_logit_diff_std"));
        run_kvick_deinit(&run);
    }
}

/* One greedy id of a step whose gap is sure is replaced. */
static void one_wrong_id_is_told(void **state) {
    (void)state;
    char model[1024], path[] = "/tmp/kvick-eval-XXXXXX";
    snprintf(model, sizeof model, "%s", test_golden_file("gguf/llama.gguf"));
    json_t *root = json_load_file(test_golden_file("tiny/llama/reference.json"), 0, NULL), *item;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, item) {
        json_t *greedy = json_object_get(item, "greedy"), *gaps = json_object_get(item, "greedy_top2_gap");
        json_object_del(item, "logits_file"); /* lies beside the original */
        json_object_del(item, "logits_rows");
        json_object_del(item, "logits_cols");
        size_t last = json_array_size(greedy) - 1;
        if (i != 0) continue;
        while (json_number_value(json_array_get(gaps, last)) < 0.5) last--;
        json_int_t id = json_integer_value(json_array_get(greedy, last));
        json_array_set_new(greedy, last, json_integer((id + 1) % 384));
    }
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(json_dumpfd(root, fd, 0), 0);
    close(fd);
    json_decref(root);
    root = eval(model, path, 1);
    assert_true(number_of(root, "sure_disagreements") >= 1);
    json_decref(root);
    unlink(path);
}

int main(void) {
    run_kvick_allow_bytes((size_t)4 << 30); /* logits of a long text over a whole vocabulary */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2_agrees),
        cmocka_unit_test(smollm2_is_within_its_divergence),
        cmocka_unit_test(tiny_models_agree),
        cmocka_unit_test(one_wrong_id_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
