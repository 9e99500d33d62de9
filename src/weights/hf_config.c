#include "weights/hf_config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "weights/gguf_check.h"

#define MAX_PATH_BYTES 4096
#define MAX_CONFIG_BYTES (4 << 20)

struct fields {
    json_t *object;
    struct status_note *note;
};

/* ---- fields ---- */

/* A whole number; absent and null give fallback. */
static enum status get_int(const struct fields *from, const char *key, long max, int fallback, int *out) {
    const json_t *value = json_object_get(from->object, key);
    *out = fallback;
    if (!value || json_is_null(value)) return STATUS_OK;
    if (!json_is_integer(value)) return status_fail(from->note, STATUS_FORMAT, "%s is no whole number", key);
    json_int_t number = json_integer_value(value);
    if (number < 0 || number > max)
        return status_fail(from->note, STATUS_FORMAT, "%s is %lld, not within 0..%ld", key, (long long)number, max);
    *out = (int)number;
    return STATUS_OK;
}

static enum status need_int(const struct fields *from, const char *key, long max, int *out) {
    enum status status = get_int(from, key, max, 0, out);
    if (!status && *out == 0) return status_fail(from->note, STATUS_FORMAT, "%s is missing", key);
    return status;
}

/* The first of several names that is there. */
static enum status get_first(const struct fields *from, const char *const *keys, long max, int fallback, int *out) {
    for (; *keys; keys++)
        if (json_object_get(from->object, *keys)) return get_int(from, *keys, max, fallback, out);
    *out = fallback;
    return STATUS_OK;
}

