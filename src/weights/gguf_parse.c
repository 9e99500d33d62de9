#include "weights/gguf_parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers are read as they lie in the file: little endian"
#endif

#define MIN_KEY_BYTES 14    /* length 8, name 1, type 4, value 1 */
#define MIN_TENSOR_BYTES 33 /* length 8, name 1, n_dims 4, one dim 8, type 4, offset 8 */
#define MIN_ALIGNMENT_BYTES 8

#define QUOTE(text) name_table_quoted_bytes((text).ptr, (text).n_bytes), (text).ptr

/* Bytes of one value; 0 where it varies. */
static const uint8_t type_bytes[GGUF_N_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* ---- A cursor that cannot leave the file ---- */

struct cursor {
    const uint8_t *at, *end;
};

static size_t bytes_left(const struct cursor *cursor) {
    return (size_t)(cursor->end - cursor->at);
}

static bool read_u32(struct cursor *cursor, uint32_t *out) {
    if (bytes_left(cursor) < sizeof *out) return false;
    memcpy(out, cursor->at, sizeof *out);
    cursor->at += sizeof *out;
    return true;
}

static bool read_u64(struct cursor *cursor, uint64_t *out) {
    if (bytes_left(cursor) < sizeof *out) return false;
    memcpy(out, cursor->at, sizeof *out);
    cursor->at += sizeof *out;
    return true;
}

/* On false *out_n_bytes is what the file claims, or bytes_left if even the length is cut. */
static bool read_text(struct cursor *cursor, struct gguf_text *out, uint64_t *out_n_bytes) {
    *out_n_bytes = bytes_left(cursor);
    if (!read_u64(cursor, out_n_bytes) || *out_n_bytes > bytes_left(cursor)) return false;
    *out = (struct gguf_text){.ptr = (const char *)cursor->at, .n_bytes = (size_t)*out_n_bytes};
    cursor->at += *out_n_bytes;
    return true;
}

/* ---- Header ---- */

static enum status check_magic(const struct gguf *gguf, struct status_note *note) {
    const uint8_t *b = gguf->bytes;
    static const char lfs[] = "version https://git-lfs";
    if (gguf->n_bytes == 0) return status_fail(note, STATUS_FORMAT, "magic: the file is empty");
    if (gguf->n_bytes < 4) return status_fail(note, STATUS_FORMAT, "magic: the file has only %zu bytes", gguf->n_bytes);
    if (memcmp(b, "GGUF", 4) == 0) return STATUS_OK;
    if (gguf->n_bytes >= sizeof lfs - 1 && memcmp(b, lfs, sizeof lfs - 1) == 0)
        return status_fail(note, STATUS_FORMAT, "magic: this is a Git LFS pointer of %zu bytes, not the model itself",
                           gguf->n_bytes);
    return status_fail(note, STATUS_FORMAT, "magic: %02x %02x %02x %02x is not GGUF (47 47 55 46)", b[0], b[1], b[2],
                       b[3]);
}

static enum status read_header(struct gguf *gguf, struct cursor *cursor, uint64_t *out_n_tensors, uint64_t *out_n_keys,
                               struct status_note *note) {
    enum status status = check_magic(gguf, note);
    if (status) return status;
    cursor->at += 4;
    if (!read_u32(cursor, &gguf->version)) return status_fail(note, STATUS_FORMAT, "version: the file ends before it");
    if (gguf->version == 0x02000000 || gguf->version == 0x03000000)
        return status_fail(note, STATUS_FORMAT, "version: %" PRIu32 " is a big-endian file, only little endian is read",
                           gguf->version);
    if (gguf->version != 2 && gguf->version != 3)
        return status_fail(note, STATUS_FORMAT, "version: %" PRIu32 " is not 2 or 3", gguf->version);
    if (!read_u64(cursor, out_n_tensors) || !read_u64(cursor, out_n_keys))
        return status_fail(note, STATUS_FORMAT, "tensor count and key count: the file ends at byte %zu before them",
                           gguf->n_bytes);
    size_t left = bytes_left(cursor);
    if (*out_n_keys > GGUF_MAX_KEYS || *out_n_keys > left / MIN_KEY_BYTES)
        return status_fail(note, STATUS_FORMAT, "key count: %" PRIu64 " cannot be (%zu bytes follow, at most %d keys)",
                           *out_n_keys, left, GGUF_MAX_KEYS);
    if (*out_n_tensors > GGUF_MAX_TENSORS || *out_n_tensors > left / MIN_TENSOR_BYTES)
        return status_fail(note, STATUS_FORMAT,
                           "tensor count: %" PRIu64 " cannot be (%zu bytes follow, at most %d tensors)", *out_n_tensors,
                           left, GGUF_MAX_TENSORS);
    return STATUS_OK;
}

/* ---- Key-values ---- */

static enum status check_bools(const struct gguf_key_value *kv, struct status_note *note) {
    for (size_t i = 0; i < kv->n_bytes; i++)
        if (kv->value[i] > 1)
            return status_fail(note, STATUS_FORMAT, "key '%.*s': BOOL value %d is not 0 or 1", QUOTE(kv->name),
                               kv->value[i]);
    return STATUS_OK;
}

static enum status skip_texts(struct cursor *cursor, const struct gguf_key_value *kv, struct status_note *note) {
    for (uint64_t i = 0; i < kv->n_items; i++) {
        struct gguf_text text;
        uint64_t claimed;
        if (!read_text(cursor, &text, &claimed))
            return status_fail(note, STATUS_FORMAT,
                               "key '%.*s': text %" PRIu64 " of the array has length %" PRIu64
                               ", more than the file has left",
                               QUOTE(kv->name), i, claimed);
    }
    return STATUS_OK;
}

static enum status read_array(struct cursor *cursor, struct gguf_key_value *kv, struct status_note *note) {
    uint32_t item_type;
    if (!read_u32(cursor, &item_type) || !read_u64(cursor, &kv->n_items))
        return status_fail(note, STATUS_FORMAT, "key '%.*s': the file ends inside the array's head", QUOTE(kv->name));
    if (item_type >= GGUF_N_TYPES)
        return status_fail(note, STATUS_FORMAT, "key '%.*s': array item type %" PRIu32 " is unknown", QUOTE(kv->name),
                           item_type);
    if (item_type == GGUF_ARRAY)
        return status_fail(note, STATUS_FORMAT, "key '%.*s': array of arrays is not supported", QUOTE(kv->name));
    kv->item_type = (enum gguf_type)item_type;
    kv->value = cursor->at;
    size_t min_item_bytes = item_type == GGUF_TEXT ? 8 : (size_t)type_bytes[item_type];
    if (kv->n_items > bytes_left(cursor) / min_item_bytes)
        return status_fail(note, STATUS_FORMAT, "key '%.*s': array length %" PRIu64 " is more than the %zu bytes left",
                           QUOTE(kv->name), kv->n_items, bytes_left(cursor));
    if (item_type == GGUF_TEXT) {
        enum status status = skip_texts(cursor, kv, note);
        if (status) return status;
    } else {
        cursor->at += kv->n_items * min_item_bytes;
    }
    kv->n_bytes = (size_t)(cursor->at - kv->value);
    return item_type == GGUF_BOOL ? check_bools(kv, note) : STATUS_OK;
}

static enum status read_value(struct cursor *cursor, struct gguf_key_value *kv, struct status_note *note) {
    uint32_t type;
    if (!read_u32(cursor, &type))
        return status_fail(note, STATUS_FORMAT, "key '%.*s': the file ends before its value type", QUOTE(kv->name));
    if (type >= GGUF_N_TYPES)
        return status_fail(note, STATUS_FORMAT, "key '%.*s': value type %" PRIu32 " is unknown", QUOTE(kv->name), type);
    kv->type = (enum gguf_type)type;
    if (type == GGUF_ARRAY) return read_array(cursor, kv, note);
    if (type == GGUF_TEXT) {
        struct gguf_text text;
        uint64_t claimed;
        if (!read_text(cursor, &text, &claimed))
            return status_fail(note, STATUS_FORMAT,
                               "key '%.*s': text length %" PRIu64 " is more than the %zu bytes left", QUOTE(kv->name),
                               claimed, bytes_left(cursor));
        kv->value = (const uint8_t *)text.ptr;
        kv->n_bytes = text.n_bytes;
        return STATUS_OK;
    }
    kv->value = cursor->at;
    kv->n_bytes = (size_t)type_bytes[type];
    if (kv->n_bytes > bytes_left(cursor))
        return status_fail(note, STATUS_FORMAT, "key '%.*s': the file ends inside its %s value", QUOTE(kv->name),
                           gguf_type_name(kv->type));
    cursor->at += kv->n_bytes;
    return type == GGUF_BOOL ? check_bools(kv, note) : STATUS_OK;
}

/* what: "key" or "tensor", for the error line. */
static enum status read_name(struct cursor *cursor, const char *what, size_t idx, size_t max_bytes,
                             struct gguf_text *out, struct status_note *note) {
    uint64_t claimed;
    size_t left = bytes_left(cursor);
    if (left < 8) return status_fail(note, STATUS_FORMAT, "%s %zu: the file ends before its name", what, idx);
    if (!read_text(cursor, out, &claimed) || claimed > max_bytes)
        return status_fail(note, STATUS_FORMAT,
                           "%s %zu: name length %" PRIu64 " cannot be (%zu bytes left, at most %zu)", what, idx,
                           claimed, left - 8, max_bytes);
    const char *fault = name_table_name_fault(out->ptr, out->n_bytes);
    if (fault) return status_fail(note, STATUS_FORMAT, "%s %zu: its name %s", what, idx, fault);
    return STATUS_OK;
}

static enum status read_keys(struct gguf *gguf, struct cursor *cursor, size_t n_keys, struct status_note *note) {
    gguf->keys = mem_alloc_array(n_keys, sizeof *gguf->keys);
    if (!gguf->keys || name_table_init(&gguf->key_table, n_keys))
        return status_fail(note, STATUS_NOMEM, "no memory for %zu keys", n_keys);
    for (size_t i = 0; i < n_keys; i++) {
        struct gguf_key_value *kv = &gguf->keys[i];
        enum status status = read_name(cursor, "key", i, GGUF_MAX_KEY_BYTES, &kv->name, note);
        if (!status) status = read_value(cursor, kv, note);
        if (status) return status;
        if (!name_table_add(&gguf->key_table, kv->name.ptr, (uint32_t)kv->name.n_bytes, (uint32_t)i))
            return status_fail(note, STATUS_FORMAT, "key '%.*s' (key %zu): duplicate", QUOTE(kv->name), i);
        gguf->n_keys = i + 1;
    }
    return STATUS_OK;
}

static enum status read_alignment(struct gguf *gguf, struct status_note *note) {
    gguf->alignment_bytes = GGUF_DEFAULT_ALIGNMENT_BYTES;
    if (!gguf_has(gguf, "general.alignment")) return STATUS_OK;
    if (gguf_get_u64(gguf, "general.alignment", &gguf->alignment_bytes, note)) return STATUS_FORMAT;
    uint64_t a = gguf->alignment_bytes;
    if (a < MIN_ALIGNMENT_BYTES || a > GGUF_MAX_ALIGNMENT_BYTES || (a & (a - 1)))
        return status_fail(note, STATUS_FORMAT, "key 'general.alignment': %" PRIu64 " is no power of two from %d to %u",
                           a, MIN_ALIGNMENT_BYTES, GGUF_MAX_ALIGNMENT_BYTES);
    return STATUS_OK;
}

/* ---- Tensors ---- */

static enum status read_dims(struct cursor *cursor, struct gguf_tensor *tensor, uint64_t *out_n_elements,
                             struct status_note *note) {
    uint32_t n_dims;
    if (!read_u32(cursor, &n_dims))
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': the file ends before n_dims", QUOTE(tensor->name));
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': n_dims %" PRIu32 " is not 1 to %d", QUOTE(tensor->name),
                           n_dims, GGUF_MAX_DIMS);
    tensor->n_dims = (int)n_dims;
    *out_n_elements = 1;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) {
        uint64_t dim = 1;
        if (i < tensor->n_dims && !read_u64(cursor, &dim))
            return status_fail(note, STATUS_FORMAT, "tensor '%.*s': the file ends before dim %d", QUOTE(tensor->name),
                               i);
        if (dim == 0) return status_fail(note, STATUS_FORMAT, "tensor '%.*s': dim %d is 0", QUOTE(tensor->name), i);
        if (dim > INT64_MAX / *out_n_elements)
            return status_fail(note, STATUS_FORMAT, "tensor '%.*s': dim %d is %" PRIu64 ", too many elements",
                               QUOTE(tensor->name), i, dim);
        tensor->dims[i] = dim;
        *out_n_elements *= dim;
    }
    return STATUS_OK;
}

