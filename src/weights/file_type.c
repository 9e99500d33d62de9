#include "weights/file_type.h"

#include <stdio.h>
#include <string.h>

static const struct file_type types[] = {
#define FILE_TYPE(name, gguf_id, matrices, output, more_bits)                                                          \
    {#name, gguf_id, DTYPE_##matrices, DTYPE_##output, DTYPE_##more_bits},
#include "weights/file_types.inc"
#undef FILE_TYPE
};

#define N_TYPES ((int)(sizeof types / sizeof types[0]))

enum status file_type_find(const char *name, struct file_type *out_type, struct status_note *note) {
    char known[160] = "";
    size_t n = 0;
    for (int i = 0; i < N_TYPES; i++) {
        if (strcmp(types[i].name, name) == 0) {
            *out_type = types[i];
            return STATUS_OK;
        }
        if (n < sizeof known) n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", types[i].name);
    }
    return status_fail(note, STATUS_INVALID, "'%.40s' is unknown (known: %s)", name, known);
}

int file_type_n(void) {
    return N_TYPES;
}

struct file_type file_type_at(int type_idx) {
    REQUIRE(type_idx >= 0 && type_idx < N_TYPES);
    return types[type_idx];
}

static bool is_text(const char *name, size_t name_bytes, const char *text) {
    return name_bytes == strlen(text) && memcmp(name, text, name_bytes) == 0;
}

static bool ends_in(const char *name, size_t name_bytes, const char *end) {
    size_t n = strlen(end);
    return name_bytes >= n && memcmp(name + name_bytes - n, end, n) == 0;
}

bool file_type_stays_f32(const char *name, size_t name_bytes, int n_dims) {
    return n_dims < 2 || !ends_in(name, name_bytes, ".weight") || ends_in(name, name_bytes, "_norm.weight") ||
           ends_in(name, name_bytes, "ffn_gate_inp.weight");
}

/* The layer of "blk.12.attn_v.weight"; -1 if there is none. */
static int layer_of(const char *name, size_t name_bytes) {
    int layer = 0;
    size_t at = 4;
    if (name_bytes < 6 || memcmp(name, "blk.", 4) != 0) return -1;
    for (; at < name_bytes && name[at] >= '0' && name[at] <= '9' && layer < 100000; at++)
        layer = layer * 10 + (name[at] - '0');
    return at > 4 && at < name_bytes && name[at] == '.' ? layer : -1;
}

/* The first and last eighth of the layers, and every third between. */
static bool gets_more_bits(int layer, int n_layers) {
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

static enum dtype with_small_blocks(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_Q4_K: return DTYPE_Q5_0;
    case DTYPE_Q5_K: return DTYPE_Q5_1;
    case DTYPE_Q6_K: return DTYPE_Q8_0;
    default: return dtype;
    }
}

enum dtype file_type_of(const struct file_type *type, const struct file_type_place *place, const char *name,
                        size_t name_bytes, uint64_t row_elements) {
    enum dtype dtype = type->matrices;
    int layer = layer_of(name, name_bytes);
    bool is_embedding = is_text(name, name_bytes, "token_embd.weight");
    if (is_text(name, name_bytes, "output.weight") || (is_embedding && place->is_tied))
        dtype = type->output;
    else if (layer >= 0 && gets_more_bits(layer, place->n_layers) &&
             (ends_in(name, name_bytes, ".attn_v.weight") || ends_in(name, name_bytes, ".ffn_down.weight")))
        dtype = type->more_bits;
    if (row_elements % (uint64_t)dtype_block_elements(dtype)) dtype = with_small_blocks(dtype);
    return row_elements % (uint64_t)dtype_block_elements(dtype) ? DTYPE_F16 : dtype;
}