static bool get_flag(const struct fields *from, const char *key, bool fallback) {
    const json_t *value = json_object_get(from->object, key);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

static const char *get_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- layers ---- */

struct attention {
    int head_dim, kv_heads, window, period, n_shared;
    int kv_rank, rope_dim, plain_dim, value_dim; /* latent attention */
    uint64_t state_elements;
};

static enum status read_state(const struct fields *from, const struct model_sizes *sizes, uint64_t *out) {
    int kernel, key_heads, value_heads, key_dim, value_dim, conv, inner, expand, state, groups;
    enum status status = get_int(from, "linear_conv_kernel_dim", 1 << 16, 0, &kernel);
    if (!status) status = get_int(from, "linear_num_key_heads", 1 << 16, 0, &key_heads);
    if (!status) status = get_int(from, "linear_num_value_heads", 1 << 16, 0, &value_heads);
    if (!status) status = get_int(from, "linear_key_head_dim", 1 << 16, 0, &key_dim);
    if (!status) status = get_int(from, "linear_value_head_dim", 1 << 16, 0, &value_dim);
    if (!status) status = get_int(from, "conv_L_cache", 1 << 16, 0, &conv);
    if (!status)
        status = get_first(from, (const char *const[]){"mamba_d_conv", "conv_kernel", NULL}, 1 << 16, 0, &inner);
    int mamba_conv = status ? 0 : inner;
    if (!status) status = get_first(from, (const char *const[]){"mamba_expand", "expand", NULL}, 64, 2, &expand);
    if (!status)
        status = get_first(from, (const char *const[]){"mamba_d_state", "ssm_state_size", "state_size", NULL}, 1 << 16,
                           0, &state);
    if (!status)
        status = get_first(from, (const char *const[]){"mamba_n_groups", "n_groups", NULL}, 1 << 16, 1, &groups);
    if (status) return status;
    inner = expand * sizes->d_model;
    *out = 0;
    if (kernel)
        *out = (uint64_t)(kernel - 1) *
                   (2 * (uint64_t)key_heads * (uint64_t)key_dim + (uint64_t)value_heads * (uint64_t)value_dim) +
               (uint64_t)value_heads * (uint64_t)key_dim * (uint64_t)value_dim;
    else if (conv)
        *out = (uint64_t)(conv - 1) * (uint64_t)sizes->d_model;
    else if (mamba_conv)
        *out = (uint64_t)(mamba_conv - 1) * ((uint64_t)inner + 2 * (uint64_t)groups * (uint64_t)state) +
               (uint64_t)inner * (uint64_t)state;
    return STATUS_OK;
}

static enum status read_attention(const struct fields *from, struct model_sizes *sizes, struct attention *out) {
    *out = (struct attention){0};
    enum status status = need_int(from, "num_attention_heads", GGUF_CHECK_MAX_HEADS, &sizes->n_heads);
    if (!status) status = get_int(from, "num_key_value_heads", GGUF_CHECK_MAX_HEADS, sizes->n_heads, &out->kv_heads);
    if (!status) status = get_int(from, "head_dim", 1 << 16, sizes->d_model / sizes->n_heads, &out->head_dim);
    if (!status) status = get_int(from, "sliding_window", 1 << 24, 0, &out->window);
    if (!status)
        status = get_first(from, (const char *const[]){"sliding_window_pattern", "_sliding_window_pattern", NULL},
                           MODEL_SIZES_MAX_LAYERS, 0, &out->period);
    if (!status) status = get_int(from, "num_kv_shared_layers", sizes->n_layers, 0, &out->n_shared);
    if (!status) status = get_int(from, "kv_lora_rank", GGUF_CHECK_MAX_WIDTH, 0, &out->kv_rank);
    if (!status) status = get_int(from, "qk_rope_head_dim", 1 << 16, 0, &out->rope_dim);
    if (!status) status = get_int(from, "qk_nope_head_dim", 1 << 16, 0, &out->plain_dim);
    if (!status) status = get_int(from, "v_head_dim", 1 << 16, 0, &out->value_dim);
    if (!status) status = read_state(from, sizes, &out->state_elements);
    if (!get_flag(from, "use_sliding_window", true)) out->window = 0;
    return status;
}

/* What kind a layer is by name; the first word of the names that are in use. */
static enum status layer_of_type(const struct fields *from, const struct attention *attention, const char *type,
                                 int layer_idx, struct layer_sizes *layer) {
    if (strncmp(type, "full", 4) == 0 || strncmp(type, "attention", 9) == 0 || strncmp(type, "global", 6) == 0) {
        layer->window = 0;
    } else if (strncmp(type, "sliding", 7) == 0 || strncmp(type, "chunked", 7) == 0 || strncmp(type, "local", 5) == 0) {
        if (!attention->window)
            return status_fail(from->note, STATUS_FORMAT, "layer_types[%d] is '%s', but sliding_window is missing",
                               layer_idx, type);
        layer->window = attention->window;
    } else if (strncmp(type, "linear", 6) == 0 || strncmp(type, "conv", 4) == 0 || strncmp(type, "mamba", 5) == 0 ||
               strncmp(type, "recurrent", 9) == 0) {
        *layer = (struct layer_sizes){.kind = LAYER_STATE, .state_elements = attention->state_elements};
    } else {
        return status_fail(from->note, STATUS_FORMAT, "layer_types[%d] is '%.40s', which is unknown", layer_idx, type);
    }
    return STATUS_OK;
}

static enum status place_windows(const struct fields *from, const struct attention *attention,
                                 struct model_sizes *sizes) {
    const json_t *types = json_object_get(from->object, "layer_types");
    if (!json_is_array(types)) types = json_object_get(from->object, "layers_block_type");
    if (json_is_array(types)) {
        if (json_array_size(types) < (size_t)sizes->n_layers)
            return status_fail(from->note, STATUS_FORMAT, "layer_types has %zu entries for %d layers",
                               json_array_size(types), sizes->n_layers);
        for (int i = 0; i < sizes->n_layers; i++) {
            const char *type = json_string_value(json_array_get(types, (size_t)i));
            enum status status = layer_of_type(from, attention, type ? type : "", i, &sizes->layers[i]);
            if (status) return status;
        }
        return STATUS_OK;
    }
    if (!attention->window) return STATUS_OK;
    for (int i = 0; i < sizes->n_layers; i++)
        if (!attention->period || i % attention->period != attention->period - 1)
            sizes->layers[i].window = attention->window;
    if (!attention->period)
        snprintf(sizes->doubt, sizeof sizes->doubt,
                 "sliding_window is %d without layer_types or a pattern: all layers are counted as having it",
                 attention->window);
    return STATUS_OK;
}

static enum status read_layers(const struct fields *from, struct model_sizes *sizes) {
    struct attention attention;
    enum status status = read_attention(from, sizes, &attention);
    if (status) return status;
    for (int i = 0; i < sizes->n_layers; i++) {
        struct layer_sizes *layer = &sizes->layers[i];
        *layer = (struct layer_sizes){.kind = LAYER_KEYS,
                                      .n_kv_heads = attention.kv_heads,
                                      .k_dim = attention.head_dim,
                                      .v_dim = attention.head_dim,
                                      .score_dim = attention.head_dim,
                                      .mix_dim = attention.head_dim};
        if (attention.kv_rank)
            *layer = (struct layer_sizes){.kind = LAYER_LATENT,
                                          .n_kv_heads = 1,
                                          .k_dim = attention.kv_rank + attention.rope_dim,
                                          .score_dim = attention.plain_dim + attention.rope_dim,
                                          .mix_dim = attention.value_dim};
        if (i >= sizes->n_layers - attention.n_shared) layer->kind = LAYER_SHARED;
    }
    return place_windows(from, &attention, sizes);
}

/* ---- products and bytes ---- */

static double bits_of(const json_t *object) {
    const json_t *quantization = json_object_get(object, "quantization_config");
    const char *type = get_text(object, "torch_dtype");
    if (json_is_integer(json_object_get(quantization, "bits")))
        return (double)json_integer_value(json_object_get(quantization, "bits"));
    if (strncmp(get_text(quantization, "quant_method"), "fp8", 3) == 0) return 8;
    if (!*type) type = get_text(object, "dtype");
    return strcmp(type, "float32") == 0 ? 32 : strncmp(type, "float8", 6) == 0 ? 8 : 16;
}

static enum status read_products(const struct fields *from, struct model_sizes *sizes) {
    static const char *const expert_keys[] = {"num_local_experts", "n_routed_experts", "num_experts", NULL};
    int d_ff, d_expert, n_experts, n_used, n_shared, n_dense;
    enum status status = get_int(from, "intermediate_size", GGUF_CHECK_MAX_WIDTH, 4 * sizes->d_model, &d_ff);
    if (!status) status = get_int(from, "moe_intermediate_size", GGUF_CHECK_MAX_WIDTH, d_ff, &d_expert);
    if (!status) status = get_first(from, expert_keys, 1 << 16, 0, &n_experts);
    if (!status) status = get_int(from, "num_experts_per_tok", 1 << 16, n_experts, &n_used);
    if (!status) status = get_int(from, "n_shared_experts", 1 << 16, 0, &n_shared);
    if (!status) status = get_int(from, "first_k_dense_replace", sizes->n_layers, 0, &n_dense);
    if (status) return status;
    double n_parameters = 0;
    for (int i = 0; i < sizes->n_layers; i++) {
        double attention = model_sizes_attention_macs(sizes, &sizes->layers[i]), dense = 0, all = 0, used = 0;
        if (n_experts && i >= n_dense) {
            all = model_sizes_feed_macs(sizes, (double)d_expert * (n_experts + n_shared));
            used = model_sizes_feed_macs(sizes, (double)d_expert * (n_used + n_shared));
        } else {
            dense = model_sizes_feed_macs(sizes, d_ff);
        }
        sizes->row_macs += attention + dense + used;
        n_parameters += attention + dense + all;
    }
    model_sizes_estimate_bytes(sizes, n_parameters, bits_of(from->object),
                               get_flag(from, "tie_word_embeddings", false));
    return STATUS_OK;
}

/* ---- files ---- */

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool hf_config_is_path(const char *path) {
    char inside[MAX_PATH_BYTES];
    struct stat st;
    size_t n = strlen(path);
    if (n >= 5 && strcmp(path + n - 5, ".json") == 0) return true;
    snprintf(inside, sizeof inside, "%s/config.json", path);
    return is_folder(path) && stat(inside, &st) == 0;
}

static enum status load(const char *path, json_t **out, struct status_note *note) {
    json_error_t error;
    struct stat st;
    if (stat(path, &st) != 0) return status_fail(note, STATUS_IO, "%s cannot be read", path);
    if (st.st_size > MAX_CONFIG_BYTES)
        return status_fail(note, STATUS_FORMAT, "%s has %lld bytes, more than any configuration", path,
                           (long long)st.st_size);
    *out = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!*out) return status_fail(note, STATUS_FORMAT, "%s, line %d: %s", path, error.line, error.text);
    if (json_is_object(*out)) return STATUS_OK;
    json_decref(*out);
    return status_fail(note, STATUS_FORMAT, "%s is no JSON object", path);
}

