#include "cmd/kv_type.h"

#include <string.h>

static const struct {
    const char *name;
    enum dtype dtype;
} types[] = {{"int8", DTYPE_I8}, {"q8_0", DTYPE_Q8_0}, {"f16", DTYPE_F16}, {"f32", DTYPE_F32}};

#define N_TYPES (sizeof types / sizeof types[0])

/* What other servers take: names that begin so, and what to use here. */
static const struct {
    const char *prefix, *why;
} foreign[] = {
    {"fp8",
     "8 bits with an exponent of their own keep 2 or 3 binary digits of a value, and this CPU would have to widen "
     "each before it multiplies; q8_0 (or int8) takes as much memory and keeps 7, in integer dots"},
    {"q4_", "4 bits of K and V are not kept here, answers suffer; the smallest are q8_0 and int8"},
    {"q5_", "5 bits of K and V are not kept here, answers suffer; the smallest are q8_0 and int8"},
    {"iq4_", "4 bits of K and V are not kept here, answers suffer; the smallest are q8_0 and int8"},
    {"nvfp4", "4 bits of K and V are not kept here, answers suffer; the smallest are q8_0 and int8"},
    {"bf16", "f16 takes as much memory and keeps 3 binary digits more; or q8_0, half of it"},
    {"bfloat16", "f16 takes as much memory and keeps 3 binary digits more; or q8_0, half of it"}};

const char *kv_type_name(enum dtype dtype) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return NULL;
}

enum status kv_type_parse(const char *option, const char *name, enum dtype *out, struct status_note *note) {
    for (size_t i = 0; i < N_TYPES; i++) {
        if (strcmp(name, types[i].name) != 0) continue;
        *out = types[i].dtype;
        return STATUS_OK;
    }
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (strncmp(name, foreign[i].prefix, strlen(foreign[i].prefix)) == 0)
            return status_fail(note, STATUS_INVALID, "%s: no '%s': %s", option, name, foreign[i].why);
    return status_fail(note, STATUS_INVALID, "%s: '%s' is unknown (known: int8, q8_0, f16, f32)", option, name);
}

enum status kv_type_check_head(const char *option, enum dtype dtype, int head_dim, struct status_note *note) {
    int block = dtype_block_elements(dtype);
    if (head_dim % block == 0) return STATUS_OK;
    return status_fail(note, STATUS_INVALID,
                       "attention.key_length %d: %s %s needs a multiple of %d; int8 takes such heads, or f16", head_dim,
                       option, kv_type_name(dtype), block);
}

enum status kv_type_check_sizes(const char *option, enum dtype dtype, const struct model_sizes *sizes,
                                struct status_note *note) {
    enum status status = STATUS_OK;
    for (int i = 0; i < sizes->n_layers && !status; i++) {
        const struct layer_sizes *layer = &sizes->layers[i];
        if (layer->kind != LAYER_KEYS && layer->kind != LAYER_LATENT) continue;
        status = kv_type_check_head(option, dtype, layer->k_dim, note);
        if (!status) status = kv_type_check_head(option, dtype, layer->v_dim, note);
    }
    if (status) status_note_prefix(note, sizes->name);
    return status;
}
