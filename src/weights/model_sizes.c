#include "weights/model_sizes.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/field_list.h"
#include "weights/gguf_check.h"

#define DEFAULT_BITS 4.5 /* of a weight in Q4_0 and Q4_K */

uint64_t model_sizes_token_elements(const struct layer_sizes *layer) {
    if (layer->kind == LAYER_STATE || layer->kind == LAYER_SHARED) return 0;
    return (uint64_t)layer->n_kv_heads * (uint64_t)(layer->k_dim + layer->v_dim);
}

double model_sizes_attention_macs(const struct model_sizes *sizes, const struct layer_sizes *layer) {
    double d_model = sizes->d_model, n_heads = sizes->n_heads;
    switch (layer->kind) {
    case LAYER_KEYS:
        return d_model * (n_heads * (layer->score_dim + layer->mix_dim) + (double)model_sizes_token_elements(layer));
    case LAYER_LATENT: /* down to the row, up from it for all heads, queries, output */
        return d_model * (layer->k_dim + n_heads * (layer->score_dim + layer->mix_dim)) +
               (double)layer->k_dim * n_heads * (layer->score_dim + layer->mix_dim);
    case LAYER_SHARED: return d_model * n_heads * (layer->score_dim + layer->mix_dim);
    case LAYER_STATE: return 4.0 * d_model * d_model;
    }
    BUG("layer of kind %d", (int)layer->kind);
}

double model_sizes_feed_macs(const struct model_sizes *sizes, double d_ff) {
    return 3.0 * sizes->d_model * d_ff;
}

void model_sizes_estimate_bytes(struct model_sizes *sizes, double n_parameters, double bits, bool is_tied) {
    double vocab = (double)sizes->n_vocab * sizes->d_model;
    sizes->weight_bytes = (uint64_t)((n_parameters + (is_tied ? 1 : 2) * vocab) * bits / 8);
    sizes->step_bytes = (uint64_t)((sizes->row_macs + vocab) * bits / 8);
    sizes->is_estimated = true;
}

/* ---- from a GGUF file ---- */

struct source {
    const struct gguf *gguf;
    const char *arch;
    struct status_note *note;
};

static const char *key_of(const struct source *from, const char *suffix, char out[128]) {
    snprintf(out, 128, "%s.%s", from->arch, suffix);
    return out;
}

static enum status read_int(const struct source *from, const char *suffix, long min, long max, int fallback, int *out) {
    char key[128];
    uint64_t value;
    *out = fallback;
    if (!gguf_has(from->gguf, key_of(from, suffix, key))) return STATUS_OK;
    enum status status = gguf_get_u64(from->gguf, key, &value, from->note);
    if (status) return status;
    if (value < (uint64_t)min || value > (uint64_t)max)
        return status_fail(from->note, STATUS_FORMAT, "key %s is %llu, not within %ld..%ld", key,
                           (unsigned long long)value, min, max);
    *out = (int)value;
    return STATUS_OK;
}

/* A number for all layers, or one for each. */
static enum status read_per_layer(const struct source *from, const char *suffix, int n_layers, long max, int fallback,
                                  int out[MODEL_SIZES_MAX_LAYERS]) {
    char key[128];
    enum gguf_type type;
    struct gguf_array array;
    int one = fallback;
    if (!gguf_type_of(from->gguf, key_of(from, suffix, key), &type) || type != GGUF_ARRAY) {
        enum status status = read_int(from, suffix, 0, max, fallback, &one);
        for (int i = 0; i < n_layers && !status; i++) out[i] = one;
        return status;
    }
    enum status status = gguf_get_array(from->gguf, key, &array, from->note);
    if (status) return status;
    if (array.n_items != (uint64_t)n_layers || array.item_type == GGUF_TEXT || array.item_type == GGUF_F32 ||
        array.item_type == GGUF_F64)
        return status_fail(from->note, STATUS_FORMAT, "key %s is no array of %d whole numbers", key, n_layers);
    for (int i = 0; i < n_layers; i++) {
        int64_t value = gguf_array_int(&array, (uint64_t)i);
        if (value < 0 || value > max)
            return status_fail(from->note, STATUS_FORMAT, "key %s[%d] is %lld, not within 0..%ld", key, i,
                               (long long)value, max);
        out[i] = (int)value;
    }
    return STATUS_OK;
}

#define EVERY_LAYER (MODEL_SIZES_MAX_LAYERS + 1) /* a period that never ends: Mistral's, whose files are llama's */

/* Architectures whose pattern of windows is part of their definition: of each period of layers all but the last have
 * the window. Source: the models' published config.json (sliding_window_pattern, layer_types). */