/* The place of the data is known only at the end of the table, so the offset is handed out and placed later. */
static enum status read_tensor(struct cursor *cursor, struct gguf_tensor *tensor, uint64_t *out_offset,
                               struct status_note *note) {
    uint64_t n_elements = 0;
    enum status status = read_dims(cursor, tensor, &n_elements, note);
    if (status) return status;
    uint32_t type;
    if (!read_u32(cursor, &type) || !read_u64(cursor, out_offset))
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': the file ends before its type and offset",
                           QUOTE(tensor->name));
    if (!dtype_from_gguf(type, &tensor->dtype))
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': type %" PRIu32 " is unknown", QUOTE(tensor->name),
                           type);
    int block = dtype_block_elements(tensor->dtype);
    if (tensor->dims[0] % (uint64_t)block)
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': dim 0 is %" PRIu64 ", no multiple of %s's block of %d",
                           QUOTE(tensor->name), tensor->dims[0], dtype_name(tensor->dtype), block);
    if (dtype_bytes(tensor->dtype, n_elements, &tensor->n_bytes))
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': %" PRIu64 " elements of %s are too many bytes",
                           QUOTE(tensor->name), n_elements, dtype_name(tensor->dtype));
    return STATUS_OK;
}

static enum status place_tensor(const struct gguf *gguf, struct gguf_tensor *tensor, uint64_t offset,
                                struct status_note *note) {
    uint64_t room = gguf->n_bytes - gguf->data_off;
    if (offset & (gguf->alignment_bytes - 1))
        return status_fail(note, STATUS_FORMAT,
                           "tensor '%.*s': offset %" PRIu64 " is no multiple of alignment %" PRIu64,
                           QUOTE(tensor->name), offset, gguf->alignment_bytes);
    if (offset > room)
        return status_fail(note, STATUS_FORMAT,
                           "tensor '%.*s': offset %" PRIu64 " is past the %" PRIu64 " bytes of tensor data (file: %zu)",
                           QUOTE(tensor->name), offset, room, gguf->n_bytes);
    if (tensor->n_bytes > room - offset)
        return status_fail(note, STATUS_FORMAT,
                           "tensor '%.*s': its %" PRIu64 " bytes at file offset %" PRIu64
                           " end past the file's %zu bytes (truncated?)",
                           QUOTE(tensor->name), tensor->n_bytes, gguf->data_off + offset, gguf->n_bytes);
    tensor->file_off = gguf->data_off + offset;
    tensor->bytes = gguf->bytes + tensor->file_off;
    return STATUS_OK;
}

