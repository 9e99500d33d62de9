#include "model/forward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"
#include "weights/gguf_write.h"

static char folder[64], path[96];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kvick-model-config-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* One key of a file to be made. text: a text; else a number, whole unless is_real. */
struct key {
    const char *name, *text;
    double value;
    bool is_real, is_absent;
};

#define INT_KEY(name, value)                                                                                           \
    { name, NULL, value, false, false }
#define REAL_KEY(name, value)                                                                                          \
    { name, NULL, value, true, false }
#define TEXT_KEY(name, text)                                                                                           \
    { name, text, 0, false, false }
#define NO_KEY(name)                                                                                                   \
    { name, NULL, 0, false, true }

static const struct key usual_keys[] = {
    TEXT_KEY("general.architecture", "llama"),   INT_KEY("llama.block_count", 4),
    INT_KEY("llama.embedding_length", 256),      INT_KEY("llama.feed_forward_length", 512),
    INT_KEY("llama.context_length", 2048),       INT_KEY("llama.attention.head_count", 8),
    INT_KEY("llama.attention.head_count_kv", 2), REAL_KEY("llama.attention.layer_norm_rms_epsilon", 1e-5),
};

#define N_USUAL (sizeof usual_keys / sizeof usual_keys[0])

struct factors {
    int n;
    const float *values;
};

static enum status write_key(struct gguf_write *writer, const struct key *key) {
    if (key->is_absent) return STATUS_OK;
    if (key->text) return gguf_write_key_text(writer, key->name, key->text, strlen(key->text), NULL);
    if (key->is_real) return gguf_write_key_real(writer, key->name, GGUF_F64, key->value, NULL);
    return gguf_write_key_int(writer, key->name, GGUF_I64, (int64_t)key->value, NULL);
}

static bool is_among(const char *name, const struct key *keys, size_t n_keys) {
    for (size_t i = 0; i < n_keys; i++)
        if (strcmp(name, keys[i].name) == 0) return true;
    return false;
}

typedef enum status read_fn(struct model_config *config, const struct gguf *gguf, struct status_note *note);
static read_fn *read_keys = model_config_read;

/* Reads a file of the usual keys, with others in place of some or besides. */
static enum status read_config(struct model_config *config, const struct key *own, size_t n_own,
                               const struct factors *factors, struct status_note *note) {
    struct gguf_write *writer;
    struct gguf *gguf;
    assert_int_equal(gguf_write_create(&writer, path, note), STATUS_OK);
    for (size_t i = 0; i < N_USUAL; i++)
        if (!is_among(usual_keys[i].name, own, n_own)) assert_int_equal(write_key(writer, &usual_keys[i]), STATUS_OK);
    for (size_t i = 0; i < n_own; i++) assert_int_equal(write_key(writer, &own[i]), STATUS_OK);
    uint64_t dims[] = {factors ? (uint64_t)factors->n : 1};
    const float one = 1;
    const char *name = factors ? "rope_freqs.weight" : "unused.weight";
    assert_int_equal(gguf_write_tensor(writer, name, DTYPE_F32, 1, dims, note), STATUS_OK);
    assert_int_equal(gguf_write_begin_data(writer, note), STATUS_OK);
    assert_int_equal(gguf_write_data(writer, factors ? factors->values : &one, dims[0] * sizeof(float), note),
                     STATUS_OK);
    if (gguf_write_finish(writer, note)) fail_msg("%s", note->text);
    gguf_write_destroy(&writer);
    if (gguf_open(&gguf, path, note)) fail_msg("%s", note->text);
    enum status status = read_keys(config, gguf, note);
    gguf_close(&gguf);
    return status;
}

static void read_good(struct model_config *config, const struct key *own, size_t n_own, const struct factors *factors) {
    struct status_note note = {0};
    if (read_config(config, own, n_own, factors, &note)) fail_msg("%s", note.text);
}

static void expect_refusal(const struct key *own, size_t n_own, const struct factors *factors, const char *word,
                           const char *value) {
    static struct model_config config;
    struct status_note note = {0};
    enum status status = read_config(&config, own, n_own, factors, &note);
    if (status == STATUS_OK) fail_msg("%s %s: not refused", word, value);
    /* a key that is absent or of another kind is the reader's INVALID, everything else FORMAT */
    assert_true(status == STATUS_FORMAT || status == STATUS_INVALID);
    if (!strstr(note.text, word)) fail_msg("no '%s' in: %s", word, note.text);
    if (!strstr(note.text, value)) fail_msg("no '%s' in: %s", value, note.text);
}

