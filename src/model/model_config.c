#include "model/model_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_DIM (1 << 20)

static const char *full_key(const struct model_config *config, const char *suffix, char out[128]) {
    snprintf(out, 128, "%s.%s", config->arch, suffix);
    return out;
}

enum status model_config_int(const struct model_config *config, const struct gguf *gguf, const char *suffix, long min,
                             long max, long fallback, int *out, struct status_note *note) {
    char key[128];
    uint64_t value;
    if (!gguf_has(gguf, full_key(config, suffix, key))) {
        if (fallback < 0) return status_fail(note, STATUS_FORMAT, "key %s is missing", key);
        *out = (int)fallback;
        return STATUS_OK;
    }
    enum status status = gguf_get_u64(gguf, key, &value, note);
    if (status) return status;
    if (value < (uint64_t)min || value > (uint64_t)max)
        return status_fail(note, STATUS_FORMAT, "key %s is %llu, not within %ld..%ld", key, (unsigned long long)value,
                           min, max);
    *out = (int)value;
    return STATUS_OK;
}

enum status model_config_refuse_window(const struct model_config *config, const struct gguf *gguf,
                                       struct status_note *note) {
    int window = 0;
    enum status status = model_config_int(config, gguf, "attention.sliding_window", 0, 1 << 24, 0, &window, note);
    if (status || window == 0 || window >= config->max_context) return status;
    return status_fail(note, STATUS_FORMAT, "key %s.attention.sliding_window is %d: this architecture is run without",
                       config->arch, window);
}

enum status model_config_real(const struct model_config *config, const struct gguf *gguf, const char *suffix,
                              double fallback, double *out, struct status_note *note) {
    char key[128];
    if (!gguf_has(gguf, full_key(config, suffix, key))) {
        if (isnan(fallback)) return status_fail(note, STATUS_FORMAT, "key %s is missing", key);
        *out = fallback;
        return STATUS_OK;
    }
    enum status status = gguf_get_f64(gguf, key, out, note);
    if (status) return status;
    if (!isfinite(*out)) return status_fail(note, STATUS_FORMAT, "key %s is not a finite number", key);
    return STATUS_OK;
}

void model_config_plain_rope(struct rope *rope, double base, int n_pairs, const float *factors) {
    rope->n_pairs = n_pairs;
    rope->magnitude = 1;
    for (int i = 0; i < n_pairs; i++) {
        rope->inv_freq[i] = pow(base, -(double)i / n_pairs);
        if (factors) rope->inv_freq[i] /= (double)factors[i];
    }
}

/* YaRN: frequencies that turn often inside the original context stay, slow ones are interpolated, between is a ramp.
 * Source: Peng et al. 2023 (2309.00071), 3.2; beta 32 and 1; magnitude 0.1 ln(factor) + 1. */
static void stretch_yarn(struct rope *rope, double base, double factor, int original_context) {
    const double pi = 3.14159265358979323846;
    int dims = 2 * rope->n_pairs;
    double low = floor(dims * log(original_context / (32 * 2 * pi)) / (2 * log(base)));
    double high = ceil(dims * log(original_context / (1 * 2 * pi)) / (2 * log(base)));
    if (low < 0) low = 0;
    if (high > dims - 1) high = dims - 1;
    if (low == high) high += 0.001;
    for (int i = 0; i < rope->n_pairs; i++) {
        double ramp = (i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        rope->inv_freq[i] *= (1 - ramp) + ramp / factor;
    }
    rope->magnitude = 0.1 * log(factor) + 1;
}

static enum status read_scaling(struct model_config *config, const struct gguf *gguf, double base,
                                struct status_note *note) {
    char key[128];
    struct gguf_text type;
    double factor;
    if (!gguf_has(gguf, full_key(config, "rope.scaling.type", key))) return STATUS_OK;
    enum status status = gguf_get_text(gguf, key, &type, note);
    if (status) return status;
    if (type.n_bytes == 4 && memcmp(type.ptr, "none", 4) == 0) return STATUS_OK;
    status = model_config_real(config, gguf, "rope.scaling.factor", NAN, &factor, note);
    if (status) return status;
    if (!(factor >= 1 && factor <= 1e6))
        return status_fail(note, STATUS_FORMAT, "key %s.rope.scaling.factor is %g, not within 1..1e6", config->arch,
                           factor);
    if (type.n_bytes == 6 && memcmp(type.ptr, "linear", 6) == 0) {
        for (int i = 0; i < config->ropes[0].n_pairs; i++) config->ropes[0].inv_freq[i] /= factor;
        return STATUS_OK;
    }
    if (type.n_bytes == 4 && memcmp(type.ptr, "yarn", 4) == 0) {
        int original_context;
        status = model_config_int(config, gguf, "rope.scaling.original_context_length", 1, 1 << 24, -1,
                                  &original_context, note);
        if (status) return status;
        stretch_yarn(&config->ropes[0], base, factor, original_context);
        return STATUS_OK;
    }
    return status_fail(note, STATUS_FORMAT, "key %s is '%.*s' (known: none, linear, yarn)", key,
                       (int)(type.n_bytes < 40 ? type.n_bytes : 40), type.ptr);
}

/* rope_freqs.weight: one divisor per pair (llama3 scaling). */
static enum status read_factors(const struct gguf *gguf, int n_pairs, float factors[MODEL_MAX_ROPE_PAIRS],
                                bool *out_has, struct status_note *note) {
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, "rope_freqs.weight");
    *out_has = tensor != NULL;
    if (!tensor) return STATUS_OK;
    if (tensor->dtype != DTYPE_F32 || tensor->n_dims != 1 || tensor->dims[0] != (uint64_t)n_pairs)
        return status_fail(note, STATUS_FORMAT, "tensor rope_freqs.weight is not %d numbers of type F32", n_pairs);
    memcpy(factors, tensor->bytes, (size_t)n_pairs * sizeof(float));
    for (int i = 0; i < n_pairs; i++)
        if (!(factors[i] > 0 && factors[i] < 1e9f))
            return status_fail(note, STATUS_FORMAT, "tensor rope_freqs.weight: divisor %d is %g", i,
                               (double)factors[i]);
    return STATUS_OK;
}