static int by_place(const void *left, const void *right) {
    const struct gguf_tensor *a = *(const struct gguf_tensor *const *)left;
    const struct gguf_tensor *b = *(const struct gguf_tensor *const *)right;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static enum status check_overlap(const struct gguf *gguf, struct status_note *note) {
    const struct gguf_tensor **order = mem_alloc_array(gguf->n_tensors, sizeof(*order));
    if (!order) return status_fail(note, STATUS_NOMEM, "no memory for %zu tensors", gguf->n_tensors);
    for (size_t i = 0; i < gguf->n_tensors; i++) order[i] = &gguf->tensors[i];
    qsort(order, gguf->n_tensors, sizeof(*order), by_place);
    enum status status = STATUS_OK;
    for (size_t i = 1; i < gguf->n_tensors && !status; i++) {
        const struct gguf_tensor *a = order[i - 1], *b = order[i];
        if ((uint64_t)(b->bytes - a->bytes) < a->n_bytes)
            status = status_fail(note, STATUS_FORMAT, "tensor '%.*s': offset %zu overlaps tensor '%.*s'",
                                 QUOTE(b->name), (size_t)(b->bytes - gguf->bytes) - gguf->data_off, QUOTE(a->name));
    }
    mem_free(order);
    return status;
}

static enum status read_tensors(struct gguf *gguf, struct cursor *cursor, size_t n_tensors, uint64_t *offsets,
                                struct status_note *note) {
    for (size_t i = 0; i < n_tensors; i++) {
        struct gguf_tensor *tensor = &gguf->tensors[i];
        enum status status = read_name(cursor, "tensor", i, GGUF_MAX_TENSOR_NAME_BYTES, &tensor->name, note);
        if (!status) status = read_tensor(cursor, tensor, &offsets[i], note);
        if (status) return status;
        if (!name_table_add(&gguf->tensor_table, tensor->name.ptr, (uint32_t)tensor->name.n_bytes, (uint32_t)i))
            return status_fail(note, STATUS_FORMAT, "tensor '%.*s' (tensor %zu): duplicate", QUOTE(tensor->name), i);
    }
    size_t table_end = (size_t)(cursor->at - gguf->bytes), mask = (size_t)gguf->alignment_bytes - 1;
    size_t data_off = (table_end + mask) & ~mask; /* cannot wrap: a file is far below SIZE_MAX - 1 MiB */
    gguf->data_off = data_off < gguf->n_bytes ? data_off : gguf->n_bytes;
    for (size_t i = 0; i < n_tensors; i++) {
        enum status status = place_tensor(gguf, &gguf->tensors[i], offsets[i], note);
        if (status) return status;
    }
    gguf->n_tensors = n_tensors;
    return check_overlap(gguf, note);
}

static enum status read_tensor_table(struct gguf *gguf, struct cursor *cursor, size_t n_tensors,
                                     struct status_note *note) {
    uint64_t *offsets = mem_alloc_array(n_tensors, sizeof *offsets);
    gguf->tensors = mem_alloc_array(n_tensors, sizeof *gguf->tensors);
    enum status status;
    if (!offsets || !gguf->tensors || name_table_init(&gguf->tensor_table, n_tensors))
        status = status_fail(note, STATUS_NOMEM, "no memory for %zu tensors", n_tensors);
    else
        status = read_tensors(gguf, cursor, n_tensors, offsets, note);
    mem_free(offsets);
    return status;
}

/* ---- The whole ---- */

enum status gguf_parse(struct gguf *gguf, struct status_note *note) {
    struct cursor cursor = {.at = gguf->bytes, .end = gguf->bytes + gguf->n_bytes};
    uint64_t n_tensors = 0, n_keys = 0;
    enum status status = read_header(gguf, &cursor, &n_tensors, &n_keys, note);
    if (!status) status = read_keys(gguf, &cursor, (size_t)n_keys, note);
    if (!status) status = read_alignment(gguf, note);
    if (!status) status = read_tensor_table(gguf, &cursor, (size_t)n_tensors, note);
    return status;
}