/* ---- common keys ---- */

static void the_usual_keys_make_a_config(void **state) {
    (void)state;
    static struct model_config config;
    read_good(&config, NULL, 0, NULL);
    assert_string_equal(config.arch, "llama");
    assert_int_equal(config.n_layers, 4);
    assert_int_equal(config.d_model, 256);
    assert_int_equal(config.d_ff, 512);
    assert_int_equal(config.max_context, 2048);
    assert_int_equal(config.n_heads, 8);
    assert_int_equal(config.n_kv_heads, 2);
    assert_int_equal(config.head_dim, 32);
    assert_int_equal(config.n_vocab, 0);
    assert_true(config.norm_eps == 1e-5f && config.embed_scale == 1);
    assert_true(config.query_scale == (float)(1 / sqrt(32)));
    for (int i = 0; i < 4; i++) assert_true(config.layers[i].window == 0 && config.layers[i].rope_idx == 0);
    assert_int_equal(config.ropes[0].n_pairs, 16);
    assert_true(config.ropes[0].magnitude == 1);
    for (int i = 0; i < 16; i++) assert_true(config.ropes[0].inv_freq[i] == pow(10000, -i / 16.0));
}

static void each_key_that_a_model_must_have_is_missed_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < N_USUAL; i++) {
        if (strcmp(usual_keys[i].name, "llama.attention.head_count_kv") == 0) continue; /* head_count then */
        struct key absent[] = {NO_KEY(usual_keys[i].name)};
        expect_refusal(absent, 1, NULL, usual_keys[i].name, "missing");
    }
}

