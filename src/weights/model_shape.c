#include "weights/model_shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct model_shape shapes[] = {
#define SHAPE(name, arch, tokenizer, n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, n_vocab, max_context,     \
              rope_base, rope_factor, window, norm_eps, is_tied)                                                       \
    {name,     arch,    tokenizer,   n_layers,  d_model,     d_ff,   n_heads,  n_kv_heads,                             \
     head_dim, n_vocab, max_context, rope_base, rope_factor, window, norm_eps, is_tied},
#include "weights/model_shapes.inc"
#undef SHAPE
};

#define N_SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

enum status model_shape_find(const char *name, struct model_shape *out_shape, struct status_note *note) {
    char known[256] = "";
    size_t n = 0;
    for (int i = 0; i < N_SHAPES; i++) {
        if (strcmp(shapes[i].name, name) == 0) {
            *out_shape = shapes[i];
            return STATUS_OK;
        }
        if (n < sizeof known) n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", shapes[i].name);
    }
    return status_fail(note, STATUS_INVALID, "'%.40s' is unknown (known: %s)", name, known);
}

/* ---- tensors ---- */

enum dim { NONE, MODEL, QUERY, KEY, FEED, HEAD, VOCAB, PAIRS };

/* Which models have a tensor. */
enum only { ALWAYS, UNTIED, SCALED_ROPE, QKV_BIAS, QK_NORM, POST_NORM };

struct part {
    const char *name;
    enum shape_tensor_kind kind;
    enum dim k, n_out;
    enum only only;
};

static const struct part head[] = {
    {"rope_freqs.weight", SHAPE_ROPE_FACTORS, PAIRS, NONE, SCALED_ROPE},
    {"token_embd.weight", SHAPE_MATRIX, MODEL, VOCAB, ALWAYS},
    {"output_norm.weight", SHAPE_NORM, MODEL, NONE, ALWAYS},
    {"output.weight", SHAPE_MATRIX, MODEL, VOCAB, UNTIED},
};

static const struct part layer[] = {
    {"attn_norm.weight", SHAPE_NORM, MODEL, NONE, ALWAYS},
    {"attn_q.weight", SHAPE_MATRIX, MODEL, QUERY, ALWAYS},
    {"attn_q.bias", SHAPE_BIAS, QUERY, NONE, QKV_BIAS},
    {"attn_q_norm.weight", SHAPE_NORM, HEAD, NONE, QK_NORM},
    {"attn_k.weight", SHAPE_MATRIX, MODEL, KEY, ALWAYS},
    {"attn_k.bias", SHAPE_BIAS, KEY, NONE, QKV_BIAS},
    {"attn_k_norm.weight", SHAPE_NORM, HEAD, NONE, QK_NORM},
    {"attn_v.weight", SHAPE_MATRIX, MODEL, KEY, ALWAYS},
    {"attn_v.bias", SHAPE_BIAS, KEY, NONE, QKV_BIAS},
    {"attn_output.weight", SHAPE_MATRIX, QUERY, MODEL, ALWAYS},
    {"post_attention_norm.weight", SHAPE_NORM, MODEL, NONE, POST_NORM},
    {"ffn_norm.weight", SHAPE_NORM, MODEL, NONE, ALWAYS},
    {"ffn_gate.weight", SHAPE_MATRIX, MODEL, FEED, ALWAYS},
    {"ffn_up.weight", SHAPE_MATRIX, MODEL, FEED, ALWAYS},
    {"ffn_down.weight", SHAPE_MATRIX, FEED, MODEL, ALWAYS},
    {"post_ffw_norm.weight", SHAPE_NORM, MODEL, NONE, POST_NORM},
};

#define N_HEAD ((int)(sizeof head / sizeof head[0]))
#define N_LAYER ((int)(sizeof layer / sizeof layer[0]))

static uint64_t dim_of(const struct model_shape *shape, enum dim dim) {
    switch (dim) {
    case NONE: return 1;
    case MODEL: return (uint64_t)shape->d_model;
    case QUERY: return (uint64_t)shape->n_heads * (uint64_t)shape->head_dim;
    case KEY: return (uint64_t)shape->n_kv_heads * (uint64_t)shape->head_dim;
    case FEED: return (uint64_t)shape->d_ff;
    case HEAD: return (uint64_t)shape->head_dim;
    case VOCAB: return (uint64_t)shape->n_vocab;
    case PAIRS: return (uint64_t)shape->head_dim / 2;
    }
    BUG("dim %d", (int)dim);
}

static bool has(const struct model_shape *shape, enum only only) {
    bool is_gemma3 = strcmp(shape->arch, "gemma3") == 0;
    switch (only) {
    case ALWAYS: return true;
    case UNTIED: return !shape->is_tied;
    case SCALED_ROPE: return shape->rope_factor > 0;
    case QKV_BIAS: return strcmp(shape->arch, "qwen2") == 0;
    case QK_NORM: return is_gemma3 || strcmp(shape->arch, "qwen3") == 0;
    case POST_NORM: return is_gemma3;
    }
    BUG("tensor of kind %d", (int)only);
}

static int n_parts(const struct model_shape *shape, const struct part *parts, int n) {
    int n_there = 0;
    for (int i = 0; i < n; i++) n_there += has(shape, parts[i].only);
    return n_there;
}

int model_shape_n_tensors(const struct model_shape *shape) {
    return n_parts(shape, head, N_HEAD) + shape->n_layers * n_parts(shape, layer, N_LAYER);
}

static const struct part *nth_part(const struct model_shape *shape, const struct part *parts, int nth) {
    while (!has(shape, parts->only) || nth-- > 0) parts++;
    return parts;
}

void model_shape_tensor(const struct model_shape *shape, int tensor_idx, struct shape_tensor *out_tensor) {
    REQUIRE(tensor_idx >= 0 && tensor_idx < model_shape_n_tensors(shape));
    int n_head = n_parts(shape, head, N_HEAD), n_layer = n_parts(shape, layer, N_LAYER), in_layer = tensor_idx - n_head;
    const struct part *part =
        in_layer < 0 ? nth_part(shape, head, tensor_idx) : nth_part(shape, layer, in_layer % n_layer);
    *out_tensor = (struct shape_tensor){.kind = part->kind,
                                        .n_dims = part->kind == SHAPE_MATRIX ? 2 : 1,
                                        .dims = {dim_of(shape, part->k), dim_of(shape, part->n_out)}};
    if (in_layer < 0)
        snprintf(out_tensor->name, sizeof out_tensor->name, "%s", part->name);
    else
        snprintf(out_tensor->name, sizeof out_tensor->name, "blk.%d.%s", in_layer / n_layer, part->name);
}

uint64_t model_shape_n_parameters(const struct model_shape *shape) {
    uint64_t n_parameters = 0;
    for (int i = 0; i < model_shape_n_tensors(shape); i++) {
        struct shape_tensor tensor;
        model_shape_tensor(shape, i, &tensor);
        if (tensor.kind != SHAPE_ROPE_FACTORS) n_parameters += tensor.dims[0] * tensor.dims[1];
    }
    return n_parameters;
}

double model_shape_rope_factor(const struct model_shape *shape, int pair_idx) {
    const double pi = 3.14159265358979323846, original_context = 8192, low = 1, high = 4;
    if (shape->rope_factor <= 0) return 1;
    double wavelength = 2 * pi * pow(shape->rope_base, 2.0 * pair_idx / shape->head_dim);
    if (wavelength < original_context / high) return 1;
    if (wavelength > original_context / low) return shape->rope_factor;
    double smooth = (original_context / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / shape->rope_factor + smooth);
}
