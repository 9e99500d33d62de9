#include "weights/synth.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/quantize.h"
#include "weights/synth_vocab.h"

#define BUFFER_BYTES ((size_t)1 << 20)

/* ---- types ---- */

static enum dtype dtype_of(const struct synth_spec *spec, const struct shape_tensor *tensor) {
    struct file_type_place place = {spec->shape.n_layers, spec->shape.is_tied};
    size_t name_bytes = strlen(tensor->name);
    if (file_type_stays_f32(tensor->name, name_bytes, tensor->n_dims)) return DTYPE_F32;
    return file_type_of(&spec->type, &place, tensor->name, name_bytes, tensor->dims[0]);
}

static uint64_t bytes_of(const struct synth_spec *spec, const struct shape_tensor *tensor) {
    uint64_t n_bytes = 0;
    if (dtype_bytes(dtype_of(spec, tensor), tensor->dims[0] * tensor->dims[1], &n_bytes))
        BUG("tensor %s has no whole blocks", tensor->name);
    return n_bytes;
}

uint64_t synth_bytes(const struct synth_spec *spec) {
    uint64_t n_bytes = 0;
    for (int i = 0; i < model_shape_n_tensors(&spec->shape); i++) {
        struct shape_tensor tensor;
        model_shape_tensor(&spec->shape, i, &tensor);
        n_bytes += bytes_of(spec, &tensor);
    }
    return n_bytes;
}

/* ---- random values ---- */

/* Bytes that are a function of (seed, tensor, place). */
struct stream {
    uint64_t seed, at;
    uint32_t tensor_idx;
};

static void fill_random(struct stream *stream, void *out, size_t n_bytes) {
    uint8_t *bytes = out;
    for (size_t done = 0; done < n_bytes; stream->at++) {
        uint32_t counter[4] = {(uint32_t)stream->at, (uint32_t)(stream->at >> 32), stream->tensor_idx, 0}, words[4];
        rng_philox(stream->seed, counter, words);
        size_t n = n_bytes - done < sizeof words ? n_bytes - done : sizeof words;
        memcpy(bytes + done, words, n);
        done += n;
    }
}

/* Uniform with deviation sigma. */
static void fill_values(struct stream *stream, double sigma, float *out, size_t n) {
    uint16_t words[256];
    for (size_t done = 0; done < n;) {
        size_t n_now = n - done < 256 ? n - done : 256;
        fill_random(stream, words, n_now * sizeof *words);
        for (size_t i = 0; i < n_now; i++) out[done + i] = (float)(((words[i] + 0.5) / 32768 - 1) * sqrt(3.0) * sigma);
        done += n_now;
    }
}

static void put_f16(uint8_t *at, double value) {
    uint16_t bits = dtype_f32_to_f16((float)value);
    memcpy(at, &bits, sizeof bits);
}

/* Q4_K and Q5_K: the minima get the scales' codes, so that each part is centred; codes of 0 to max_code. */
static void centre_parts(uint8_t *block, double d, double max_code) {
    put_f16(block, d);
    put_f16(block + 2, d * max_code / 2);
    uint8_t *codes = block + 4;
    for (int i = 0; i < 4; i++) {
        codes[4 + i] = codes[i];
        codes[8 + i] = (uint8_t)((codes[8 + i] & 15) * 17);
    }
}

/* Random bytes become a block whose values have mean 0 and deviation sigma. Deviations of uniform codes: 4.61 for 16 of
 * them, 9.23 for 32, 18.5 for 64, 73.9 for 256; the root mean square of a 6-bit scale is 36.5, of Q6_K's scales here
 * 9.25. */
static void set_scales(enum dtype dtype, uint8_t *block, double sigma) {
    double sign = block[0] & 1 ? 1 : -1, d = sigma * (0.8 + 0.4 / 255 * block[1]);
    switch (dtype) {
    case DTYPE_Q4_0: put_f16(block, sign * d / 4.61); break; /* signs centre codes of -8..7 */
    case DTYPE_Q5_0: put_f16(block, sign * d / 9.23); break;
    case DTYPE_Q8_0:
        put_f16(block, d / 73.9);
        for (int i = 2; i < 34; i++)
            if (block[i] == 0x80) block[i] = 0x81; /* -128 is no code of Q8_0 */
        break;
    case DTYPE_Q4_1:
        put_f16(block, d / 4.61);
        put_f16(block + 2, -7.5 * d / 4.61);
        break;
    case DTYPE_Q5_1:
        put_f16(block, d / 9.23);
        put_f16(block + 2, -15.5 * d / 9.23);
        break;
    case DTYPE_Q4_K: centre_parts(block, d / (4.61 * 36.5), 15); break;
    case DTYPE_Q5_K: centre_parts(block, d / (9.23 * 36.5), 31); break;
    case DTYPE_Q6_K:
        for (int i = 192; i < 208; i++) block[i] = (uint8_t)(block[i] % 32 - 16);
        put_f16(block + 208, d / (18.5 * 9.25));
        break;
    default: BUG("no random blocks of type %s", dtype_name(dtype));
    }
}

/* n_elements: whole blocks, at most BUFFER_BYTES / 4 of them. */
static void fill_blocks(struct stream *stream, enum dtype dtype, double sigma, size_t n_elements, float *values,
                        uint8_t *out) {
    size_t block_elements = (size_t)dtype_block_elements(dtype), block_bytes = (size_t)dtype_block_bytes(dtype);
    if (block_elements == 1) {
        fill_values(stream, sigma, values, n_elements);
        quantize_row(dtype, values, out, (int64_t)n_elements);
        return;
    }
    size_t n_blocks = n_elements / block_elements;
    fill_random(stream, out, n_blocks * block_bytes);
    for (size_t i = 0; i < n_blocks; i++) set_scales(dtype, out + i * block_bytes, sigma);
}

