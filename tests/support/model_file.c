#include "support/model_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/dequantize.h"
#include "kernels/quantize.h"
#include "support/test.h"
#include "weights/gguf_write.h"

#define D_MODEL 256
#define D_FF 512
#define N_LAYERS 2

/* A stream of words that is a function of (seed, stream). */
struct words {
    uint64_t seed;
    uint32_t stream, at, left, block[4];
};

static uint32_t next_word(struct words *words) {
    if (!words->left) {
        uint32_t counter[4] = {words->at++, words->stream, 0, 0};
        rng_philox(words->seed, counter, words->block);
        words->left = 4;
    }
    return words->block[--words->left];
}

static float next_normal(struct words *words) {
    double sum = 0; /* of twelve uniforms: near enough to normal, and the same everywhere */
    for (int i = 0; i < 12; i++) sum += next_word(words) / 4294967296.0;
    return (float)(sum - 6);
}

static void put_f16(uint8_t *at, double value) {
    uint16_t bits = dtype_f32_to_f16((float)value);
    memcpy(at, &bits, sizeof bits);
}

/* Scales of a block of any other type: what a scale of 1 makes of the block is measured. */
static void set_measured(enum dtype dtype, uint8_t *block, double sigma) {
    float values[256];
    double sum = 0, scale = 1;
    int off, n_scales = dtype_f16_scales(dtype, &off), n = dtype_block_elements(dtype);
    for (int round = 0; round < 2; round++, scale = sigma / sqrt(sum / n), sum = 0) {
        uint16_t bits = dtype_f32_to_f16((float)scale);
        for (int i = 0; i < n_scales; i++) put_f16(block + off + 2 * i, scale);
        if (dtype == DTYPE_MXFP4) block[0] = (uint8_t)(127 + ilogb(scale));
        for (int w = 0; w < 4 && dtype == DTYPE_IQ1_M; w++) /* scattered over the top nibbles of four words */
            block[49 + 2 * w] = (uint8_t)((block[49 + 2 * w] & 15) | (bits >> 4 * w & 15) << 4);
        dequantize_row(dtype, block, values, n);
        for (int i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
        if (sum == 0) return;
    }
}

/* Scales of one random block, so that its weights have mean near 0 and deviation near sigma. */
static void set_scales(enum dtype dtype, uint8_t *block, double sigma, double jitter) {
    double d = sigma * (0.8 + 0.4 * jitter);
    switch (dtype) {
    case DTYPE_Q5_0: put_f16(block, d / 9.2); break; /* codes -16..15 */
    case DTYPE_Q5_1:
        put_f16(block, d / 9.2); /* codes 0..31 */
        put_f16(block + 2, -d / 9.2 * 15.5);
        break;
    case DTYPE_Q4_K:
        put_f16(block, d / 200); /* scale 0..63 times code 0..15 */
        put_f16(block + 2, d / 200 * 7.5);
        break;
    case DTYPE_Q5_K:
        put_f16(block, d / 410); /* code 0..31 */
        put_f16(block + 2, d / 410 * 15.5);
        break;
    case DTYPE_Q6_K:
        for (int i = 192; i < 208; i++) block[i] = (uint8_t)(block[i] % 32 - 16); /* i8 scales; codes -32..31 */
        put_f16(block + 208, d / 170);
        break;
    default: set_measured(dtype, block, d);
    }
}

static void fill_row(enum dtype dtype, struct words *words, int k, float *values, uint8_t *row) {
    double sigma = 1 / sqrt((double)k);
    if (quantize_is_known(dtype)) {
        for (int i = 0; i < k; i++) values[i] = (float)(next_normal(words) * sigma);
        quantize_row(dtype, values, row, k);
        return;
    }
    int n_bytes = dtype_block_bytes(dtype);
    for (int b = 0; b < k / dtype_block_elements(dtype); b++, row += n_bytes) {
        for (int i = 0; i < n_bytes; i++) row[i] = (uint8_t)(next_word(words) >> 11);
        set_scales(dtype, row, sigma, next_word(words) / 4294967296.0);
    }
}

#define MAX_K 1024

struct tensor_plan {
    char name[64];
    int n_out, k; /* n_out 0: a vector of k, all F32 near 1 */
    int n_rows;   /* written behind each other, n_repeats times each */
    int n_repeats;
};

static int add_tensor(struct tensor_plan *plan, int n, const char *name, int layer, int n_out, int k) {
    plan[n] = (struct tensor_plan){.n_out = n_out, .k = k, .n_rows = 1, .n_repeats = 1};
    if (layer < 0)
        snprintf(plan[n].name, sizeof plan[n].name, "%s.weight", name);
    else
        snprintf(plan[n].name, sizeof plan[n].name, "blk.%d.%s.weight", layer, name);
    return n + 1;
}

static int add_kv(struct tensor_plan *plan, int n, const char *name, int layer, const struct model_file_heads *heads) {
    int next = add_tensor(plan, n, name, layer, heads->n_kv_heads * heads->repeats * heads->head_dim, D_MODEL);
    plan[n].n_rows = heads->head_dim;
    plan[n].n_repeats = heads->repeats;
    return next;
}

static int make_plan(struct tensor_plan *plan, const struct model_file_heads *heads) {
    int n = add_tensor(plan, 0, "token_embd", -1, MODEL_FILE_N_VOCAB, D_MODEL);
    n = add_tensor(plan, n, "output_norm", -1, 0, D_MODEL);
    n = add_tensor(plan, n, "output", -1, MODEL_FILE_N_VOCAB, D_MODEL);
    for (int i = 0; i < N_LAYERS; i++) {
        n = add_tensor(plan, n, "attn_norm", i, 0, D_MODEL);
        n = add_tensor(plan, n, "attn_q", i, heads->n_heads * heads->head_dim, D_MODEL);
        n = add_kv(plan, n, "attn_k", i, heads);
        n = add_kv(plan, n, "attn_v", i, heads);
        n = add_tensor(plan, n, "attn_output", i, D_MODEL, heads->n_heads * heads->head_dim);
        n = add_tensor(plan, n, "ffn_norm", i, 0, D_MODEL);
        n = add_tensor(plan, n, "ffn_gate", i, D_FF, D_MODEL);
        n = add_tensor(plan, n, "ffn_up", i, D_FF, D_MODEL);
        n = add_tensor(plan, n, "ffn_down", i, D_MODEL, D_FF);
    }
    return n;
}

static enum status write_head(struct gguf_write *w, enum dtype dtype, const struct model_file_heads *heads,
                              const struct tensor_plan *plan, int n_tensors, struct status_note *note) {
    const struct {
        const char *key;
        int value;
    } ints[] = {{"llama.block_count", N_LAYERS},
                {"llama.embedding_length", D_MODEL},
                {"llama.feed_forward_length", D_FF},
                {"llama.context_length", 4096},
                {"llama.attention.head_count", heads->n_heads},
                {"llama.attention.head_count_kv", heads->n_kv_heads * heads->repeats},
                {"llama.attention.key_length", heads->head_dim},
                {"llama.attention.value_length", heads->head_dim},
                {"llama.vocab_size", MODEL_FILE_N_VOCAB},
                {"llama.rope.dimension_count", heads->head_dim}};
    enum status status = gguf_write_key_text(w, "general.architecture", "llama", 5, note);
    for (size_t i = 0; !status && i < sizeof ints / sizeof ints[0]; i++)
        status = gguf_write_key_int(w, ints[i].key, GGUF_U32, ints[i].value, note);
    if (!status) status = gguf_write_key_real(w, "llama.attention.layer_norm_rms_epsilon", GGUF_F32, 1e-5, note);
    for (int i = 0; !status && i < n_tensors; i++) {
        uint64_t dims[] = {(uint64_t)plan[i].k, (uint64_t)plan[i].n_out};
        status = plan[i].n_out ? gguf_write_tensor(w, plan[i].name, dtype, 2, dims, note)
                               : gguf_write_tensor(w, plan[i].name, DTYPE_F32, 1, dims, note);
    }
    return status ? status : gguf_write_begin_data(w, note);
}

static enum status write_tensor(struct gguf_write *w, enum dtype dtype, const struct tensor_plan *plan,
                                struct words *words, struct status_note *note) {
    float values[MAX_K];
    size_t row_bytes = (size_t)(plan->k / dtype_block_elements(dtype)) * (size_t)dtype_block_bytes(dtype);
    if (!plan->n_out) {
        for (int i = 0; i < plan->k; i++) values[i] = 1 + 0.1f * next_normal(words);
        return gguf_write_data(w, values, (size_t)plan->k * sizeof(float), note);
    }
    enum status status = STATUS_OK;
    uint8_t *rows = mem_alloc((size_t)plan->n_rows * row_bytes);
    assert_non_null(rows);
    for (int i = 0; !status && i < plan->n_out; i += plan->n_rows * plan->n_repeats) {
        for (int r = 0; r < plan->n_rows; r++) fill_row(dtype, words, plan->k, values, rows + (size_t)r * row_bytes);
        for (int r = 0; !status && r < plan->n_repeats; r++)
            status = gguf_write_data(w, rows, (size_t)plan->n_rows * row_bytes, note);
    }
    mem_free(rows);
    return status;
}

void model_file_make(enum dtype dtype, uint64_t seed, char out_path[MODEL_FILE_MAX_PATH]) {
    model_file_make_heads(dtype, seed, &(struct model_file_heads){4, 2, 64, 1}, out_path);
}

void model_file_make_heads(enum dtype dtype, uint64_t seed, const struct model_file_heads *heads,
                           char out_path[MODEL_FILE_MAX_PATH]) {
    struct tensor_plan plan[3 + 9 * N_LAYERS];
    struct status_note note = {0};
    struct gguf_write *w = NULL;
    int n_tensors = make_plan(plan, heads);
    snprintf(out_path, MODEL_FILE_MAX_PATH, "/tmp/kvick-model-XXXXXX");
    int fd = mkstemp(out_path);
    if (fd < 0) fail_msg("%s: cannot be made", out_path);
    close(fd);
    enum status status = gguf_write_create(&w, out_path, &note);
    if (!status) status = write_head(w, dtype, heads, plan, n_tensors, &note);
    for (int i = 0; !status && i < n_tensors; i++) {
        struct words words = {.seed = seed, .stream = (uint32_t)i};
        status = write_tensor(w, dtype, &plan[i], &words, &note);
    }
    if (!status) status = gguf_write_finish(w, &note);
    gguf_write_destroy(&w);
    if (status) fail_msg("%s: %s", out_path, note.text);
}

void model_file_random_ids(uint64_t seed, int n_vocab, uint32_t *out_ids, int n) {
    struct words words = {.seed = seed, .stream = UINT32_MAX};
    for (int i = 0; i < n; i++) out_ids[i] = next_word(&words) % (uint32_t)n_vocab;
}
