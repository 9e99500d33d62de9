#include "model/model_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"
#include "weights/gguf_write.h"

/* Keys of a good file; a test leaves one out, changes one or adds some. value NAN: a text. */
struct key {
    const char *name;
    double value;
    bool is_real;
    const char *text;
};

static const struct key good_keys[] = {
    {"llama.block_count", 2, false, NULL},
    {"llama.embedding_length", 256, false, NULL},
    {"llama.feed_forward_length", 512, false, NULL},
    {"llama.context_length", 4096, false, NULL},
    {"llama.attention.head_count", 4, false, NULL},
    {"llama.attention.head_count_kv", 2, false, NULL},
    {"llama.attention.layer_norm_rms_epsilon", 1e-5, true, NULL},
};
#define N_GOOD ((int)(sizeof good_keys / sizeof good_keys[0]))

static enum status write_key(struct gguf_write *w, const struct key *key, struct status_note *note) {
    if (key->text) return gguf_write_key_text(w, key->name, key->text, strlen(key->text), note);
    if (key->is_real) return gguf_write_key_real(w, key->name, GGUF_F32, key->value, note);
    return gguf_write_key_int(w, key->name, GGUF_U32, (int64_t)key->value, note);
}

/* The good keys but those whose names extra repeats, then extra (name NULL at its end; a key without value and text is
 * left out of the file); factors: rope_freqs.weight, or NULL. */
static enum status read_config(const struct key *extra, const float *factors, int n_factors, struct model_config *out,
                               struct status_note *note) {
    char path[] = "/tmp/kvick-config-XXXXXX";
    struct gguf_write *w;
    struct gguf *gguf = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    uint64_t dims[1] = {(uint64_t)(factors ? n_factors : 1)};
    float one = 1;
    enum status status = gguf_write_create(&w, path, note);
    if (!status) status = gguf_write_key_text(w, "general.architecture", "llama", 5, note);
    for (int i = 0; !status && i < N_GOOD; i++) {
        const struct key *key = extra;
        while (key && key->name && strcmp(key->name, good_keys[i].name) != 0) key++;
        if (!key || !key->name) status = write_key(w, &good_keys[i], note);
    }
    for (const struct key *key = extra; !status && key && key->name; key++)
        if (key->text || !isnan(key->value)) status = write_key(w, key, note);
    if (!status) status = gguf_write_tensor(w, factors ? "rope_freqs.weight" : "unused", DTYPE_F32, 1, dims, note);
    if (!status) status = gguf_write_begin_data(w, note);
    if (!status) status = gguf_write_data(w, factors ? factors : &one, dims[0] * sizeof(float), note);
    if (!status) status = gguf_write_finish(w, note);
    gguf_write_destroy(&w);
    if (!status) status = gguf_open(&gguf, path, note);
    if (status) fail_msg("the test's own file: %s", note->text);
    status = model_config_read(out, gguf, note);
    gguf_close(&gguf);
    unlink(path);
    return status;
}

static void the_good_file_is_read(void **state) {
    struct model_config config;
    struct status_note note = {0};
    (void)state;
    if (read_config(NULL, NULL, 0, &config, &note)) fail_msg("%s", note.text);
    assert_string_equal(config.arch, "llama");
    assert_int_equal(config.n_layers, 2);
    assert_int_equal(config.head_dim, 64);
    assert_int_equal(config.n_kv_heads, 2);
    assert_true(config.query_scale == 0.125f);
    assert_int_equal(config.ropes[0].n_pairs, 32);
    for (int i = 0; i < 32; i++) assert_true(fabs(config.ropes[0].inv_freq[i] / pow(10000, -i / 32.0) - 1) < 1e-12);
    assert_true(config.ropes[0].magnitude == 1);
}

static void every_needed_key_is_missed(void **state) {
    (void)state;
    for (int i = 0; i < N_GOOD; i++) {
        struct model_config config;
        struct status_note note = {0};
        struct key extra[] = {{good_keys[i].name, NAN, true, NULL}, {0}};
        if (strstr(good_keys[i].name, "head_count_kv")) continue; /* head_count stands in */
        assert_int_equal(read_config(extra, NULL, 0, &config, &note), STATUS_FORMAT);
        if (!strstr(note.text, good_keys[i].name)) fail_msg("%s: %s", good_keys[i].name, note.text);
    }
}