/* ---- the file ---- */

static enum status write_shape_keys(struct gguf_write *writer, const struct model_shape *shape,
                                    struct status_note *note) {
    const struct {
        const char *suffix;
        int value; /* 0: left out */
    } ints[] = {{"block_count", shape->n_layers},
                {"context_length", shape->max_context},
                {"embedding_length", shape->d_model},
                {"feed_forward_length", shape->d_ff},
                {"attention.head_count", shape->n_heads},
                {"attention.head_count_kv", shape->n_kv_heads},
                {"attention.key_length", shape->head_dim},
                {"attention.value_length", shape->head_dim},
                {"attention.sliding_window", shape->window},
                {"rope.dimension_count", shape->head_dim},
                {"vocab_size", shape->n_vocab}};
    char key[96];
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof ints / sizeof ints[0] && !status; i++) {
        snprintf(key, sizeof key, "%s.%s", shape->arch, ints[i].suffix);
        if (ints[i].value) status = gguf_write_key_int(writer, key, GGUF_U32, ints[i].value, note);
    }
    snprintf(key, sizeof key, "%s.rope.freq_base", shape->arch);
    if (!status) status = gguf_write_key_real(writer, key, GGUF_F32, shape->rope_base, note);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", shape->arch);
    return status ? status : gguf_write_key_real(writer, key, GGUF_F32, shape->norm_eps, note);
}

static enum status write_head(struct gguf_write *writer, const struct synth_spec *spec, struct status_note *note) {
    const struct model_shape *shape = &spec->shape;
    char name[96];
    snprintf(name, sizeof name, "random weights, shape of %s", shape->name);
    enum status status = gguf_write_key_text(writer, "general.architecture", shape->arch, strlen(shape->arch), note);
    if (!status) status = gguf_write_key_text(writer, "general.name", name, strlen(name), note);
    if (!status) status = gguf_write_key_int(writer, "general.file_type", GGUF_U32, spec->type.gguf_id, note);
    if (!status) status = gguf_write_key_int(writer, "general.quantization_version", GGUF_U32, 2, note);
    if (!status) status = write_shape_keys(writer, shape, note);
    if (!status) status = synth_vocab_write(writer, shape, note);
    for (int i = 0; i < model_shape_n_tensors(shape) && !status; i++) {
        struct shape_tensor tensor;
        model_shape_tensor(shape, i, &tensor);
        status = gguf_write_tensor(writer, tensor.name, dtype_of(spec, &tensor), tensor.n_dims, tensor.dims, note);
    }
    return status ? status : gguf_write_begin_data(writer, note);
}

static enum status write_vector(struct gguf_write *writer, const struct model_shape *shape,
                                const struct shape_tensor *tensor, struct stream *stream, float *values,
                                struct status_note *note) {
    size_t n = (size_t)tensor->dims[0];
    if (tensor->kind == SHAPE_BIAS) fill_values(stream, 0.1, values, n);
    for (size_t i = 0; i < n && tensor->kind != SHAPE_BIAS; i++)
        values[i] = tensor->kind == SHAPE_NORM ? 1 : (float)model_shape_rope_factor(shape, (int)i);
    return gguf_write_data(writer, values, n * sizeof *values, note);
}

static enum status write_matrix(struct gguf_write *writer, const struct synth_spec *spec,
                                const struct shape_tensor *tensor, struct stream *stream, float *values, uint8_t *bytes,
                                struct progress *progress, struct status_note *note) {
    enum dtype dtype = dtype_of(spec, tensor);
    uint64_t left = tensor->dims[0] * tensor->dims[1], max_elements = BUFFER_BYTES / sizeof *values;
    double sigma = 1 / sqrt((double)tensor->dims[0]);
    enum status status = STATUS_OK;
    while (left && !status) {
        uint64_t n = left < max_elements ? left : max_elements, n_bytes; /* whole blocks: 256 divides max_elements */
        fill_blocks(stream, dtype, sigma, (size_t)n, values, bytes);
        REQUIRE(dtype_bytes(dtype, n, &n_bytes) == STATUS_OK);
        status = gguf_write_data(writer, bytes, (size_t)n_bytes, note);
        if (!status) status = progress_add(progress, n_bytes, note);
        left -= n;
    }
    return status;
}

static enum status write_tensors(struct gguf_write *writer, const struct synth_spec *spec, struct progress *progress,
                                 struct status_note *note) {
    float *values = mem_alloc(BUFFER_BYTES);
    uint8_t *bytes = mem_alloc(BUFFER_BYTES);
    enum status status = values && bytes ? STATUS_OK : status_fail(note, STATUS_NOMEM, "no memory for two buffers");
    for (int i = 0; i < model_shape_n_tensors(&spec->shape) && !status; i++) {
        struct shape_tensor tensor;
        model_shape_tensor(&spec->shape, i, &tensor);
        struct stream stream = {.seed = spec->seed, .tensor_idx = (uint32_t)i};
        if (tensor.n_dims == 1)
            status = write_vector(writer, &spec->shape, &tensor, &stream, values, note);
        else
            status = write_matrix(writer, spec, &tensor, &stream, values, bytes, progress, note);
    }
    mem_free(values);
    mem_free(bytes);
    return status;
}

enum status synth_write(const struct synth_spec *spec, const char *path, struct progress *progress,
                        struct status_note *note) {
    struct gguf_write *writer;
    enum status status = gguf_write_create(&writer, path, note);
    if (status) return status;
    status = write_head(writer, spec, note);
    if (!status) status = write_tensors(writer, spec, progress, note);
    if (!status) status = gguf_write_finish(writer, note);
    gguf_write_destroy(&writer);
    return status;
}
