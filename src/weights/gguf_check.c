#include "weights/gguf_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "weights/name_table.h"

#define MAX_KEY_BYTES 160

enum kind { KIND_COUNT, KIND_COUNT_OR_LAYERS, KIND_REAL };

/* Keys below the architecture's prefix; min and max of the value, or of each item of a per-layer array. */
static const struct rule {
    const char *suffix;
    enum kind kind;
    double min, max;
} rules[] = {
    {"block_count", KIND_COUNT, 1, GGUF_CHECK_MAX_LAYERS},
    {"embedding_length", KIND_COUNT, 1, GGUF_CHECK_MAX_WIDTH},
    {"context_length", KIND_COUNT, 1, INT32_MAX},
    {"vocab_size", KIND_COUNT, 1, INT32_MAX},
    {"feed_forward_length", KIND_COUNT_OR_LAYERS, 0, 16 * GGUF_CHECK_MAX_WIDTH},
    {"attention.head_count", KIND_COUNT_OR_LAYERS, 1, GGUF_CHECK_MAX_HEADS},
    {"attention.head_count_kv", KIND_COUNT_OR_LAYERS, 1, GGUF_CHECK_MAX_HEADS},
    {"attention.key_length", KIND_COUNT, 1, GGUF_CHECK_MAX_WIDTH},
    {"attention.value_length", KIND_COUNT, 1, GGUF_CHECK_MAX_WIDTH},
    {"attention.sliding_window", KIND_COUNT, 0, UINT32_MAX},
    {"attention.layer_norm_rms_epsilon", KIND_REAL, 0, 1},
    {"attention.layer_norm_epsilon", KIND_REAL, 0, 1},
    {"rope.dimension_count", KIND_COUNT, 1, GGUF_CHECK_MAX_WIDTH},
    {"rope.freq_base", KIND_REAL, 1e-6, 1e30},
    {"rope.freq_base_swa", KIND_REAL, 1e-6, 1e30},
    {"rope.scaling.factor", KIND_REAL, 0, 1e9},
    {"rope.scaling.original_context_length", KIND_COUNT, 1, INT32_MAX},
    {"expert_count", KIND_COUNT, 0, GGUF_CHECK_MAX_HEADS},
    {"expert_used_count", KIND_COUNT, 0, GGUF_CHECK_MAX_HEADS},
    {"expert_feed_forward_length", KIND_COUNT, 0, 16 * GGUF_CHECK_MAX_WIDTH},
};

struct prefix {
    char text[GGUF_CHECK_MAX_ARCHITECTURE_BYTES + 1];
};

static const char *full_key(const struct prefix *prefix, const char *suffix, char out[MAX_KEY_BYTES]) {
    snprintf(out, MAX_KEY_BYTES, "%s.%s", prefix->text, suffix);
    return out;
}

static bool is_int_array(const struct gguf_array *array) {
    return array->item_type != GGUF_TEXT && array->item_type != GGUF_F32 && array->item_type != GGUF_F64 &&
           array->item_type != GGUF_BOOL;
}

/* A per-layer array: one item a layer; 0 marks a layer that has none (a layer without attention). */
static enum status check_layers(const struct gguf *gguf, const struct prefix *prefix, const struct rule *rule,
                                const char *key, struct status_note *note) {
    struct gguf_array array;
    uint64_t n_layers = 0;
    char layers_key[MAX_KEY_BYTES];
    if (gguf_get_array(gguf, key, &array, note)) return STATUS_FORMAT;
    if (!is_int_array(&array))
        return status_fail(note, STATUS_FORMAT, "key '%s': array of %s, not of integers", key,
                           gguf_type_name(array.item_type));
    full_key(prefix, "block_count", layers_key);
    if (gguf_has(gguf, layers_key)) {
        if (gguf_get_u64(gguf, layers_key, &n_layers, note)) return STATUS_FORMAT;
        if (array.n_items != n_layers)
            return status_fail(note, STATUS_FORMAT, "key '%s': %" PRIu64 " items for %" PRIu64 " layers", key,
                               array.n_items, n_layers);
    }
    if (array.n_items > GGUF_CHECK_MAX_LAYERS)
        return status_fail(note, STATUS_FORMAT, "key '%s': %" PRIu64 " items, more than %d layers", key, array.n_items,
                           GGUF_CHECK_MAX_LAYERS);
    bool any = false;
    for (uint64_t i = 0; i < array.n_items; i++) {
        int64_t value = gguf_array_int(&array, i);
        if (value < 0 || (double)value > rule->max)
            return status_fail(note, STATUS_FORMAT, "key '%s': item %" PRIu64 " is %" PRId64 ", not 0 to %.0f", key, i,
                               value, rule->max);
        any = any || value > 0;
    }
    if (!any && rule->min > 0) return status_fail(note, STATUS_FORMAT, "key '%s': all items are 0", key);
    return STATUS_OK;
}

