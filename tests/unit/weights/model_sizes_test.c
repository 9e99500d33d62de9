#include "weights/model_sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "weights/hf_config.h"

static struct model_sizes sizes; /* large for a stack */

static void read_golden(const char *name) {
    struct status_note note = {0};
    struct gguf *gguf;
    assert_int_equal(gguf_open(&gguf, test_golden_file(name), &note), STATUS_OK);
    if (model_sizes_from_gguf(&sizes, gguf, &note)) fail_msg("%s: %s", name, note.text);
    gguf_close(&gguf);
}

static int n_windowed(void) {
    int n = 0;
    for (int i = 0; i < sizes.n_layers; i++) n += sizes.layers[i].window != 0;
    return n;
}

static void grouped_heads_are_read(void **state) {
    (void)state;
    read_golden("gguf/llama.gguf");
    assert_int_equal(sizes.n_heads, 4);
    assert_int_equal(sizes.layers[0].kind, LAYER_KEYS);
    assert_int_equal(sizes.layers[0].n_kv_heads, 2);
    assert_int_equal(model_sizes_token_elements(&sizes.layers[0]), 2 * 2 * 32);
    read_golden("gguf/llama-tied-mqa.gguf");
    assert_int_equal(sizes.layers[0].n_kv_heads, 1);
}

static void windows_follow_the_architecture(void **state) {
    (void)state;
    read_golden("gguf/gemma3.gguf"); /* 7 layers, each sixth sees everything */
    assert_int_equal(n_windowed(), 6);
    assert_int_equal(sizes.layers[0].window, 48);
    assert_int_equal(sizes.layers[5].window, 0);
    read_golden("gguf/gpt-oss.gguf"); /* each second */
    assert_int_equal(n_windowed(), 2);
    assert_int_equal(sizes.doubt[0], 0);
}

static void convolution_layers_have_no_keys(void **state) {
    (void)state;
    read_golden("gguf/lfm2.gguf"); /* head_count_kv 0, 2, 0, 2; l_cache 3; width 128 */
    assert_int_equal(sizes.layers[0].kind, LAYER_STATE);
    assert_int_equal(sizes.layers[0].state_elements, 2 * 128);
    assert_int_equal(model_sizes_token_elements(&sizes.layers[0]), 0);
    assert_int_equal(sizes.layers[1].kind, LAYER_KEYS);
    assert_int_equal(sizes.layers[1].n_kv_heads, 2);
}

static void of_experts_only_those_used_are_work(void **state) {
    (void)state;
    read_golden("gguf/mixtral.gguf"); /* 4 layers, width 128, 2 of 4 experts of 256, heads 4 and 2 of 32 */
    double attention = 128 * (128 + 64 + 64 + 128), router = 128 * 4, experts = 2.0 * 3 * 128 * 256;
    assert_true(sizes.row_macs == 4 * (attention + router + experts));
    assert_true(sizes.step_bytes < sizes.weight_bytes);
}

static void a_shape_and_its_numbers_agree(void **state) {
    struct model_shape shape;
    struct status_note note = {0};
    (void)state;
    assert_int_equal(model_shape_find("llama-3.2-1b", &shape, &note), STATUS_OK);
    model_sizes_from_shape(&sizes, &shape);
    double macs = sizes.row_macs;
    assert_true(macs == 16.0 * (2048 * (2.0 * 2048 + 2 * 512) + 3.0 * 2048 * 8192));
    assert_int_equal(
        model_sizes_from_text(&sizes, "layers=16,heads=32,kv_heads=8,head_dim=64,d_model=2048,d_ff=8192,vocab=128256",
                              &note),
        STATUS_OK);
    assert_true(sizes.row_macs == macs);
}

static void text_says_windows_and_latent_rows(void **state) {
    struct status_note note = {0};
    (void)state;
    assert_int_equal(model_sizes_from_text(&sizes, "layers=6,kv_heads=1,head_dim=64,window=512,period=3", &note), 0);
    assert_int_equal(n_windowed(), 4);
    assert_int_equal(sizes.layers[2].window, 0);
    assert_int_equal(model_sizes_from_text(&sizes, "layers=2,latent=576", &note), STATUS_OK);
    assert_int_equal(sizes.layers[1].kind, LAYER_LATENT);
    assert_int_equal(model_sizes_token_elements(&sizes.layers[1]), 576);
}

