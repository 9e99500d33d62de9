#include "weights/gguf.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "weights/gguf_parse.h"

/* ---- Types ---- */

static const struct {
    const char *name;
    int n_bytes; /* of one value; 0 where it varies */
} types[GGUF_N_TYPES] = {
    [GGUF_U8] = {"U8", 1},     [GGUF_I8] = {"I8", 1},       [GGUF_U16] = {"U16", 2}, [GGUF_I16] = {"I16", 2},
    [GGUF_U32] = {"U32", 4},   [GGUF_I32] = {"I32", 4},     [GGUF_F32] = {"F32", 4}, [GGUF_BOOL] = {"BOOL", 1},
    [GGUF_TEXT] = {"TEXT", 0}, [GGUF_ARRAY] = {"ARRAY", 0}, [GGUF_U64] = {"U64", 8}, [GGUF_I64] = {"I64", 8},
    [GGUF_F64] = {"F64", 8},
};

const char *gguf_type_name(enum gguf_type type) {
    return (unsigned)type < GGUF_N_TYPES ? types[type].name : "?";
}

/* The integer at p, sign-extended; U64 above INT64_MAX comes out negative (the caller knows the type). */
static int64_t load_int(enum gguf_type type, const uint8_t *p) {
    uint64_t bits = 0;
    memcpy(&bits, p, (size_t)types[type].n_bytes);
    switch (type) {
    case GGUF_I8: return (int8_t)bits;
    case GGUF_I16: return (int16_t)bits;
    case GGUF_I32: return (int32_t)bits;
    default: return (int64_t)bits;
    }
}

static double load_real(enum gguf_type type, const uint8_t *p) {
    double wide;
    float narrow;
    if (type == GGUF_F64) {
        memcpy(&wide, p, sizeof wide);
        return wide;
    }
    memcpy(&narrow, p, sizeof narrow);
    return (double)narrow;
}

static bool is_integer(enum gguf_type type) {
    return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_TEXT && type != GGUF_ARRAY && type != GGUF_BOOL;
}

/* ---- Open and close ---- */

enum status gguf_open_bytes(struct gguf **out_gguf, const uint8_t *bytes, size_t n_bytes, struct status_note *note) {
    *out_gguf = NULL;
    struct gguf *gguf = mem_alloc(sizeof *gguf);
    if (!gguf) return status_fail(note, STATUS_NOMEM, "no memory for the file's tables");
    gguf->bytes = bytes ? bytes : (const uint8_t *)"";
    gguf->n_bytes = bytes ? n_bytes : 0;
    enum status status = gguf_parse(gguf, note);
    if (status)
        gguf_close(&gguf);
    else
        *out_gguf = gguf;
    return status;
}

enum status gguf_open(struct gguf **out_gguf, const char *path, struct status_note *note) {
    *out_gguf = NULL;
    struct file_map map;
    enum status status = file_map_open(&map, path, note);
    if (status) return status;
    status = gguf_open_bytes(out_gguf, map.bytes, map.n_bytes, note);
    if (status)
        file_map_close(&map);
    else
        (*out_gguf)->map = map;
    return status;
}

void gguf_close(struct gguf **gguf) {
    struct gguf *g = *gguf;
    if (!g) return;
    name_table_deinit(&g->key_table);
    name_table_deinit(&g->tensor_table);
    mem_free(g->keys);
    mem_free(g->tensors);
    file_map_close(&g->map);
    mem_free(g);
    *gguf = NULL;
}

/* ---- The file ---- */

uint32_t gguf_version(const struct gguf *gguf) {
    return gguf->version;
}

uint64_t gguf_file_bytes(const struct gguf *gguf) {
    return gguf->n_bytes;
}

uint64_t gguf_alignment_bytes(const struct gguf *gguf) {
    return gguf->alignment_bytes;
}

uint64_t gguf_data_off(const struct gguf *gguf) {
    return gguf->data_off;
}

size_t gguf_release_tensors(const struct gguf *gguf, size_t off, size_t n_bytes) {
    size_t all_bytes = gguf->n_bytes - gguf->data_off;
    REQUIRE(off <= all_bytes);
    if (n_bytes > all_bytes - off) n_bytes = all_bytes - off;
    if (gguf->map.bytes) file_map_release(&gguf->map, gguf->data_off + off, n_bytes);
    return n_bytes;
}

/* ---- Key-values ---- */

size_t gguf_n_keys(const struct gguf *gguf) {
    return gguf->n_keys;
}

struct gguf_text gguf_key(const struct gguf *gguf, size_t key_idx, enum gguf_type *out_type) {
    REQUIRE(key_idx < gguf->n_keys);
    *out_type = gguf->keys[key_idx].type;
    return gguf->keys[key_idx].name;
}

static const struct gguf_key_value *find_key(const struct gguf *gguf, const char *key) {
    uint32_t idx;
    return name_table_find(&gguf->key_table, key, strlen(key), &idx) ? &gguf->keys[idx] : NULL;
}

bool gguf_has(const struct gguf *gguf, const char *key) {
    return find_key(gguf, key) != NULL;
}

bool gguf_type_of(const struct gguf *gguf, const char *key, enum gguf_type *out_type) {
    const struct gguf_key_value *kv = find_key(gguf, key);
    if (kv) *out_type = kv->type;
    return kv != NULL;
}