static int known_period(const char *arch) {
    static const struct {
        const char *arch;
        int period;
    } known[] = {{"gemma2", 2},  {"gemma3", 6},  {"gemma3n", 5},        {"gpt-oss", 2},
                 {"cohere2", 4}, {"exaone4", 4}, {"llama", EVERY_LAYER}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].arch, arch) == 0) return known[i].period;
    return 0;
}

static enum status read_windows(const struct source *from, struct model_sizes *sizes) {
    char key[128];
    int window, period = known_period(from->arch), is_local[MODEL_SIZES_MAX_LAYERS];
    enum gguf_type type;
    enum status status = read_int(from, "attention.sliding_window", 0, 1 << 24, 0, &window);
    if (status || !window) return status;
    bool has_pattern = gguf_type_of(from->gguf, key_of(from, "attention.sliding_window_pattern", key), &type);
    if (has_pattern && type != GGUF_ARRAY) {
        status = read_int(from, "attention.sliding_window_pattern", 1, MODEL_SIZES_MAX_LAYERS, 0, &period);
        has_pattern = false;
    }
    if (!status && has_pattern)
        status = read_per_layer(from, "attention.sliding_window_pattern", sizes->n_layers, 1, 0, is_local);
    if (status) return status;
    if (!has_pattern && !period)
        snprintf(sizes->doubt, sizeof sizes->doubt,
                 "%s.attention.sliding_window is %d, but not for which layers: all are counted as seeing everything",
                 from->arch, window);
    for (int i = 0; i < sizes->n_layers; i++)
        if (has_pattern ? is_local[i] : period && i % period != period - 1) sizes->layers[i].window = window;
    return STATUS_OK;
}

static enum status read_state_elements(const struct source *from, const struct model_sizes *sizes, uint64_t *out) {
    int l_cache, kernel, inner, state, groups;
    enum status status = read_int(from, "shortconv.l_cache", 0, 1 << 16, 0, &l_cache);
    if (!status) status = read_int(from, "ssm.conv_kernel", 0, 1 << 16, 0, &kernel);
    if (!status) status = read_int(from, "ssm.inner_size", 0, GGUF_CHECK_MAX_WIDTH, 0, &inner);
    if (!status) status = read_int(from, "ssm.state_size", 0, 1 << 16, 0, &state);
    if (!status) status = read_int(from, "ssm.group_count", 0, 1 << 16, 0, &groups);
    if (status) return status;
    *out = 0;
    if (l_cache) *out = (uint64_t)(l_cache - 1) * (uint64_t)sizes->d_model;
    if (kernel)
        *out += (uint64_t)(kernel - 1) * ((uint64_t)inner + 2 * (uint64_t)groups * (uint64_t)state) +
                (uint64_t)inner * (uint64_t)state;
    return STATUS_OK;
}

/* The row that all heads share, where there is one. */
static enum status read_latent(const struct source *from, const struct layer_sizes *plain, struct layer_sizes *out) {
    int rank, rope_dim, score_dim, mix_dim;
    enum status status = read_int(from, "attention.kv_lora_rank", 0, GGUF_CHECK_MAX_WIDTH, 0, &rank);
    if (!status) status = read_int(from, "rope.dimension_count", 0, 1 << 16, 0, &rope_dim);
    if (!status) status = read_int(from, "attention.key_length_mla", 0, 1 << 16, plain->k_dim, &score_dim);
    if (!status) status = read_int(from, "attention.value_length_mla", 0, 1 << 16, plain->v_dim, &mix_dim);
    if (status) return status;
    *out = *plain;
    if (rank)
        *out = (struct layer_sizes){.kind = LAYER_LATENT,
                                    .n_kv_heads = 1,
                                    .k_dim = rank + rope_dim,
                                    .score_dim = score_dim,
                                    .mix_dim = mix_dim};
    return STATUS_OK;
}