static void senseless_values_are_named(void **state) {
    static const struct key bad[] = {
        {"llama.block_count", 0, false, NULL},
        {"llama.block_count", 257, false, NULL},
        {"llama.embedding_length", 0, false, NULL},
        {"llama.embedding_length", 4000000000.0, false, NULL},
        {"llama.embedding_length", 257, false, NULL},
        {"llama.context_length", 0, false, NULL},
        {"llama.attention.head_count", 0, false, NULL},
        {"llama.attention.head_count_kv", 0, false, NULL},
        {"llama.attention.head_count_kv", 3, false, NULL},
        {"llama.attention.head_count_kv", 8, false, NULL},
        {"llama.attention.key_length", 8, false, NULL},
        {"llama.attention.value_length", 32, false, NULL},
        {"llama.attention.layer_norm_rms_epsilon", -1, true, NULL},
        {"llama.attention.layer_norm_rms_epsilon", INFINITY, true, NULL},
        {"llama.block_count", 0, false, "two"},
        {"llama.rope.freq_base", 0, true, NULL},
        {"llama.rope.freq_base", INFINITY, true, NULL},
        {"llama.rope.dimension_count", 65, false, NULL},
        {"llama.rope.dimension_count", 63, false, NULL},
        {"llama.rope.dimension_count", 128, false, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct model_config config;
        struct status_note note = {0};
        struct key extra[] = {bad[i], {0}};
        if (read_config(extra, NULL, 0, &config, &note) == STATUS_OK)
            fail_msg("%s %g is taken", bad[i].name, bad[i].value);
        if (!strstr(note.text, bad[i].name)) fail_msg("%s %g: %s", bad[i].name, bad[i].value, note.text);
    }
}

static void an_unknown_scaling_is_refused(void **state) {
    struct model_config config;
    struct status_note note = {0};
    struct key extra[] = {
        {"llama.rope.scaling.type", NAN, false, "frob"}, {"llama.rope.scaling.factor", 4, true, NULL}, {0}};
    (void)state;
    assert_int_equal(read_config(extra, NULL, 0, &config, &note), STATUS_FORMAT);
    assert_non_null(strstr(note.text, "llama.rope.scaling.type is 'frob'"));
    extra[0].text = "linear";
    static const double factors[] = {0, 0.5, -2, INFINITY, 1e9};
    for (int i = 0; i < 5; i++) {
        extra[1].value = factors[i];
        assert_int_equal(read_config(extra, NULL, 0, &config, &note), STATUS_FORMAT);
        assert_non_null(strstr(note.text, "llama.rope.scaling.factor"));
    }
    extra[1].value = NAN;
    assert_int_equal(read_config(extra, NULL, 0, &config, &note), STATUS_FORMAT);
    extra[0].text = "none";
    assert_int_equal(read_config(extra, NULL, 0, &config, &note), STATUS_OK);
}

static void linear_scaling_divides_all(void **state) {
    struct model_config config;
    struct status_note note = {0};
    struct key extra[] = {
        {"llama.rope.scaling.type", NAN, false, "linear"}, {"llama.rope.scaling.factor", 4, true, NULL}, {0}};
    (void)state;
    assert_int_equal(read_config(extra, NULL, 0, &config, &note), STATUS_OK);
    for (int i = 0; i < 32; i++) assert_true(fabs(config.ropes[0].inv_freq[i] * 4 / pow(10000, -i / 32.0) - 1) < 1e-12);
}

/* Qwen's figures: base 1e6, factor 4 over 32,768; the ramp runs from pair 23.7 to 39.7 of head 128: floor, ceil. */
static void yarn_keeps_fast_pairs_and_stretches_slow_ones(void **state) {
    struct model_config config;
    struct status_note note = {0};
    struct key extra[] = {{"llama.attention.key_length", 128, false, NULL},
                          {"llama.rope.freq_base", 1e6, true, NULL},
                          {"llama.rope.scaling.type", NAN, false, "yarn"},
                          {"llama.rope.scaling.factor", 4, true, NULL},
                          {"llama.rope.scaling.original_context_length", 32768, false, NULL},
                          {0}};
    (void)state;
    if (read_config(extra, NULL, 0, &config, &note)) fail_msg("%s", note.text);
    for (int i = 0; i < 64; i++) {
        double divisor = pow(1e6, -i / 64.0) / config.ropes[0].inv_freq[i], keep = 1 - (i - 23) / (40.0 - 23);
        double expected = i <= 23 ? 1 : i >= 40 ? 4 : 1 / (keep + (1 - keep) / 4);
        if (!(fabs(divisor / expected - 1) < 1e-9)) fail_msg("pair %d: %g, expected %g", i, divisor, expected);
    }
    assert_true(fabs(config.ropes[0].magnitude - (0.1 * log(4) + 1)) < 1e-12);
}

/* The divisors of a file are used as they are; head 128 of Llama 3.1. */
static void llama3_divisors_come_from_the_tensor(void **state) {
    struct model_config config;
    struct status_note note = {0};
    struct key extra[] = {
        {"llama.attention.key_length", 128, false, NULL}, {"llama.rope.freq_base", 500000, true, NULL}, {0}};
    static const float blend[] = {1.207484f, 1.553415f, 2.026313f, 2.694530f, 3.684253f, 5.257327f};
    float factors[64];
    (void)state;
    for (int i = 0; i < 64; i++) factors[i] = i <= 28 ? 1 : i >= 35 ? 8 : blend[i - 29];
    if (read_config(extra, factors, 64, &config, &note)) fail_msg("%s", note.text);
    for (int i = 0; i < 64; i++)
        assert_true(fabs(pow(500000, -i / 64.0) / config.ropes[0].inv_freq[i] / (double)factors[i] - 1) < 1e-9);
    static const float bad[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        factors[5] = bad[i];
        assert_int_equal(read_config(extra, factors, 64, &config, &note), STATUS_FORMAT);
        assert_non_null(strstr(note.text, "rope_freqs.weight: divisor 5"));
    }
    assert_int_equal(read_config(extra, factors, 32, &config, &note), STATUS_FORMAT);
    assert_non_null(strstr(note.text, "rope_freqs.weight"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_file_is_read),
        cmocka_unit_test(every_needed_key_is_missed),
        cmocka_unit_test(senseless_values_are_named),
        cmocka_unit_test(an_unknown_scaling_is_refused),
        cmocka_unit_test(linear_scaling_divides_all),
        cmocka_unit_test(yarn_keeps_fast_pairs_and_stretches_slow_ones),
        cmocka_unit_test(llama3_divisors_come_from_the_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
