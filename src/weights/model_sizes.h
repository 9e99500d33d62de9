/* model_sizes: what a model's header says about sizes: enough to plan memory and time for, also of a model that kvick
 * cannot run. No tensor data is read.
 *
 * Thread: any.   Memory: a plain value. */
#ifndef KVICK_WEIGHTS_MODEL_SIZES_H
#define KVICK_WEIGHTS_MODEL_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "weights/model_shape.h"
#include "weights/weight_store.h"

#define MODEL_SIZES_MAX_LAYERS 512
#define MODEL_SIZES_MAX_NAME_BYTES 128

enum layer_kind {
    LAYER_KEYS,   /* keys and values of every kv head */
    LAYER_LATENT, /* one compressed row for all heads (multi-head latent attention) */
    LAYER_STATE,  /* a state of fixed size per sequence: convolution, state space, linear attention */
    LAYER_SHARED  /* reads the keys and values of another layer */
};

struct layer_sizes {
    enum layer_kind kind;
    int n_kv_heads, k_dim, v_dim; /* of a head. LAYER_LATENT: n_kv_heads 1, k_dim the whole row, v_dim 0 */
    int score_dim, mix_dim;       /* per query head and key: multiply-adds of its score, and of the weighted sum */
    int window;                   /* keys that a row sees at most; 0 = all */
    uint64_t state_elements;      /* of LAYER_STATE */
};

struct model_sizes {
    char name[MODEL_SIZES_MAX_NAME_BYTES], arch[32];
    int n_layers, d_model, n_heads, n_vocab, max_context; /* 0 where the source does not say */
    double row_macs; /* multiply-adds of one token in all layers' matrices; of experts only those used; 0: unknown */
    uint64_t weight_bytes; /* 0: unknown */
    uint64_t step_bytes;   /* of them, those that a step of one row reads */
    bool is_estimated;     /* row_macs and bytes are sums over sizes, not over the tensors of a file */
    char doubt[192];       /* what the source leaves open and how it was taken; "" if nothing */
    struct layer_sizes layers[MODEL_SIZES_MAX_LAYERS];
};

/* A GGUF file's, of any architecture that has the usual keys.
 * Errors: STATUS_FORMAT, STATUS_INVALID with key and value. */
WARN_UNUSED enum status model_sizes_from_gguf(struct model_sizes *sizes, const struct gguf *gguf,
                                              struct status_note *note);

/* One of weights/model_shapes.inc, with weights of 4.5 bits. */
void model_sizes_from_shape(struct model_sizes *sizes, const struct model_shape *shape);

/* "layers=32,kv_heads=8,head_dim=128" and, where wanted, heads, d_model, d_ff, vocab, context, window (all layers have
 * it, or of each period layers all but the last), latent (elements of the row that all heads share; instead of
 * kv_heads), bits (of a weight, 4.5). Errors: STATUS_INVALID, naming the field. */
WARN_UNUSED enum status model_sizes_from_text(struct model_sizes *sizes, const char *text, struct status_note *note);

/* Elements of K and V that one token adds in a layer, as long as no window cuts. */
uint64_t model_sizes_token_elements(const struct layer_sizes *layer);

/* Multiply-adds of one token in the attention matrices of a layer, and in those of a gated feed-forward. */
double model_sizes_attention_macs(const struct model_sizes *sizes, const struct layer_sizes *layer);
double model_sizes_feed_macs(const struct model_sizes *sizes, double d_ff);

/* Sets weight_bytes and step_bytes from row_macs and the vocabulary.
 * n_parameters: of all layers' matrices; where all of them are used by every token that is row_macs. */
void model_sizes_estimate_bytes(struct model_sizes *sizes, double n_parameters, double bits, bool is_tied);

#endif
