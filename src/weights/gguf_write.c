#include "weights/gguf_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

#define ALIGNMENT_BYTES GGUF_DEFAULT_ALIGNMENT_BYTES

static const uint32_t gguf_ids[DTYPE_N] = {
#define DTYPE(name, gguf_id, block_elements, block_bytes) gguf_id,
#include "kernels/dtype.inc"
#undef DTYPE
};

enum phase { PHASE_HEAD, PHASE_DATA, PHASE_FINISHED };

struct gguf_write {
    FILE *out;
    char *path, *part_path;
    enum phase phase;
    struct str keys, tensors; /* as they will lie in the file */
    struct str sizes;         /* a uint64_t per tensor: its bytes */
    uint64_t n_keys, n_tensors;
    uint64_t data_bytes; /* offset of the next tensor to be announced */
    uint64_t tensor_idx, filled_bytes;
};

/* ---- Bytes ---- */

static enum status fail_io(const struct gguf_write *writer, struct status_note *note) {
    return status_fail(note, STATUS_IO, "cannot write %s: %s", writer->part_path, strerror(errno));
}

static enum status put_bytes(struct str *str, const void *bytes, size_t n_bytes, struct status_note *note) {
    enum status status = str_append(str, bytes, n_bytes);
    return status ? status_fail(note, status, "GGUF head: %s after %zu bytes", status_text(status), str->n_bytes)
                  : STATUS_OK;
}

static enum status put_u32(struct str *str, uint32_t value, struct status_note *note) {
    return put_bytes(str, &value, sizeof value, note);
}

static enum status put_u64(struct str *str, uint64_t value, struct status_note *note) {
    return put_bytes(str, &value, sizeof value, note);
}

static enum status put_text(struct str *str, const char *bytes, size_t n_bytes, struct status_note *note) {
    enum status status = put_u64(str, n_bytes, note);
    return status ? status : put_bytes(str, bytes, n_bytes, note);
}

static enum status put_file(struct gguf_write *writer, const void *bytes, size_t n_bytes, struct status_note *note) {
    if (n_bytes && fwrite(bytes, 1, n_bytes, writer->out) != n_bytes) return fail_io(writer, note);
    return STATUS_OK;
}

/* Zeros from n_bytes up to the next multiple of the alignment. */
static enum status put_padding(struct gguf_write *writer, uint64_t n_bytes, struct status_note *note) {
    static const char zeros[ALIGNMENT_BYTES];
    return put_file(writer, zeros, (size_t)(-n_bytes % ALIGNMENT_BYTES), note);
}

/* ---- Life ---- */

enum status gguf_write_create(struct gguf_write **out_writer, const char *path, struct status_note *note) {
    *out_writer = NULL;
    struct gguf_write *writer = mem_alloc(sizeof *writer);
    if (!writer) return status_fail(note, STATUS_NOMEM, "no memory for a GGUF writer");
    str_init(&writer->keys, GGUF_WRITE_MAX_HEAD_BYTES);
    str_init(&writer->tensors, GGUF_WRITE_MAX_HEAD_BYTES);
    str_init(&writer->sizes, GGUF_WRITE_MAX_HEAD_BYTES);
    size_t path_bytes = strlen(path), part_bytes = path_bytes + sizeof ".part";
    writer->path = mem_strdup(path);
    writer->part_path = mem_alloc(part_bytes);
    enum status status = STATUS_OK;
    if (!writer->path || !writer->part_path) {
        status = status_fail(note, STATUS_NOMEM, "no memory for a path");
    } else {
        snprintf(writer->part_path, part_bytes, "%s.part", path);
        writer->out = fopen(writer->part_path, "wbe");
        if (!writer->out) status = fail_io(writer, note);
    }
    if (status)
        gguf_write_destroy(&writer);
    else
        *out_writer = writer;
    return status;
}

void gguf_write_destroy(struct gguf_write **writer) {
    struct gguf_write *w = *writer;
    if (!w) return;
    bool has_part = w->out != NULL;
    if (w->out) fclose(w->out);
    if (has_part && w->phase != PHASE_FINISHED) unlink(w->part_path);
    str_deinit(&w->keys);
    str_deinit(&w->tensors);
    str_deinit(&w->sizes);
    mem_free(w->path);
    mem_free(w->part_path);
    mem_free(w);
    *writer = NULL;
}

/* ---- Keys ---- */

static enum status begin_key(struct gguf_write *writer, const char *key, enum gguf_type type,
                             struct status_note *note) {
    if (writer->phase != PHASE_HEAD)
        return status_fail(note, STATUS_INVALID, "key '%s': the head is already written", key);
    enum status status = put_text(&writer->keys, key, strlen(key), note);
    if (!status) status = put_u32(&writer->keys, (uint32_t)type, note);
    writer->n_keys++;
    return status;
}