static void half_a_shape_is_refused(void **state) {
    static const struct {
        const char *text, *word;
    } cases[] = {{"kv_heads=8,head_dim=128", "layers"},
                 {"layers=2", "kv_heads"},
                 {"layers=2,kv_heads=2", "head_dim"},
                 {"layers=2,kv_heads=2,head_dim=64,latent=8", "latent"},
                 {"layers=2,kv_heads=2,head_dim=64,period=2", "window"},
                 {"layers=513,kv_heads=2,head_dim=64", "513"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct status_note note = {0};
        assert_int_equal(model_sizes_from_text(&sizes, cases[i].text, &note), STATUS_INVALID);
        if (!strstr(note.text, cases[i].word)) fail_msg("%s: %s", cases[i].text, note.text);
    }
}

/* ---- config.json ---- */

static enum status read_json(const char *text, struct status_note *note) {
    char path[] = "/tmp/kvick-config-XXXXXX.json";
    int fd = mkstemps(path, 5);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    *note = (struct status_note){0};
    assert_true(hf_config_is_path(path));
    enum status status = hf_config_read(&sizes, path, note);
    remove(path);
    return status;
}

#define BASE "\"num_hidden_layers\":4,\"hidden_size\":64,\"num_attention_heads\":4,\"vocab_size\":100"

static void a_config_has_grouped_heads_and_windows(void **state) {
    struct status_note note;
    (void)state;
    assert_int_equal(read_json("{" BASE ",\"num_key_value_heads\":2,\"head_dim\":32,\"sliding_window\":16,"
                               "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
                               "\"full_attention\"],\"intermediate_size\":128}",
                               &note),
                     STATUS_OK);
    assert_int_equal(sizes.layers[0].window, 16);
    assert_int_equal(sizes.layers[1].window, 0);
    assert_int_equal(model_sizes_token_elements(&sizes.layers[0]), 2 * 2 * 32);
    assert_true(sizes.row_macs == 4 * (64 * (2.0 * 128 + 2 * 64) + 3.0 * 64 * 128));
    assert_int_equal(
        read_json("{\"text_config\":{" BASE ",\"sliding_window\":16,\"use_sliding_window\":false}}", &note), STATUS_OK);
    assert_int_equal(n_windowed(), 0);
}

/* DeepSeek-V2's numbers: 512 + 64 elements a token and layer, whatever the heads. */
static void a_latent_row_is_shared_by_all_heads(void **state) {
    struct status_note note;
    (void)state;
    assert_int_equal(read_json("{" BASE ",\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,\"qk_nope_head_dim\":128,"
                               "\"v_head_dim\":128}",
                               &note),
                     STATUS_OK);
    assert_int_equal(sizes.layers[3].kind, LAYER_LATENT);
    assert_int_equal(model_sizes_token_elements(&sizes.layers[3]), 576);
}

static void states_and_shared_keys_are_told_apart(void **state) {
    struct status_note note;
    (void)state;
    assert_int_equal(read_json("{" BASE ",\"layer_types\":[\"linear_attention\",\"linear_attention\","
                               "\"linear_attention\",\"full_attention\"],\"linear_conv_kernel_dim\":4,"
                               "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":8,"
                               "\"linear_value_head_dim\":8}",
                               &note),
                     STATUS_OK);
    assert_int_equal(sizes.layers[0].kind, LAYER_STATE);
    assert_int_equal(sizes.layers[0].state_elements, 3 * (2 * 2 * 8 + 4 * 8) + 4 * 8 * 8);
    assert_int_equal(sizes.layers[3].kind, LAYER_KEYS);
    assert_int_equal(read_json("{" BASE ",\"num_kv_shared_layers\":2}", &note), STATUS_OK);
    assert_int_equal(sizes.layers[1].kind, LAYER_KEYS);
    assert_int_equal(sizes.layers[2].kind, LAYER_SHARED);
}

static void a_bad_config_names_its_field(void **state) {
    static const struct {
        const char *text, *word;
    } cases[] = {{"{\"hidden_size\":64,\"num_attention_heads\":4}", "num_hidden_layers"},
                 {"{" BASE ",\"num_key_value_heads\":\"two\"}", "num_key_value_heads"},
                 {"{" BASE ",\"num_key_value_heads\":-1}", "-1"},
                 {"{" BASE ",\"layer_types\":[\"full_attention\"]}", "layer_types"},
                 {"{" BASE ",\"layer_types\":[\"a\",\"b\",\"c\",\"d\"]}", "'a'"},
                 {"{" BASE ",\"layer_types\":[\"sliding_attention\",\"b\",\"c\",\"d\"]}", "sliding_window"},
                 {"{\"num_hidden_layers\":100000}", "100000"},
                 {"[1]", "object"},
                 {"{", "line 1"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct status_note note;
        assert_int_equal(read_json(cases[i].text, &note), STATUS_FORMAT);
        if (!strstr(note.text, cases[i].word)) fail_msg("%s: %s", cases[i].text, note.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouped_heads_are_read),
        cmocka_unit_test(windows_follow_the_architecture),
        cmocka_unit_test(convolution_layers_have_no_keys),
        cmocka_unit_test(of_experts_only_those_used_are_work),
        cmocka_unit_test(a_shape_and_its_numbers_agree),
        cmocka_unit_test(text_says_windows_and_latent_rows),
        cmocka_unit_test(half_a_shape_is_refused),
        cmocka_unit_test(a_config_has_grouped_heads_and_windows),
        cmocka_unit_test(a_latent_row_is_shared_by_all_heads),
        cmocka_unit_test(states_and_shared_keys_are_told_apart),
        cmocka_unit_test(a_bad_config_names_its_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