static enum status read_layers(const struct source *from, struct model_sizes *sizes) {
    int kv_heads[MODEL_SIZES_MAX_LAYERS], heads[MODEL_SIZES_MAX_LAYERS], n_shared, interval, head_dim;
    uint64_t state_elements = 0;
    enum status status = read_per_layer(from, "attention.head_count", sizes->n_layers, GGUF_CHECK_MAX_HEADS, 0, heads);
    for (int i = 0; i < sizes->n_layers && !status; i++)
        if (heads[i] > sizes->n_heads) sizes->n_heads = heads[i];
    if (!status)
        status = read_per_layer(from, "attention.head_count_kv", sizes->n_layers, GGUF_CHECK_MAX_HEADS, sizes->n_heads,
                                kv_heads);
    if (!status) status = read_int(from, "attention.shared_kv_layers", 0, sizes->n_layers, 0, &n_shared);
    if (!status) status = read_int(from, "full_attention_interval", 0, sizes->n_layers, 0, &interval);
    if (!status) status = read_state_elements(from, sizes, &state_elements);
    struct layer_sizes plain = {.kind = LAYER_KEYS}, latent;
    head_dim = sizes->n_heads ? sizes->d_model / sizes->n_heads : 0;
    if (!status) status = read_int(from, "attention.key_length", 1, 1 << 16, head_dim, &plain.k_dim);
    if (!status) status = read_int(from, "attention.value_length", 1, 1 << 16, plain.k_dim, &plain.v_dim);
    if (!status) status = read_latent(from, &plain, &latent);
    if (status) return status;
    for (int i = 0; i < sizes->n_layers; i++) {
        struct layer_sizes *layer = &sizes->layers[i];
        *layer = latent;
        if (latent.kind == LAYER_KEYS) {
            layer->n_kv_heads = kv_heads[i];
            layer->score_dim = plain.k_dim;
            layer->mix_dim = plain.v_dim;
        }
        if (i >= sizes->n_layers - n_shared) layer->kind = LAYER_SHARED;
        if (kv_heads[i] == 0 || (interval && i % interval != interval - 1))
            *layer = (struct layer_sizes){.kind = LAYER_STATE, .state_elements = state_elements};
    }
    return read_windows(from, sizes);
}