static int int_bytes(enum gguf_type type) {
    switch (type) {
    case GGUF_U8:
    case GGUF_I8: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32: return 4;
    case GGUF_U64:
    case GGUF_I64: return 8;
    default: return 0;
    }
}

static bool int_fits(enum gguf_type type, int64_t value) {
    int n_bits = 8 * int_bytes(type);
    if (n_bits == 64) return true;
    bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32;
    int64_t max = is_signed ? ((int64_t)1 << (n_bits - 1)) - 1 : ((int64_t)1 << n_bits) - 1;
    return value <= max && value >= (is_signed ? -max - 1 : 0);
}

enum status gguf_write_key_int(struct gguf_write *writer, const char *key, enum gguf_type type, int64_t value,
                               struct status_note *note) {
    int n_bytes = int_bytes(type);
    if (n_bytes == 0 || !int_fits(type, value))
        return status_fail(note, STATUS_INVALID, "key '%s': %" PRId64 " is no %s", key, value, gguf_type_name(type));
    enum status status = begin_key(writer, key, type, note);
    return status ? status
                  : put_bytes(&writer->keys, &value, (size_t)n_bytes, note); /* little endian: low bytes first */
}

enum status gguf_write_key_real(struct gguf_write *writer, const char *key, enum gguf_type type, double value,
                                struct status_note *note) {
    if (type != GGUF_F32 && type != GGUF_F64)
        return status_fail(note, STATUS_INVALID, "key '%s': %s is no real type", key, gguf_type_name(type));
    float narrow = (float)value;
    enum status status = begin_key(writer, key, type, note);
    if (status) return status;
    return type == GGUF_F32 ? put_bytes(&writer->keys, &narrow, sizeof narrow, note)
                            : put_bytes(&writer->keys, &value, sizeof value, note);
}

enum status gguf_write_key_bool(struct gguf_write *writer, const char *key, bool value, struct status_note *note) {
    enum status status = begin_key(writer, key, GGUF_BOOL, note);
    uint8_t byte = value;
    return status ? status : put_bytes(&writer->keys, &byte, 1, note);
}

enum status gguf_write_key_text(struct gguf_write *writer, const char *key, const char *bytes, size_t n_bytes,
                                struct status_note *note) {
    enum status status = begin_key(writer, key, GGUF_TEXT, note);
    return status ? status : put_text(&writer->keys, bytes, n_bytes, note);
}

static enum status begin_array(struct gguf_write *writer, const char *key, enum gguf_type item_type, size_t n_items,
                               struct status_note *note) {
    enum status status = begin_key(writer, key, GGUF_ARRAY, note);
    if (!status) status = put_u32(&writer->keys, (uint32_t)item_type, note);
    return status ? status : put_u64(&writer->keys, n_items, note);
}

enum status gguf_write_key_array(struct gguf_write *writer, const char *key, enum gguf_type item_type,
                                 const void *items, size_t n_items, struct status_note *note) {
    size_t item_bytes = (size_t)int_bytes(item_type);
    if (item_type == GGUF_BOOL) item_bytes = 1;
    if (item_type == GGUF_F32) item_bytes = 4;
    if (item_type == GGUF_F64) item_bytes = 8;
    if (item_bytes == 0 || n_items > GGUF_WRITE_MAX_HEAD_BYTES / item_bytes)
        return status_fail(note, STATUS_INVALID, "key '%s': no array of %zu %s", key, n_items,
                           gguf_type_name(item_type));
    enum status status = begin_array(writer, key, item_type, n_items, note);
    return status ? status : put_bytes(&writer->keys, items, n_items * item_bytes, note);
}

enum status gguf_write_key_texts(struct gguf_write *writer, const char *key, const struct gguf_text *texts,
                                 size_t n_texts, struct status_note *note) {
    enum status status = begin_array(writer, key, GGUF_TEXT, n_texts, note);
    for (size_t i = 0; i < n_texts && !status; i++)
        status = put_text(&writer->keys, texts[i].ptr, texts[i].n_bytes, note);
    return status;
}

/* ---- Tensors ---- */

static enum status tensor_bytes(const char *name, enum dtype dtype, int n_dims, const uint64_t *dims,
                                uint64_t *out_bytes, struct status_note *note) {
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return status_fail(note, STATUS_INVALID, "tensor '%s': %d dims are not 1 to %d", name, n_dims, GGUF_MAX_DIMS);
    uint64_t n_elements = 1;
    for (int i = 0; i < n_dims; i++) {
        if (dims[i] == 0 || dims[i] > INT64_MAX / n_elements)
            return status_fail(note, STATUS_INVALID, "tensor '%s': dim %d cannot be %" PRIu64, name, i, dims[i]);
        n_elements *= dims[i];
    }
    if (dims[0] % (uint64_t)dtype_block_elements(dtype))
        return status_fail(note, STATUS_INVALID, "tensor '%s': dim 0 is %" PRIu64 ", no multiple of %s's block", name,
                           dims[0], dtype_name(dtype));
    if (dtype_bytes(dtype, n_elements, out_bytes) || *out_bytes > INT64_MAX)
        return status_fail(note, STATUS_INVALID, "tensor '%s': too many bytes", name);
    return STATUS_OK;
}

