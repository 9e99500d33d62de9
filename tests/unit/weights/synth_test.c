#include "weights/synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "kernels/dequantize.h"
#include "model/model_config.h"
#include "support/test.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf.h"

static char path[64];

static int make_path(void **state) {
    (void)state;
    snprintf(path, sizeof path, "/tmp/kvick-synth-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

/* A small model of an architecture: 2 layers, 800 tokens. */
static struct synth_spec small_spec(const char *shape, const char *type) {
    struct synth_spec spec = {.seed = 7};
    struct status_note note = {0};
    assert_int_equal(model_shape_find(shape, &spec.shape, &note), STATUS_OK);
    assert_int_equal(file_type_find(type, &spec.type, &note), STATUS_OK);
    spec.shape.n_layers = 2;
    spec.shape.n_vocab = 800;
    return spec;
}

static void write_to(const struct synth_spec *spec, const char *where) {
    struct status_note note = {0};
    struct progress progress;
    progress_start(&progress, "test", synth_bytes(spec));
    if (synth_write(spec, where, &progress, &note)) fail_msg("%s", note.text);
    progress_end(&progress);
}

static struct gguf *open_file(void) {
    struct gguf *gguf;
    struct status_note note = {0};
    if (gguf_open(&gguf, path, &note)) fail_msg("%s", note.text);
    return gguf;
}

/* Mean 0 and deviation 1 / sqrt(k), near enough, for every type that can be asked for. */
static void weights_have_the_promised_size(void **state) {
    (void)state;
    for (int t = 0; t < file_type_n(); t++) {
        struct synth_spec spec = small_spec("llama-3.2-1b", file_type_at(t).name);
        spec.shape.d_model = 256;
        spec.shape.d_ff = 512;
        spec.shape.n_heads = 4;
        spec.shape.n_kv_heads = 2;
        write_to(&spec, path);
        struct gguf *gguf = open_file();
        for (size_t i = 0; i < gguf_n_tensors(gguf); i++) {
            const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
            if (tensor->n_dims != 2) continue;
            size_t n = (size_t)(tensor->dims[0] * tensor->dims[1]);
            float *values = mem_alloc_array(n, sizeof *values);
            dequantize_row(tensor->dtype, tensor->bytes, values, (int64_t)n);
            double sum = 0, squares = 0, sigma = 1 / sqrt((double)tensor->dims[0]);
            for (size_t j = 0; j < n; j++) {
                sum += (double)values[j];
                squares += (double)values[j] * (double)values[j];
            }
            double mean = sum / (double)n, deviation = sqrt(squares / (double)n);
            if (fabs(mean) > 0.02 * sigma || deviation < 0.95 * sigma || deviation > 1.05 * sigma)
                fail_msg("%s, %.*s: mean %g, deviation %g, expected %g", dtype_name(tensor->dtype),
                         (int)tensor->name.n_bytes, tensor->name.ptr, mean, deviation, sigma);
            mem_free(values);
        }
        gguf_close(&gguf);
    }
}

static void files_have_the_promised_keys(void **state) {
    (void)state;
    static const char *const shapes[] = {"smollm2-135m", "tinyllama-1.1b", "llama-3.2-1b",
                                         "qwen2.5-0.5b", "qwen3-0.6b",     "gemma-3-270m"};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        struct synth_spec spec = small_spec(shapes[s], "Q4_0");
        write_to(&spec, path);
        struct gguf *gguf = open_file();
        struct model_config config;
        struct status_note note = {0};
        uint64_t file_type;
        if (model_config_read(&config, gguf, &note)) fail_msg("%s: %s", shapes[s], note.text);
        assert_int_equal(config.n_layers, 2);
        assert_int_equal(config.d_model, spec.shape.d_model);
        assert_int_equal(config.head_dim, spec.shape.head_dim);
        assert_int_equal(config.n_kv_heads, spec.shape.n_kv_heads);
        assert_int_equal(config.max_context, spec.shape.max_context);
        assert_int_equal(gguf_get_u64(gguf, "general.file_type", &file_type, &note), STATUS_OK);
        assert_int_equal(file_type, 2);
        gguf_close(&gguf);
    }
}

/* Any text comes back from the ids of a made-up vocabulary, and words are fewer tokens than letters. */
static void the_vocabulary_is_one(void **state) {
    (void)state;
    static const char *const shapes[] = {"smollm2-135m", "tinyllama-1.1b", "llama-3.2-1b", "qwen3-0.6b"};
    static const char text[] = "the quick brown fox, 42 times: \xc3\xa4\xe2\x82\xac\n";
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        struct synth_spec spec = small_spec(shapes[s], "Q4_0");
        spec.shape.n_layers = 1;
        spec.shape.n_vocab = 5000;
        write_to(&spec, path);
        struct gguf *gguf = open_file();
        struct tokenizer *tokenizer;
        struct status_note note = {0};
        struct id_list ids;
        if (tokenizer_open(&tokenizer, gguf, &note)) fail_msg("%s: %s", shapes[s], note.text);
        id_list_init(&ids, 1000);
        assert_int_equal(tokenizer_n_vocab(tokenizer), 5000);
        assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), 0, &ids, &note), STATUS_OK);
        char back[256];
        size_t n_back = 0;
        for (size_t i = 0; i < (size_t)ids.n_ids; i++) {
            size_t n_bytes;
            const char *bytes = tokenizer_text_of(tokenizer, (int32_t)ids.ids[i], &n_bytes);
            memcpy(back + n_back, bytes, n_bytes);
            n_back += n_bytes;
        }
        assert_int_equal(n_back, strlen(text));
        assert_memory_equal(back, text, n_back);
        assert_in_range(ids.n_ids, 8, strlen(text) * 3 / 4);
        assert_true(tokenizer_is_end_of_generation(tokenizer, tokenizer_find_special(tokenizer, "<|im_end|>")));
        id_list_deinit(&ids);
        tokenizer_close(&tokenizer);
        gguf_close(&gguf);
    }
}

static void equal_seeds_give_equal_files(void **state) {
    (void)state;
    struct synth_spec spec = small_spec("qwen2.5-0.5b", "Q4_K_M");
    struct file_map first, again, other;
    char paths[3][80];
    for (int i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof paths[i], "%s.%d", path, i);
        spec.seed = i == 2 ? 8 : 7;
        write_to(&spec, paths[i]);
    }
    assert_int_equal(file_map_open(&first, paths[0], NULL), STATUS_OK);
    assert_int_equal(file_map_open(&again, paths[1], NULL), STATUS_OK);
    assert_int_equal(file_map_open(&other, paths[2], NULL), STATUS_OK);
    assert_true(first.n_bytes > 10000000 && first.n_bytes == again.n_bytes && first.n_bytes == other.n_bytes);
    assert_memory_equal(first.bytes, again.bytes, first.n_bytes);
    assert_memory_not_equal(first.bytes, other.bytes, first.n_bytes);
    file_map_close(&first);
    file_map_close(&again);
    file_map_close(&other);
    for (int i = 0; i < 3; i++) unlink(paths[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(weights_have_the_promised_size, make_path, remove_path),
        cmocka_unit_test_setup_teardown(files_have_the_promised_keys, make_path, remove_path),
        cmocka_unit_test_setup_teardown(the_vocabulary_is_one, make_path, remove_path),
        cmocka_unit_test_setup_teardown(equal_seeds_give_equal_files, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