static void numbers_out_of_range_are_named_with_their_value(void **state) {
    (void)state;
    static const struct {
        struct key key;
        const char *value;
    } cases[] = {
        {INT_KEY("llama.block_count", 0), "0"},
        {INT_KEY("llama.block_count", MODEL_MAX_LAYERS + 1), "257"},
        {INT_KEY("llama.block_count", 4294967300.0), "4294967300"}, /* 4 in 32 bits */
        {INT_KEY("llama.block_count", -1), "-1"},
        {TEXT_KEY("llama.block_count", "4"), "block_count"},
        {REAL_KEY("llama.block_count", 4), "block_count"},
        {INT_KEY("llama.embedding_length", 0), "0"},
        {INT_KEY("llama.embedding_length", 1048577), "1048577"},
        {INT_KEY("llama.feed_forward_length", 0), "0"},
        {INT_KEY("llama.feed_forward_length", 1e12), "1000000000000"},
        {INT_KEY("llama.context_length", 0), "0"},
        {INT_KEY("llama.context_length", (1 << 24) + 1), "16777217"},
        {INT_KEY("llama.attention.head_count", 0), "0"},
        {INT_KEY("llama.attention.head_count", 5000), "5000"},
        {INT_KEY("llama.attention.key_length", 8), "8"},
        {INT_KEY("llama.attention.key_length", 512), "512"},
        {REAL_KEY("llama.attention.layer_norm_rms_epsilon", NAN), "finite"},
        {REAL_KEY("llama.attention.layer_norm_rms_epsilon", INFINITY), "finite"},
        {REAL_KEY("llama.attention.layer_norm_rms_epsilon", -1e-5), "-1e-05"},
        {REAL_KEY("llama.attention.layer_norm_rms_epsilon", 1), "1"},
        {TEXT_KEY("llama.attention.layer_norm_rms_epsilon", "x"), "epsilon"},
        {REAL_KEY("llama.rope.freq_base", 0), "0"},
        {REAL_KEY("llama.rope.freq_base", -10000), "-10000"},
        {REAL_KEY("llama.rope.freq_base", 1), "1"},
        {REAL_KEY("llama.rope.freq_base", NAN), "finite"},
        {REAL_KEY("llama.rope.freq_base", 1e13), "1e+13"},
        {INT_KEY("llama.rope.dimension_count", 0), "0"},
        {INT_KEY("llama.rope.dimension_count", 33), "33"},
        {INT_KEY("llama.rope.dimension_count", 31), "31"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(&cases[i].key, 1, NULL, cases[i].key.name, cases[i].value);
}

static void an_architecture_without_a_usable_name_is_refused(void **state) {
    (void)state;
    struct key empty[] = {TEXT_KEY("general.architecture", "")};
    expect_refusal(empty, 1, NULL, "general.architecture", "0 bytes");
    struct key number[] = {INT_KEY("general.architecture", 3)};
    expect_refusal(number, 1, NULL, "general.architecture", "");
    struct key longer[] = {TEXT_KEY("general.architecture", "abcdefghijklmnopqrstuvwxyzabcdefgh")};
    expect_refusal(longer, 1, NULL, "general.architecture", "34 bytes");
}

/* ---- windows ---- */

static void a_window_is_every_layer_s_or_refused(void **state) {
    (void)state;
    static struct model_config config;
    const struct key window[] = {INT_KEY("llama.attention.sliding_window", 48)};
    read_keys = forward_read_config; /* with what the architecture makes of it */
    read_good(&config, window, 1, NULL);
    for (int i = 0; i < 4; i++) assert_int_equal(config.layers[i].window, 48);
    struct key qwen2[] = {
        TEXT_KEY("general.architecture", "qwen2"),       INT_KEY("qwen2.block_count", 4),
        INT_KEY("qwen2.embedding_length", 256),          INT_KEY("qwen2.feed_forward_length", 512),
        INT_KEY("qwen2.context_length", 2048),           INT_KEY("qwen2.attention.head_count", 8),
        INT_KEY("qwen2.attention.head_count_kv", 2),     REAL_KEY("qwen2.attention.layer_norm_rms_epsilon", 1e-5),
        INT_KEY("qwen2.attention.sliding_window", 2048),
    };
    const size_t n = sizeof qwen2 / sizeof qwen2[0];
    read_good(&config, qwen2, n, NULL); /* as long as the context: none */
    assert_int_equal(config.layers[0].window, 0);
    qwen2[n - 1].value = 2047;
    expect_refusal(qwen2, n, NULL, "qwen2.attention.sliding_window", "2047");
    read_keys = model_config_read;
}

/* ---- heads ---- */

static void head_counts_that_fit_are_taken(void **state) {
    (void)state;
    static const struct {
        int n_heads, n_kv_heads, d_model, head_dim;
    } cases[] = {{8, 8, 256, 32},   {8, 4, 256, 32}, {8, 2, 256, 32}, {8, 1, 256, 32},
                 {32, 4, 1024, 32}, {6, 3, 192, 32}, {9, 3, 576, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static struct model_config config;
        struct key keys[] = {INT_KEY("llama.attention.head_count", cases[i].n_heads),
                             INT_KEY("llama.attention.head_count_kv", cases[i].n_kv_heads),
                             INT_KEY("llama.embedding_length", cases[i].d_model)};
        read_good(&config, keys, 3, NULL);
        assert_int_equal(config.n_heads, cases[i].n_heads);
        assert_int_equal(config.n_kv_heads, cases[i].n_kv_heads);
        assert_int_equal(config.head_dim, cases[i].head_dim);
    }
    static struct model_config config;
    struct key absent[] = {NO_KEY("llama.attention.head_count_kv")};
    read_good(&config, absent, 1, NULL);
    assert_int_equal(config.n_kv_heads, 8);
    /* a head size of its own, as in qwen3: not width / heads */
    struct key own_size[] = {INT_KEY("llama.attention.key_length", 128), INT_KEY("llama.attention.value_length", 128),
                             INT_KEY("llama.embedding_length", 250)};
    read_good(&config, own_size, 3, NULL);
    assert_int_equal(config.head_dim, 128);
    assert_int_equal(config.ropes[0].n_pairs, 64);
    assert_true(config.query_scale == (float)(1 / sqrt(128)));
}

static void head_counts_that_do_not_fit_are_refused(void **state) {
    (void)state;
    struct key three_of_four[] = {INT_KEY("llama.attention.head_count", 4),
                                  INT_KEY("llama.attention.head_count_kv", 3)};
    expect_refusal(three_of_four, 2, NULL, "llama.attention.head_count_kv", "3");
    struct key none[] = {INT_KEY("llama.attention.head_count_kv", 0)};
    expect_refusal(none, 1, NULL, "llama.attention.head_count_kv", "0");
    struct key more[] = {INT_KEY("llama.attention.head_count_kv", 16)};
    expect_refusal(more, 1, NULL, "llama.attention.head_count_kv", "16");
    struct key uneven[] = {INT_KEY("llama.embedding_length", 260)};
    expect_refusal(uneven, 1, NULL, "llama.embedding_length", "260");
    struct key thin[] = {INT_KEY("llama.embedding_length", 64)};
    expect_refusal(thin, 1, NULL, "head size", "8");
    struct key odd[] = {INT_KEY("llama.embedding_length", 8 * 40)};
    expect_refusal(odd, 1, NULL, "head size", "40");
    struct key wide[] = {INT_KEY("llama.embedding_length", 8 * 512)};
    expect_refusal(wide, 1, NULL, "head size", "512");
    struct key unequal[] = {INT_KEY("llama.attention.value_length", 64)};
    expect_refusal(unequal, 1, NULL, "llama.attention.value_length", "64");
}

/* ---- rotation ---- */

static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void part_of_a_head_may_turn(void **state) {
    (void)state;
    static struct model_config config;
    struct key keys[] = {INT_KEY("llama.rope.dimension_count", 16), REAL_KEY("llama.rope.freq_base", 500000)};
    read_good(&config, keys, 2, NULL);
    assert_int_equal(config.ropes[0].n_pairs, 8);
    for (int i = 0; i < 8; i++) assert_true(config.ropes[0].inv_freq[i] == pow(500000, -i / 8.0));
}

static void linear_scaling_slows_all_pairs(void **state) {
    (void)state;
    static struct model_config config;
    struct key keys[] = {TEXT_KEY("llama.rope.scaling.type", "linear"), REAL_KEY("llama.rope.scaling.factor", 4)};
    read_good(&config, keys, 2, NULL);
    for (int i = 0; i < 16; i++) assert_true(is_near(config.ropes[0].inv_freq[i], pow(10000, -i / 16.0) / 4));
    assert_true(config.ropes[0].magnitude == 1);
    struct key none[] = {TEXT_KEY("llama.rope.scaling.type", "none")};
    read_good(&config, none, 1, NULL);
    assert_true(config.ropes[0].inv_freq[3] == pow(10000, -3 / 16.0));
}

/* By the published formula for base 10000, 32 pairs, factor 4, original context 2048 (betas 32 and 1): the ramp goes
 * from pair floor(8.06) = 8 to ceil(20.1) = 21. */
static void yarn_keeps_fast_pairs_and_slows_slow_ones(void **state) {
    (void)state;
    static struct model_config config;
    struct key keys[] = {INT_KEY("llama.embedding_length", 8 * 64), TEXT_KEY("llama.rope.scaling.type", "yarn"),
                         REAL_KEY("llama.rope.scaling.factor", 4),
                         INT_KEY("llama.rope.scaling.original_context_length", 2048)};
    read_good(&config, keys, 4, NULL);
    assert_int_equal(config.ropes[0].n_pairs, 32);
    for (int i = 0; i < 32; i++) {
        double plain = pow(10000, -i / 32.0), ramp = i <= 8 ? 0 : i >= 21 ? 1 : (i - 8) / 13.0;
        double expected = plain * (1 - ramp) + plain / 4 * ramp;
        if (!is_near(config.ropes[0].inv_freq[i], expected))
            fail_msg("pair %d: %.9g, not %.9g", i, config.ropes[0].inv_freq[i], expected);
    }
    assert_true(is_near(config.ropes[0].magnitude, 0.1 * log(4) + 1));
}

static void scaling_that_is_not_understood_is_refused(void **state) {
    (void)state;
    struct key unknown[] = {TEXT_KEY("llama.rope.scaling.type", "longrope"), REAL_KEY("llama.rope.scaling.factor", 4)};
    expect_refusal(unknown, 2, NULL, "llama.rope.scaling.type", "longrope");
    struct key prefix[] = {TEXT_KEY("llama.rope.scaling.type", "yar"), REAL_KEY("llama.rope.scaling.factor", 4)};
    expect_refusal(prefix, 2, NULL, "llama.rope.scaling.type", "'yar'");
    struct key number[] = {INT_KEY("llama.rope.scaling.type", 1)};
    expect_refusal(number, 1, NULL, "llama.rope.scaling.type", "");
    struct key no_factor[] = {TEXT_KEY("llama.rope.scaling.type", "linear")};
    expect_refusal(no_factor, 1, NULL, "llama.rope.scaling.factor", "missing");
    static const double wrong[] = {0, -4, 0.5, 1e7};
    static const char *const texts[] = {"0", "-4", "0.5", "1e+07"};
    for (int i = 0; i < 4; i++) {
        struct key factor[] = {TEXT_KEY("llama.rope.scaling.type", "yarn"),
                               REAL_KEY("llama.rope.scaling.factor", wrong[i])};
        expect_refusal(factor, 2, NULL, "llama.rope.scaling.factor", texts[i]);
    }
    struct key no_context[] = {TEXT_KEY("llama.rope.scaling.type", "yarn"), REAL_KEY("llama.rope.scaling.factor", 4)};
    expect_refusal(no_context, 2, NULL, "llama.rope.scaling.original_context_length", "missing");
}

/* The divisors of Llama-3.1-8B (head 128, base 500000, factor 8) and Llama-3.2-1B (head 64, factor 32), as a
 * converter writes them into rope_freqs.weight. */
static void llama3_divisors(float *out, int n_pairs, double factor) {
    for (int i = 0; i < n_pairs; i++) {
        double frequency = pow(500000, -(double)i / n_pairs), wave = 2 * 3.14159265358979323846 / frequency;
        double smooth = (8192 / wave - 1) / (4 - 1);
        if (wave < 8192 / 4.0)
            out[i] = 1;
        else if (wave > 8192)
            out[i] = (float)factor;
        else
            out[i] = (float)(1 / ((1 - smooth) / factor + smooth));
    }
}

static void llama3_divisors_are_applied(void **state) {
    (void)state;
    static const struct {
        int head_dim;
        double factor;
        int first;
        double known[6]; /* published, of pairs first.. */
    } cases[] = {{128, 8, 29, {1.207484, 1.553415, 2.026313, 2.694530, 3.684253, 5.257327}},
                 {64, 32, 14, {1, 1.651329, 3.292262, 9.666729, 32, 32}}};
    for (int c = 0; c < 2; c++) {
        static struct model_config config;
        float divisors[64];
        int n_pairs = cases[c].head_dim / 2;
        llama3_divisors(divisors, n_pairs, cases[c].factor);
        struct factors factors = {n_pairs, divisors};
        struct key keys[] = {INT_KEY("llama.embedding_length", 8 * cases[c].head_dim),
                             REAL_KEY("llama.rope.freq_base", 500000)};
        read_good(&config, keys, 2, &factors);
        for (int i = 0; i < n_pairs; i++) {
            double divisor = pow(500000, -(double)i / n_pairs) / config.ropes[0].inv_freq[i];
            double expected = i < cases[c].first        ? 1
                              : i >= cases[c].first + 6 ? cases[c].factor
                                                        : cases[c].known[i - cases[c].first];
            if (fabs(divisor - expected) > 2e-6 * expected) fail_msg("pair %d: %.7f, not %.7f", i, divisor, expected);
        }
        assert_true(config.ropes[0].magnitude == 1);
    }
}

static void divisors_that_make_no_sense_are_refused(void **state) {
    (void)state;
    float values[17];
    struct factors factors = {17, values};
    for (int i = 0; i < 17; i++) values[i] = 1;
    expect_refusal(NULL, 0, &factors, "rope_freqs.weight", "16");
    factors.n = 15;
    expect_refusal(NULL, 0, &factors, "rope_freqs.weight", "16");
    factors.n = 16;
    static const float wrong[] = {0, -2, NAN, INFINITY, 1e10f};
    static const char *const texts[] = {"0", "-2", "nan", "inf", "1e+10"};
    for (int i = 0; i < 5; i++) {
        values[15] = wrong[i];
        expect_refusal(NULL, 0, &factors, "divisor 15", texts[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_keys_make_a_config),
        cmocka_unit_test(each_key_that_a_model_must_have_is_missed_by_name),
        cmocka_unit_test(numbers_out_of_range_are_named_with_their_value),
        cmocka_unit_test(an_architecture_without_a_usable_name_is_refused),
        cmocka_unit_test(a_window_is_every_layer_s_or_refused),
        cmocka_unit_test(head_counts_that_fit_are_taken),
        cmocka_unit_test(head_counts_that_do_not_fit_are_refused),
        cmocka_unit_test(part_of_a_head_may_turn),
        cmocka_unit_test(linear_scaling_slows_all_pairs),
        cmocka_unit_test(yarn_keeps_fast_pairs_and_slows_slow_ones),
        cmocka_unit_test(scaling_that_is_not_understood_is_refused),
        cmocka_unit_test(llama3_divisors_are_applied),
        cmocka_unit_test(divisors_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