enum status gguf_write_tensor(struct gguf_write *writer, const char *name, enum dtype dtype, int n_dims,
                              const uint64_t *dims, struct status_note *note) {
    if (writer->phase != PHASE_HEAD)
        return status_fail(note, STATUS_INVALID, "tensor '%s': the head is already written", name);
    uint64_t n_bytes = 0;
    enum status status = tensor_bytes(name, dtype, n_dims, dims, &n_bytes, note);
    if (status) return status;
    if (n_bytes > INT64_MAX - writer->data_bytes - ALIGNMENT_BYTES)
        return status_fail(note, STATUS_LIMIT, "tensor '%s': the file would be too large", name);
    struct str *table = &writer->tensors;
    status = put_text(table, name, strlen(name), note);
    if (!status) status = put_u32(table, (uint32_t)n_dims, note);
    if (!status) status = put_bytes(table, dims, (size_t)n_dims * sizeof *dims, note);
    if (!status) status = put_u32(table, gguf_ids[dtype], note);
    if (!status) status = put_u64(table, writer->data_bytes, note);
    if (!status) status = put_u64(&writer->sizes, n_bytes, note);
    writer->data_bytes += n_bytes + -n_bytes % ALIGNMENT_BYTES;
    writer->n_tensors++;
    return status;
}

enum status gguf_write_begin_data(struct gguf_write *writer, struct status_note *note) {
    if (writer->phase != PHASE_HEAD) return status_fail(note, STATUS_INVALID, "the head is already written");
    writer->phase = PHASE_DATA;
    struct {
        char magic[4];
        uint32_t version;
        uint64_t n_tensors, n_keys;
    } head = {{'G', 'G', 'U', 'F'}, 3, writer->n_tensors, writer->n_keys};
    enum status status = put_file(writer, &head, sizeof head, note);
    if (!status) status = put_file(writer, writer->keys.ptr, writer->keys.n_bytes, note);
    if (!status) status = put_file(writer, writer->tensors.ptr, writer->tensors.n_bytes, note);
    if (!status) status = put_padding(writer, sizeof head + writer->keys.n_bytes + writer->tensors.n_bytes, note);
    str_deinit(&writer->keys);
    str_deinit(&writer->tensors);
    return status;
}

enum status gguf_write_data(struct gguf_write *writer, const void *bytes, size_t n_bytes, struct status_note *note) {
    if (writer->phase != PHASE_DATA) return status_fail(note, STATUS_INVALID, "no tensor data is due now");
    if (n_bytes == 0) return STATUS_OK;
    if (writer->tensor_idx == writer->n_tensors)
        return status_fail(note, STATUS_INVALID, "%zu bytes past the last tensor", n_bytes);
    uint64_t due_bytes;
    memcpy(&due_bytes, writer->sizes.ptr + writer->tensor_idx * sizeof due_bytes, sizeof due_bytes);
    if (n_bytes > due_bytes - writer->filled_bytes)
        return status_fail(note, STATUS_INVALID, "tensor %" PRIu64 ": %zu bytes past its end", writer->tensor_idx,
                           n_bytes - (size_t)(due_bytes - writer->filled_bytes));
    enum status status = put_file(writer, bytes, n_bytes, note);
    writer->filled_bytes += n_bytes;
    if (status || writer->filled_bytes < due_bytes) return status;
    writer->tensor_idx++;
    writer->filled_bytes = 0;
    return put_padding(writer, due_bytes, note);
}

enum status gguf_write_finish(struct gguf_write *writer, struct status_note *note) {
    if (writer->phase != PHASE_DATA) return status_fail(note, STATUS_INVALID, "finish before begin_data");
    if (writer->tensor_idx < writer->n_tensors)
        return status_fail(note, STATUS_INVALID, "tensor %" PRIu64 " of %" PRIu64 " is not full", writer->tensor_idx,
                           writer->n_tensors);
    if (fflush(writer->out) != 0) return fail_io(writer, note);
    struct gguf *written;
    enum status status = gguf_open(&written, writer->part_path, note);
    if (status) return status;
    gguf_close(&written);
    if (fsync(fileno(writer->out)) != 0 || rename(writer->part_path, writer->path) != 0) return fail_io(writer, note);
    writer->phase = PHASE_FINISHED;
    return STATUS_OK;
}