/* What the folder's weights take, if it has any: better than an estimate. */
static void measure_weights(struct model_sizes *sizes, const char *folder) {
    char path[MAX_PATH_BYTES];
    struct stat st;
    json_t *index;
    uint64_t n_bytes = 0;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    if (load(path, &index, NULL) == STATUS_OK) {
        const json_t *size = json_object_get(json_object_get(index, "metadata"), "total_size");
        if (json_is_number(size) && json_number_value(size) > 0) n_bytes = (uint64_t)json_number_value(size);
        json_decref(index);
    } else {
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        if (stat(path, &st) == 0) n_bytes = (uint64_t)st.st_size;
    }
    if (!n_bytes || !sizes->weight_bytes) return;
    sizes->step_bytes = (uint64_t)((double)sizes->step_bytes * (double)n_bytes / (double)sizes->weight_bytes);
    sizes->weight_bytes = n_bytes;
}

static enum status read_object(struct model_sizes *sizes, json_t *root, struct status_note *note) {
    json_t *part = json_object_get(root, "text_config");
    struct fields from = {json_is_object(part) ? part : root, note};
    const char *type = get_text(from.object, "model_type");
    snprintf(sizes->arch, sizeof sizes->arch, "%.31s", *type ? type : get_text(root, "model_type"));
    enum status status = need_int(&from, "num_hidden_layers", MODEL_SIZES_MAX_LAYERS, &sizes->n_layers);
    if (!status) status = need_int(&from, "hidden_size", GGUF_CHECK_MAX_WIDTH, &sizes->d_model);
    if (!status) status = get_int(&from, "vocab_size", 1 << 24, 0, &sizes->n_vocab);
    if (!status) status = get_int(&from, "max_position_embeddings", 1 << 28, 0, &sizes->max_context);
    if (!status) status = read_layers(&from, sizes);
    return status ? status : read_products(&from, sizes);
}

enum status hf_config_read(struct model_sizes *sizes, const char *path, struct status_note *note) {
    char file[MAX_PATH_BYTES];
    json_t *root;
    *sizes = (struct model_sizes){0};
    snprintf(file, sizeof file, "%s%s", path, is_folder(path) ? "/config.json" : "");
    enum status status = load(file, &root, note);
    if (status) return status;
    status = read_object(sizes, root, note);
    if (status)
        status_note_prefix(note, file);
    else if (is_folder(path))
        measure_weights(sizes, path);
    snprintf(sizes->name, sizeof sizes->name, "%.127s", get_text(root, "_name_or_path"));
    json_decref(root);
    return status;
}
