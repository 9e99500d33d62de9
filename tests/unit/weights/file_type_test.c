#include "weights/file_type.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

static struct file_type type_of(const char *name) {
    struct file_type type;
    struct status_note note = {0};
    if (file_type_find(name, &type, &note)) fail_msg("%s", note.text);
    return type;
}

static enum dtype of(const char *type_name, bool is_tied, const char *tensor, uint64_t row_elements) {
    struct file_type type = type_of(type_name);
    struct file_type_place place = {.n_layers = 16, .is_tied = is_tied};
    return file_type_of(&type, &place, tensor, strlen(tensor), row_elements);
}

static void plain_types_are_that_type(void **state) {
    (void)state;
    assert_int_equal(of("Q4_0", true, "blk.0.attn_q.weight", 2048), DTYPE_Q4_0);
    assert_int_equal(of("Q4_0", true, "blk.0.ffn_down.weight", 2048), DTYPE_Q4_0);
    assert_int_equal(of("BF16", true, "blk.0.ffn_down.weight", 2048), DTYPE_BF16);
    assert_int_equal(of("Q8_0", true, "token_embd.weight", 2048), DTYPE_Q8_0);
    assert_int_equal(of("F16", true, "token_embd.weight", 2048), DTYPE_F16);
}

static void the_output_layer_has_more_bits(void **state) {
    (void)state;
    assert_int_equal(of("Q4_0", true, "token_embd.weight", 2048), DTYPE_Q6_K);
    assert_int_equal(of("Q4_0", false, "token_embd.weight", 2048), DTYPE_Q4_0);
    assert_int_equal(of("Q4_0", false, "output.weight", 2048), DTYPE_Q6_K);
    assert_int_equal(of("Q4_1", true, "token_embd.weight", 576), DTYPE_Q8_0); /* as SmolLM2's published file */
}

/* 16 layers: 0, 1, then every third from 4 on, then 14 and 15. */
static void a_mixture_has_its_pattern(void **state) {
    (void)state;
    static const int more[] = {0, 1, 4, 7, 10, 13, 14, 15};
    for (int layer = 0, next = 0; layer < 16; layer++) {
        char name[64];
        bool gets_more = next < 8 && more[next] == layer;
        next += gets_more;
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", layer);
        assert_int_equal(of("Q4_K_M", true, name, 2048), gets_more ? DTYPE_Q6_K : DTYPE_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", layer);
        assert_int_equal(of("Q4_K_M", true, name, 8192), gets_more ? DTYPE_Q6_K : DTYPE_Q4_K);
        snprintf(name, sizeof name, "blk.%d.attn_k.weight", layer);
        assert_int_equal(of("Q4_K_M", true, name, 2048), DTYPE_Q4_K);
    }
    assert_int_equal(of("Q5_K_M", true, "blk.0.attn_v.weight", 2048), DTYPE_Q6_K);
}

/* As in Gemma's published Q4_K_M file, whose rows are 640 and 2,048 long. */
static void odd_rows_get_small_blocks(void **state) {
    (void)state;
    assert_int_equal(of("Q4_K_M", true, "blk.0.attn_k.weight", 640), DTYPE_Q5_0);
    assert_int_equal(of("Q4_K_M", true, "blk.0.attn_v.weight", 640), DTYPE_Q8_0);
    assert_int_equal(of("Q4_K_M", true, "blk.0.ffn_down.weight", 2048), DTYPE_Q6_K);
    assert_int_equal(of("Q4_K_M", true, "blk.0.attn_output.weight", 1024), DTYPE_Q4_K);
    assert_int_equal(of("Q4_K_M", true, "token_embd.weight", 640), DTYPE_Q8_0);
    assert_int_equal(of("Q4_0", true, "blk.0.attn_k.weight", 40), DTYPE_F16);
}

static bool stays(const char *name, int n_dims) {
    return file_type_stays_f32(name, strlen(name), n_dims);
}

static void norms_and_vectors_stay(void **state) {
    (void)state;
    assert_true(stays("blk.0.attn_norm.weight", 1) && stays("blk.0.attn_q.bias", 1) && stays("rope_freqs.weight", 1));
    assert_true(stays("blk.0.x_norm.weight", 2) && stays("blk.0.ffn_gate_inp.weight", 2) && stays("x.bias", 2));
    assert_false(stays("blk.0.attn_q.weight", 2) || stays("token_embd.weight", 2) || stays("a.weight", 3));
}

static void an_unknown_type_names_the_known_ones(void **state) {
    (void)state;
    struct file_type type;
    struct status_note note = {0};
    assert_int_equal(file_type_find("Q9", &type, &note), STATUS_INVALID);
    for (int i = 0; i < file_type_n(); i++) {
        type = file_type_at(i);
        assert_non_null(strstr(note.text, type.name));
        assert_int_equal(type_of(type.name).gguf_id, type.gguf_id);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_types_are_that_type), cmocka_unit_test(the_output_layer_has_more_bits),
        cmocka_unit_test(a_mixture_has_its_pattern), cmocka_unit_test(odd_rows_get_small_blocks),
        cmocka_unit_test(norms_and_vectors_stay),    cmocka_unit_test(an_unknown_type_names_the_known_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
