/* model_config: the numbers of one model, checked, as every architecture needs them.
 *
 * Thread: any, const once read.   Memory: fixed-size. */
#ifndef KVICK_MODEL_MODEL_CONFIG_H
#define KVICK_MODEL_MODEL_CONFIG_H

#include <stdbool.h>

#include "base/status.h"
#include "weights/gguf.h"

#define MODEL_MAX_LAYERS 256
#define MODEL_MAX_ROPE_PAIRS 128 /* head sizes up to 256 */
#define MODEL_MAX_ROPES 2

/* Rotary position embedding: pair i of position p turns by p * inv_freq[i]; cosine and sine are times magnitude. */
struct rope {
    int n_pairs;
    bool is_halves; /* pairs (i, i + n_pairs); else (2i, 2i + 1) */
    double magnitude;
    double inv_freq[MODEL_MAX_ROPE_PAIRS];
};

struct model_layer {
    int rope_idx;
    int window; /* a row sees at most this many keys, itself included; 0 = all */
};

struct model_config {
    char arch[32]; /* general.architecture */
    int n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab;
    int n_tokens;    /* ids below it are texts; rows of the embedding beyond are padding */
    int max_context; /* what the model was made for */
    float norm_eps;
    float query_scale; /* on Q, once */
    float embed_scale;
    struct rope ropes[MODEL_MAX_ROPES];
    struct model_layer layers[MODEL_MAX_LAYERS];
};

/* Reads the keys that all architectures share; sets query_scale 1/sqrt(head_dim), embed_scale 1, ropes[0] from
 * rope.freq_base and rope.scaling.*, all layers unwindowed. n_vocab and n_tokens are left 0: the embedding
 * tensor tells.
 * Errors: STATUS_FORMAT with key and value in note (STATUS_INVALID for a key of another kind); an unknown rope scaling
 * is refused. */
WARN_UNUSED enum status model_config_read(struct model_config *config, const struct gguf *gguf,
                                          struct status_note *note);

/* Inverse frequencies base^(-2i/(2 n_pairs)), divided by factors[i] when factors is not NULL. */
void model_config_plain_rope(struct rope *rope, double base, int n_pairs, const float *factors);

/* For architectures whose files do not say which layers a window is for: one shorter than the context is an error. */
WARN_UNUSED enum status model_config_refuse_window(const struct model_config *config, const struct gguf *gguf,
                                                   struct status_note *note);

/* "<arch>.<suffix>" as a whole number in [min, max]; if it is absent, fallback, or an error when fallback < 0. */
WARN_UNUSED enum status model_config_int(const struct model_config *config, const struct gguf *gguf, const char *suffix,
                                         long min, long max, long fallback, int *out, struct status_note *note);

/* The same for a finite number; fallback NAN makes an absent key an error. */
WARN_UNUSED enum status model_config_real(const struct model_config *config, const struct gguf *gguf,
                                          const char *suffix, double fallback, double *out, struct status_note *note);

#endif
