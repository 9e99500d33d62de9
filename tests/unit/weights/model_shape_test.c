#include "weights/model_shape.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

static struct model_shape shape_of(const char *name) {
    struct model_shape shape;
    struct status_note note = {0};
    if (model_shape_find(name, &shape, &note)) fail_msg("%s", note.text);
    return shape;
}

/* Figures of the published models (all tensors of model.safetensors). */
static void parameters_are_as_published(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t n_parameters;
    } known[] = {
        {"smollm2-135m", 134515008},    {"smollm2-360m", 361821120},  {"smollm2-1.7b", 1711376384},
        {"tinyllama-1.1b", 1100048384}, {"llama-3.2-1b", 1235814400}, {"llama-3.2-3b", 3212749824},
        {"llama-3.1-8b", 8030261248},   {"mistral-7b", 7241732096},   {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-1.5b", 1543714304},   {"qwen2.5-7b", 7615616512},   {"qwen3-0.6b", 596049920},
        {"qwen3-1.7b", 1720574976},     {"qwen3-4b", 4022468096},     {"gemma-3-270m", 268098176},
        {"gemma-3-1b", 999885952},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct model_shape shape = shape_of(known[i].name);
        if (model_shape_n_parameters(&shape) != known[i].n_parameters)
            fail_msg("%s has %llu parameters, expected %llu", known[i].name,
                     (unsigned long long)model_shape_n_parameters(&shape), (unsigned long long)known[i].n_parameters);
    }
}

static void every_row_is_tested_above(void **state) {
    (void)state;
    struct model_shape shape;
    struct status_note note = {0};
    assert_int_equal(model_shape_find("nothing", &shape, &note), STATUS_INVALID);
    int n_known = 1;
    for (const char *at = strchr(note.text, '('); *at; at++) n_known += *at == ',';
    assert_int_equal(n_known, 16);
    assert_non_null(strstr(note.text, "smollm2-135m"));
    assert_non_null(strstr(note.text, "gemma-3-1b)"));
}

static bool has_tensor(const struct model_shape *shape, const char *name) {
    for (int i = 0; i < model_shape_n_tensors(shape); i++) {
        struct shape_tensor tensor;
        model_shape_tensor(shape, i, &tensor);
        if (strcmp(tensor.name, name) == 0) return true;
    }
    return false;
}

static void architectures_have_their_tensors(void **state) {
    (void)state;
    struct model_shape llama = shape_of("llama-3.2-1b"), qwen2 = shape_of("qwen2.5-0.5b"),
                       qwen3 = shape_of("qwen3-0.6b");
    struct model_shape gemma = shape_of("gemma-3-270m"), untied = shape_of("llama-3.1-8b");
    assert_int_equal(model_shape_n_tensors(&llama), 3 + 16 * 9);
    assert_int_equal(model_shape_n_tensors(&gemma), 2 + 18 * 13); /* as its published file */
    assert_true(has_tensor(&untied, "output.weight") && !has_tensor(&llama, "output.weight"));
    assert_true(has_tensor(&llama, "rope_freqs.weight") && !has_tensor(&gemma, "rope_freqs.weight"));
    assert_true(has_tensor(&qwen2, "blk.23.attn_v.bias") && !has_tensor(&qwen3, "blk.23.attn_v.bias"));
    assert_true(has_tensor(&qwen3, "blk.0.attn_k_norm.weight") && !has_tensor(&llama, "blk.0.attn_k_norm.weight"));
    assert_true(has_tensor(&gemma, "blk.17.post_ffw_norm.weight") && !has_tensor(&qwen3, "blk.0.post_ffw_norm.weight"));
    struct shape_tensor tensor;
    model_shape_tensor(&qwen3, 3, &tensor);
    assert_string_equal(tensor.name, "blk.0.attn_q.weight");
    assert_int_equal(tensor.dims[0], 1024);
    assert_int_equal(tensor.dims[1], 2048); /* heads wider than the model */
}

static void layers_can_be_overridden(void **state) {
    (void)state;
    struct model_shape shape = shape_of("smollm2-135m");
    shape.n_layers = 2;
    assert_int_equal(model_shape_n_tensors(&shape), 2 + 2 * 9);
    assert_true(has_tensor(&shape, "blk.1.ffn_down.weight") && !has_tensor(&shape, "blk.2.ffn_down.weight"));
}

/* The published rope_freqs.weight of Llama 3.2 1B begins with 1 and ends with 32. */
static void rope_factors_rise_from_1_to_the_factor(void **state) {
    (void)state;
    struct model_shape shape = shape_of("llama-3.2-1b"), plain = shape_of("smollm2-135m");
    double before = 1;
    int n_between = 0;
    for (int i = 0; i < 32; i++) {
        double factor = model_shape_rope_factor(&shape, i);
        assert_true(factor >= before);
        n_between += factor > 1 && factor < 32;
        before = factor;
        assert_true(model_shape_rope_factor(&plain, i) == 1);
    }
    assert_true(model_shape_rope_factor(&shape, 0) == 1 && model_shape_rope_factor(&shape, 31) == 32);
    assert_true(n_between >= 2 && n_between <= 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_as_published),
        cmocka_unit_test(every_row_is_tested_above),
        cmocka_unit_test(architectures_have_their_tensors),
        cmocka_unit_test(layers_can_be_overridden),
        cmocka_unit_test(rope_factors_rise_from_1_to_the_factor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