static enum status fail_missing(const char *key, struct status_note *note) {
    return status_fail(note, STATUS_INVALID, "key '%s' is missing", key);
}

static enum status fail_kind(const struct gguf_key_value *kv, const char *key, const char *wanted,
                             struct status_note *note) {
    return status_fail(note, STATUS_INVALID, "key '%s' is %s, not %s", key, gguf_type_name(kv->type), wanted);
}

enum status gguf_get_u64(const struct gguf *gguf, const char *key, uint64_t *out, struct status_note *note) {
    const struct gguf_key_value *kv = find_key(gguf, key);
    if (!kv) return fail_missing(key, note);
    if (!is_integer(kv->type)) return fail_kind(kv, key, "an integer", note);
    int64_t value = load_int(kv->type, kv->value);
    if (value < 0 && kv->type != GGUF_U64)
        return status_fail(note, STATUS_INVALID, "key '%s' is %" PRId64 ", below 0", key, value);
    *out = (uint64_t)value;
    return STATUS_OK;
}

enum status gguf_get_f64(const struct gguf *gguf, const char *key, double *out, struct status_note *note) {
    const struct gguf_key_value *kv = find_key(gguf, key);
    if (!kv) return fail_missing(key, note);
    if (kv->type != GGUF_F32 && kv->type != GGUF_F64) return fail_kind(kv, key, "F32 or F64", note);
    *out = load_real(kv->type, kv->value);
    return STATUS_OK;
}

enum status gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, struct status_note *note) {
    const struct gguf_key_value *kv = find_key(gguf, key);
    if (!kv) return fail_missing(key, note);
    if (kv->type != GGUF_BOOL) return fail_kind(kv, key, "BOOL", note);
    *out = kv->value[0] != 0;
    return STATUS_OK;
}

enum status gguf_get_text(const struct gguf *gguf, const char *key, struct gguf_text *out, struct status_note *note) {
    const struct gguf_key_value *kv = find_key(gguf, key);
    if (!kv) return fail_missing(key, note);
    if (kv->type != GGUF_TEXT) return fail_kind(kv, key, "TEXT", note);
    *out = (struct gguf_text){.ptr = (const char *)kv->value, .n_bytes = kv->n_bytes};
    return STATUS_OK;
}

enum status gguf_get_array(const struct gguf *gguf, const char *key, struct gguf_array *out, struct status_note *note) {
    const struct gguf_key_value *kv = find_key(gguf, key);
    if (!kv) return fail_missing(key, note);
    if (kv->type != GGUF_ARRAY) return fail_kind(kv, key, "ARRAY", note);
    *out = (struct gguf_array){
        .item_type = kv->item_type, .n_items = kv->n_items, .bytes = kv->value, .n_bytes = kv->n_bytes};
    return STATUS_OK;
}

enum status gguf_get_scalar(const struct gguf *gguf, const char *key, struct gguf_array *out,
                            struct status_note *note) {
    const struct gguf_key_value *kv = find_key(gguf, key);
    if (!kv) return fail_missing(key, note);
    if (kv->type == GGUF_TEXT || kv->type == GGUF_ARRAY) return fail_kind(kv, key, "a number", note);
    *out = (struct gguf_array){.item_type = kv->type, .n_items = 1, .bytes = kv->value, .n_bytes = kv->n_bytes};
    return STATUS_OK;
}

/* ---- Items of arrays ---- */

int64_t gguf_array_int(const struct gguf_array *array, uint64_t item_idx) {
    REQUIRE(item_idx < array->n_items);
    if (array->item_type == GGUF_F32 || array->item_type == GGUF_F64)
        BUG("an array of %s has no integers", gguf_type_name(array->item_type));
    REQUIRE(types[array->item_type].n_bytes > 0);
    return load_int(array->item_type, array->bytes + item_idx * (size_t)types[array->item_type].n_bytes);
}

double gguf_array_real(const struct gguf_array *array, uint64_t item_idx) {
    if (array->item_type != GGUF_F32 && array->item_type != GGUF_F64) return (double)gguf_array_int(array, item_idx);
    REQUIRE(item_idx < array->n_items);
    return load_real(array->item_type, array->bytes + item_idx * (size_t)types[array->item_type].n_bytes);
}

bool gguf_array_next_text(const struct gguf_array *array, size_t *cursor, struct gguf_text *out) {
    REQUIRE(array->item_type == GGUF_TEXT);
    if (*cursor >= array->n_bytes) return false;
    uint64_t n_bytes;
    REQUIRE(array->n_bytes - *cursor >= sizeof n_bytes);
    memcpy(&n_bytes, array->bytes + *cursor, sizeof n_bytes);
    *cursor += sizeof n_bytes;
    REQUIRE(n_bytes <= array->n_bytes - *cursor); /* checked at open: a broken cursor or a file changed since */
    *out = (struct gguf_text){.ptr = (const char *)array->bytes + *cursor, .n_bytes = (size_t)n_bytes};
    *cursor += (size_t)n_bytes;
    return true;
}

/* ---- Tensors ---- */

size_t gguf_n_tensors(const struct gguf *gguf) {
    return gguf->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t tensor_idx) {
    REQUIRE(tensor_idx < gguf->n_tensors);
    return &gguf->tensors[tensor_idx];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name) {
    uint32_t idx;
    return name_table_find(&gguf->tensor_table, name, strlen(name), &idx) ? &gguf->tensors[idx] : NULL;
}