/* Products and bytes, summed over the file's tensors. */
static enum status sum_tensors(const struct source *from, struct model_sizes *sizes) {
    int n_experts, n_used;
    enum status status = read_int(from, "expert_count", 0, 1 << 16, 0, &n_experts);
    if (!status) status = read_int(from, "expert_used_count", 0, 1 << 16, n_experts, &n_used);
    if (status) return status;
    double used_share = n_experts ? (double)n_used / n_experts : 1, step_bytes = 0;
    bool is_tied = !gguf_tensor_find(from->gguf, "output.weight");
    for (size_t i = 0; i < gguf_n_tensors(from->gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(from->gguf, i);
        bool is_layer = tensor->name.n_bytes > 4 && memcmp(tensor->name.ptr, "blk.", 4) == 0;
        bool is_embedding = tensor->name.n_bytes == 17 && memcmp(tensor->name.ptr, "token_embd.weight", 17) == 0;
        double share = tensor->n_dims >= 3 ? used_share : 1;
        sizes->weight_bytes += tensor->n_bytes;
        if (is_embedding) sizes->n_vocab = (int)(tensor->dims[1] < INT32_MAX ? tensor->dims[1] : INT32_MAX);
        if (!is_embedding || is_tied) step_bytes += share * (double)tensor->n_bytes;
        if (is_layer && tensor->n_dims >= 2)
            sizes->row_macs += share * (double)tensor->dims[0] * (double)tensor->dims[1] * (double)tensor->dims[2];
    }
    sizes->step_bytes = (uint64_t)step_bytes;
    return STATUS_OK;
}

enum status model_sizes_from_gguf(struct model_sizes *sizes, const struct gguf *gguf, struct status_note *note) {
    *sizes = (struct model_sizes){0};
    struct gguf_text text;
    enum status status = gguf_check_model_keys(gguf, note);
    if (!status) status = gguf_get_text(gguf, "general.architecture", &text, note);
    if (status) return status;
    if (text.n_bytes == 0 || text.n_bytes >= sizeof sizes->arch)
        return status_fail(note, STATUS_FORMAT, "key general.architecture has %zu bytes", text.n_bytes);
    memcpy(sizes->arch, text.ptr, text.n_bytes);
    if (gguf_get_text(gguf, "general.name", &text, NULL) == STATUS_OK && text.n_bytes < sizeof sizes->name)
        memcpy(sizes->name, text.ptr, text.n_bytes);
    struct source from = {gguf, sizes->arch, note};
    char key[128];
    status = read_int(&from, "block_count", 1, MODEL_SIZES_MAX_LAYERS, 0, &sizes->n_layers);
    if (!status && !sizes->n_layers)
        status = status_fail(note, STATUS_FORMAT, "key %s is missing", key_of(&from, "block_count", key));
    if (!status) status = read_int(&from, "embedding_length", 1, GGUF_CHECK_MAX_WIDTH, 0, &sizes->d_model);
    if (!status) status = read_int(&from, "context_length", 1, 1 << 28, 0, &sizes->max_context);
    if (!status) status = read_layers(&from, sizes);
    return status ? status : sum_tensors(&from, sizes);
}

/* ---- from a known shape ---- */

static struct layer_sizes plain_layer(int n_kv_heads, int head_dim, int window) {
    return (struct layer_sizes){.kind = LAYER_KEYS,
                                .n_kv_heads = n_kv_heads,
                                .k_dim = head_dim,
                                .v_dim = head_dim,
                                .score_dim = head_dim,
                                .mix_dim = head_dim,
                                .window = window};
}

void model_sizes_from_shape(struct model_sizes *sizes, const struct model_shape *shape) {
    *sizes = (struct model_sizes){.n_layers = shape->n_layers,
                                  .d_model = shape->d_model,
                                  .n_heads = shape->n_heads,
                                  .n_vocab = shape->n_vocab,
                                  .max_context = shape->max_context};
    int period = known_period(shape->arch);
    snprintf(sizes->name, sizeof sizes->name, "%s", shape->name);
    snprintf(sizes->arch, sizeof sizes->arch, "%s", shape->arch);
    for (int i = 0; i < shape->n_layers; i++) {
        bool is_local = shape->window && period && i % period != period - 1;
        sizes->layers[i] = plain_layer(shape->n_kv_heads, shape->head_dim, is_local ? shape->window : 0);
        sizes->row_macs +=
            model_sizes_attention_macs(sizes, &sizes->layers[i]) + model_sizes_feed_macs(sizes, shape->d_ff);
    }
    model_sizes_estimate_bytes(sizes, sizes->row_macs, DEFAULT_BITS, shape->is_tied);
}

/* ---- from numbers ---- */

struct text_fields {
    double layers, kv_heads, head_dim, heads, d_model, d_ff, vocab, context, window, period, latent, bits;
};

static const struct field_row known_fields[] = {
#define FIELD(name, max)                                                                                               \
    { #name, offsetof(struct text_fields, name), 1, max, true }
    FIELD(layers, MODEL_SIZES_MAX_LAYERS),
    FIELD(kv_heads, GGUF_CHECK_MAX_HEADS),
    FIELD(head_dim, 1 << 16),
    FIELD(heads, GGUF_CHECK_MAX_HEADS),
    FIELD(d_model, GGUF_CHECK_MAX_WIDTH),
    FIELD(d_ff, GGUF_CHECK_MAX_WIDTH),
    FIELD(vocab, 1 << 24),
    FIELD(context, 1 << 28),
    FIELD(window, 1 << 24),
    FIELD(period, MODEL_SIZES_MAX_LAYERS),
    FIELD(latent, GGUF_CHECK_MAX_WIDTH),
#undef FIELD
    {"bits", offsetof(struct text_fields, bits), 0.1, 32, false},
};

#define N_FIELDS ((int)(sizeof known_fields / sizeof known_fields[0]))

static enum status check_fields(const struct text_fields *fields, struct status_note *note) {
    if (!fields->layers) return status_fail(note, STATUS_INVALID, "layers is missing");
    if (!fields->latent && !(fields->kv_heads && fields->head_dim))
        return status_fail(note, STATUS_INVALID, "kv_heads and head_dim, or latent, are missing");
    if (fields->latent && fields->kv_heads)
        return status_fail(note, STATUS_INVALID, "latent and kv_heads: a layer has one of them");
    if (fields->period && !fields->window) return status_fail(note, STATUS_INVALID, "period is given without window");
    return STATUS_OK;
}

enum status model_sizes_from_text(struct model_sizes *sizes, const char *text, struct status_note *note) {
    struct text_fields fields = {.bits = DEFAULT_BITS};
    enum status status = field_list_read(text, known_fields, N_FIELDS, &fields, note);
    if (!status) status = check_fields(&fields, note);
    if (status) return status;
    int head_dim = (int)(fields.head_dim ? fields.head_dim : 128), period = (int)fields.period;
    *sizes = (struct model_sizes){.n_layers = (int)fields.layers,
                                  .d_model = (int)fields.d_model,
                                  .n_heads = (int)fields.heads,
                                  .n_vocab = (int)fields.vocab,
                                  .max_context = (int)fields.context};
    snprintf(sizes->name, sizeof sizes->name, "%.*s", (int)sizeof sizes->name - 1, text);
    for (int i = 0; i < sizes->n_layers; i++) {
        bool is_local = fields.window && !(period && i % period == period - 1);
        struct layer_sizes *layer = &sizes->layers[i];
        *layer = plain_layer((int)fields.kv_heads, head_dim, is_local ? (int)fields.window : 0);
        if (fields.latent) {
            layer->kind = LAYER_LATENT;
            layer->n_kv_heads = 1;
            layer->k_dim = (int)fields.latent;
            layer->v_dim = 0;
        }
        if (fields.heads && fields.d_model && fields.d_ff)
            sizes->row_macs += model_sizes_attention_macs(sizes, layer) + model_sizes_feed_macs(sizes, fields.d_ff);
    }
    if (sizes->row_macs > 0) model_sizes_estimate_bytes(sizes, sizes->row_macs, fields.bits, false);
    return STATUS_OK;
}