static enum status check_rule(const struct gguf *gguf, const struct prefix *prefix, const struct rule *rule,
                              struct status_note *note) {
    char key[MAX_KEY_BYTES];
    enum gguf_type type;
    if (!gguf_type_of(gguf, full_key(prefix, rule->suffix, key), &type)) return STATUS_OK;
    if (rule->kind == KIND_REAL) {
        double real;
        if (gguf_get_f64(gguf, key, &real, note)) return STATUS_FORMAT;
        if (!(real >= rule->min && real <= rule->max)) /* NaN as well */
            return status_fail(note, STATUS_FORMAT, "key '%s': %g is not from %g to %g", key, real, rule->min,
                               rule->max);
        return STATUS_OK;
    }
    if (type == GGUF_ARRAY && rule->kind == KIND_COUNT_OR_LAYERS) return check_layers(gguf, prefix, rule, key, note);
    uint64_t count;
    if (gguf_get_u64(gguf, key, &count, note)) return STATUS_FORMAT;
    if (count < (uint64_t)rule->min || count > (uint64_t)rule->max)
        return status_fail(note, STATUS_FORMAT, "key '%s': %" PRIu64 " is not from %.0f to %.0f", key, count, rule->min,
                           rule->max);
    return STATUS_OK;
}

/* ---- How keys fit together; each by itself has passed its rule ---- */

/* One number a layer, whether the key is a scalar or an array; n_items is 0 for a scalar. */
struct per_layer {
    struct gguf_array array;
    uint64_t scalar;
    bool is_array;
};

static bool load_per_layer(const struct gguf *gguf, const char *key, struct per_layer *out) {
    enum gguf_type type;
    *out = (struct per_layer){0};
    if (!gguf_type_of(gguf, key, &type)) return false;
    out->is_array = type == GGUF_ARRAY;
    return out->is_array ? gguf_get_array(gguf, key, &out->array, NULL) == STATUS_OK
                         : gguf_get_u64(gguf, key, &out->scalar, NULL) == STATUS_OK;
}

static uint64_t at_layer(const struct per_layer *p, uint64_t layer_idx) {
    return p->is_array ? (uint64_t)gguf_array_int(&p->array, layer_idx) : p->scalar;
}

static enum status check_head_counts(const struct gguf *gguf, const struct prefix *prefix, struct status_note *note) {
    char key[MAX_KEY_BYTES], kv_key[MAX_KEY_BYTES];
    struct per_layer heads, kv_heads;
    if (!load_per_layer(gguf, full_key(prefix, "attention.head_count", key), &heads)) return STATUS_OK;
    if (!load_per_layer(gguf, full_key(prefix, "attention.head_count_kv", kv_key), &kv_heads)) return STATUS_OK;
    if (heads.is_array && kv_heads.is_array && heads.array.n_items != kv_heads.array.n_items)
        return status_fail(note, STATUS_FORMAT, "key '%s': %" PRIu64 " items, but %s has %" PRIu64, kv_key,
                           kv_heads.array.n_items, key, heads.array.n_items);
    uint64_t n = heads.is_array ? heads.array.n_items : kv_heads.is_array ? kv_heads.array.n_items : 1;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t n_heads = at_layer(&heads, i), n_kv_heads = at_layer(&kv_heads, i);
        if (n_kv_heads && n_heads % n_kv_heads)
            return status_fail(note, STATUS_FORMAT, "key '%s': %" PRIu64 " does not divide the %" PRIu64 " heads of %s",
                               kv_key, n_kv_heads, n_heads, key);
    }
    return STATUS_OK;
}

static enum status check_head_width(const struct gguf *gguf, const struct prefix *prefix, struct status_note *note) {
    char key[MAX_KEY_BYTES], width_key[MAX_KEY_BYTES];
    uint64_t n_heads, width;
    if (gguf_has(gguf, full_key(prefix, "attention.key_length", key))) return STATUS_OK;
    if (gguf_get_u64(gguf, full_key(prefix, "attention.head_count", key), &n_heads, NULL)) return STATUS_OK;
    if (gguf_get_u64(gguf, full_key(prefix, "embedding_length", width_key), &width, NULL)) return STATUS_OK;
    if (width % n_heads == 0) return STATUS_OK;
    return status_fail(note, STATUS_FORMAT, "key '%s': %" PRIu64 " heads do not divide %s %" PRIu64, key, n_heads,
                       width_key, width);
}

