/* model_shape: the sizes of well-known models, and the tensors that a GGUF file of such a model holds.
 *
 * Thread: any, const data; a shape is a plain value, whose counts a caller may change before it asks for tensors. */
#ifndef KVICK_WEIGHTS_MODEL_SHAPE_H
#define KVICK_WEIGHTS_MODEL_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MODEL_SHAPE_MAX_LAYERS 256

struct model_shape {
    const char *name;
    const char *arch;      /* general.architecture */
    const char *tokenizer; /* tokenizer.ggml.pre of a byte-pair vocabulary, or "spm" */
    int n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, n_vocab, max_context;
    double rope_base, rope_factor;
    int window;
    double norm_eps;
    bool is_tied; /* the embedding is the output layer, too */
};

enum shape_tensor_kind { SHAPE_MATRIX, SHAPE_NORM, SHAPE_BIAS, SHAPE_ROPE_FACTORS };

struct shape_tensor {
    char name[64];
    enum shape_tensor_kind kind;
    int n_dims;       /* 2 for a matrix, else 1 */
    uint64_t dims[2]; /* GGUF's order: dims[0] is contiguous */
};

/* Errors: STATUS_INVALID for an unknown name; the note lists the known ones. */
WARN_UNUSED enum status model_shape_find(const char *name, struct model_shape *out_shape, struct status_note *note);

int model_shape_n_tensors(const struct model_shape *shape);

/* tensor_idx: 0..n_tensors-1, in the order of the file. */
void model_shape_tensor(const struct model_shape *shape, int tensor_idx, struct shape_tensor *out_tensor);

/* Elements of all tensors but the RoPE factors, which are no parameters. */
uint64_t model_shape_n_parameters(const struct model_shape *shape);

/* Divisor of the frequency of RoPE pair pair_idx, 1 without scaling.
 * Source: Llama 3.1's model code: wavelengths above 8192 / 1 are stretched by the factor, those below 8192 / 4 are not,
 * between them the two are blended. */
double model_shape_rope_factor(const struct model_shape *shape, int pair_idx);

#endif