static enum status read_rope(struct model_config *config, const struct gguf *gguf, struct status_note *note) {
    double base;
    int n_dims;
    float factors[MODEL_MAX_ROPE_PAIRS];
    bool has_factors;
    enum status status = model_config_real(config, gguf, "rope.freq_base", 10000, &base, note);
    if (status) return status;
    if (!(base > 1 && base < 1e12))
        return status_fail(note, STATUS_FORMAT, "key %s.rope.freq_base is %g", config->arch, base);
    status =
        model_config_int(config, gguf, "rope.dimension_count", 2, config->head_dim, config->head_dim, &n_dims, note);
    if (status) return status;
    if (n_dims % 2)
        return status_fail(note, STATUS_FORMAT, "key %s.rope.dimension_count is %d, an odd number", config->arch,
                           n_dims);
    status = read_factors(gguf, n_dims / 2, factors, &has_factors, note);
    if (status) return status;
    model_config_plain_rope(&config->ropes[0], base, n_dims / 2, has_factors ? factors : NULL);
    return read_scaling(config, gguf, base, note);
}

static enum status read_heads(struct model_config *config, const struct gguf *gguf, struct status_note *note) {
    int value_dim;
    enum status status = model_config_int(config, gguf, "attention.head_count", 1, 4096, -1, &config->n_heads, note);
    if (!status)
        status = model_config_int(config, gguf, "attention.head_count_kv", 1, config->n_heads, config->n_heads,
                                  &config->n_kv_heads, note);
    if (status) return status;
    if (config->n_heads % config->n_kv_heads)
        return status_fail(note, STATUS_FORMAT,
                           "key %s.attention.head_count_kv is %d, which does not divide head_count %d", config->arch,
                           config->n_kv_heads, config->n_heads);
    char key[128];
    if (config->d_model % config->n_heads && !gguf_has(gguf, full_key(config, "attention.key_length", key)))
        return status_fail(note, STATUS_FORMAT, "key %s.embedding_length is %d, no multiple of head_count %d",
                           config->arch, config->d_model, config->n_heads);
    status = model_config_int(config, gguf, "attention.key_length", 16, 2 * MODEL_MAX_ROPE_PAIRS,
                              config->d_model / config->n_heads, &config->head_dim, note);
    if (!status)
        status =
            model_config_int(config, gguf, "attention.value_length", 1, MAX_DIM, config->head_dim, &value_dim, note);
    if (status) return status;
    if (value_dim != config->head_dim)
        return status_fail(note, STATUS_FORMAT, "key %s.attention.value_length is %d, but key_length is %d",
                           config->arch, value_dim, config->head_dim);
    if (config->head_dim % 16 || config->head_dim < 16 || config->head_dim > 2 * MODEL_MAX_ROPE_PAIRS)
        return status_fail(note, STATUS_FORMAT, "head size %d is no multiple of 16 within 16..%d", config->head_dim,
                           2 * MODEL_MAX_ROPE_PAIRS);
    return STATUS_OK;
}

enum status model_config_read(struct model_config *config, const struct gguf *gguf, struct status_note *note) {
    *config = (struct model_config){.embed_scale = 1};
    struct gguf_text arch;
    double eps;
    enum status status = gguf_get_text(gguf, "general.architecture", &arch, note);
    if (status) return status;
    if (arch.n_bytes == 0 || arch.n_bytes >= sizeof config->arch)
        return status_fail(note, STATUS_FORMAT, "key general.architecture has %zu bytes", arch.n_bytes);
    memcpy(config->arch, arch.ptr, arch.n_bytes);
    status = model_config_int(config, gguf, "block_count", 1, MODEL_MAX_LAYERS, -1, &config->n_layers, note);
    if (!status) status = model_config_int(config, gguf, "embedding_length", 1, MAX_DIM, -1, &config->d_model, note);
    if (!status) status = model_config_int(config, gguf, "feed_forward_length", 1, MAX_DIM, -1, &config->d_ff, note);
    if (!status) status = model_config_int(config, gguf, "context_length", 1, 1 << 24, -1, &config->max_context, note);
    if (!status) status = model_config_real(config, gguf, "attention.layer_norm_rms_epsilon", NAN, &eps, note);
    if (!status) status = read_heads(config, gguf, note);
    if (!status) status = read_rope(config, gguf, note);
    if (status) return status;
    if (!(eps >= 0 && eps < 1))
        return status_fail(note, STATUS_FORMAT, "key %s.attention.layer_norm_rms_epsilon is %g", config->arch, eps);
    config->norm_eps = (float)eps;
    config->query_scale = (float)(1 / sqrt((double)config->head_dim));
    return STATUS_OK;
}