static enum status check_experts(const struct gguf *gguf, const struct prefix *prefix, struct status_note *note) {
    char key[MAX_KEY_BYTES], used_key[MAX_KEY_BYTES];
    uint64_t n_experts, n_used;
    if (gguf_get_u64(gguf, full_key(prefix, "expert_count", key), &n_experts, NULL)) return STATUS_OK;
    if (gguf_get_u64(gguf, full_key(prefix, "expert_used_count", used_key), &n_used, NULL)) return STATUS_OK;
    if (n_used <= n_experts) return STATUS_OK;
    return status_fail(note, STATUS_FORMAT, "key '%s': %" PRIu64 " is more than %s %" PRIu64, used_key, n_used, key,
                       n_experts);
}

/* ---- The tokenizer's arrays ---- */

enum items { ITEMS_TEXT, ITEMS_INT, ITEMS_REAL };

static enum status check_array(const struct gguf *gguf, const char *key, enum items wanted, const uint64_t *n_wanted,
                               uint64_t *out_n, struct status_note *note) {
    struct gguf_array array;
    if (!gguf_has(gguf, key)) return STATUS_OK;
    if (gguf_get_array(gguf, key, &array, note)) return STATUS_FORMAT;
    bool is_real = array.item_type == GGUF_F32 || array.item_type == GGUF_F64;
    bool fits = wanted == ITEMS_TEXT   ? array.item_type == GGUF_TEXT
                : wanted == ITEMS_REAL ? is_real
                                       : is_int_array(&array);
    if (!fits)
        return status_fail(note, STATUS_FORMAT, "key '%s': array of %s, not of %s", key,
                           gguf_type_name(array.item_type),
                           wanted == ITEMS_TEXT   ? "texts"
                           : wanted == ITEMS_REAL ? "reals"
                                                  : "integers");
    if (array.n_items > INT32_MAX)
        return status_fail(note, STATUS_FORMAT, "key '%s': %" PRIu64 " items are too many", key, array.n_items);
    if (n_wanted && array.n_items != *n_wanted)
        return status_fail(note, STATUS_FORMAT, "key '%s': %" PRIu64 " items for %" PRIu64 " tokens", key,
                           array.n_items, *n_wanted);
    if (out_n) *out_n = array.n_items;
    return STATUS_OK;
}

static enum status check_tokenizer(const struct gguf *gguf, struct status_note *note) {
    uint64_t n_tokens = 0;
    const uint64_t *n_wanted = gguf_has(gguf, "tokenizer.ggml.tokens") ? &n_tokens : NULL;
    struct gguf_text text;
    enum status status = check_array(gguf, "tokenizer.ggml.tokens", ITEMS_TEXT, NULL, &n_tokens, note);
    if (!status) status = check_array(gguf, "tokenizer.ggml.token_type", ITEMS_INT, n_wanted, NULL, note);
    if (!status) status = check_array(gguf, "tokenizer.ggml.scores", ITEMS_REAL, n_wanted, NULL, note);
    if (!status) status = check_array(gguf, "tokenizer.ggml.merges", ITEMS_TEXT, NULL, NULL, note);
    static const char *const text_keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.chat_template"};
    for (size_t i = 0; i < sizeof text_keys / sizeof text_keys[0] && !status; i++)
        if (gguf_has(gguf, text_keys[i]) && gguf_get_text(gguf, text_keys[i], &text, note)) status = STATUS_FORMAT;
    return status;
}

/* ---- The whole ---- */

static enum status read_prefix(const struct gguf *gguf, struct prefix *out, struct status_note *note) {
    struct gguf_text name;
    if (gguf_get_text(gguf, "general.architecture", &name, note)) return STATUS_FORMAT;
    if (name.n_bytes > GGUF_CHECK_MAX_ARCHITECTURE_BYTES)
        return status_fail(note, STATUS_FORMAT, "key 'general.architecture': %zu bytes are too many for a name",
                           name.n_bytes);
    const char *fault = name_table_name_fault(name.ptr, name.n_bytes);
    if (fault) return status_fail(note, STATUS_FORMAT, "key 'general.architecture': the name %s", fault);
    snprintf(out->text, sizeof out->text, "%.*s", (int)name.n_bytes, name.ptr);
    return STATUS_OK;
}

enum status gguf_check_model_keys(const struct gguf *gguf, struct status_note *note) {
    struct prefix prefix;
    enum status status = STATUS_OK;
    if (gguf_has(gguf, "general.architecture")) {
        status = read_prefix(gguf, &prefix, note);
        for (size_t i = 0; i < sizeof rules / sizeof rules[0] && !status; i++)
            status = check_rule(gguf, &prefix, &rules[i], note);
        if (!status) status = check_head_counts(gguf, &prefix, note);
        if (!status) status = check_head_width(gguf, &prefix, note);
        if (!status) status = check_experts(gguf, &prefix, note);
    }
    return status ? status : check_tokenizer(gguf, note);
}
