/* gguf: a GGUF file (v2, v3), memory-mapped and checked whole at open: key-values and the tensor table.
 *
 * Every count, length, offset and product of the file is checked by division before use, so later accessors cannot
 * leave the file. Refused as well: names twice, empty or with control characters, tensors that overlap or start off
 * the alignment, arrays of arrays.
 * Thread: any, const after open.   Memory: two tables (16 MB for the largest allowed key count, 48 MB for tensors),
 * plus the mapping; texts point into the mapping and are not NUL-terminated. Values may hold any bytes, names are
 * printable UTF-8.   Source: the GGUF specification (ggml docs/gguf.md). */
#ifndef KVICK_WEIGHTS_GGUF_H
#define KVICK_WEIGHTS_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/dtype.h"

#define GGUF_MAX_DIMS 4

enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_TEXT = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12
};

/* Bounds no known file comes near; they keep a hostile one from asking for much memory. The key's length is the
 * specification's. */
#define GGUF_MAX_KEYS 65536
#define GGUF_MAX_TENSORS 262144
#define GGUF_MAX_KEY_BYTES 65535
#define GGUF_MAX_TENSOR_NAME_BYTES 1024
#define GGUF_MAX_ALIGNMENT_BYTES (1u << 20)
#define GGUF_DEFAULT_ALIGNMENT_BYTES 32

/* Bytes of the file; not terminated. */
struct gguf_text {
    const char *ptr;
    size_t n_bytes;
};

struct gguf_array {
    enum gguf_type item_type; /* never GGUF_ARRAY: arrays of arrays are refused */
    uint64_t n_items;
    const uint8_t *bytes; /* in the mapping, of any alignment */
    size_t n_bytes;
};

struct gguf_tensor {
    struct gguf_text name;
    enum dtype dtype;
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is the contiguous one; unused ones are 1 */
    const uint8_t *bytes;         /* in the mapping */
    uint64_t n_bytes;
    uint64_t file_off; /* of bytes */
};

struct gguf;

/* Errors: STATUS_IO, STATUS_FORMAT, STATUS_NOMEM; the note names the key, tensor or field and the bad value. */
WARN_UNUSED enum status gguf_open(struct gguf **out_gguf, const char *path, struct status_note *note);

/* The same checks on bytes of the caller, which must outlive the gguf; for tests and fuzzing. */
WARN_UNUSED enum status gguf_open_bytes(struct gguf **out_gguf, const uint8_t *bytes, size_t n_bytes,
                                        struct status_note *note);
void gguf_close(struct gguf **gguf);

uint32_t gguf_version(const struct gguf *gguf);
uint64_t gguf_file_bytes(const struct gguf *gguf);
uint64_t gguf_alignment_bytes(const struct gguf *gguf);

/* Where tensor data starts in the file; at most gguf_file_bytes. Tensor offsets in the file count from here. */
uint64_t gguf_data_off(const struct gguf *gguf);

/* "U32", "TEXT"; "?" for a number that is no type. */
const char *gguf_type_name(enum gguf_type type);

/* Key-values, in file order. */
size_t gguf_n_keys(const struct gguf *gguf);
struct gguf_text gguf_key(const struct gguf *gguf, size_t key_idx, enum gguf_type *out_type);
bool gguf_has(const struct gguf *gguf, const char *key);

/* True and the value's type if the key is there; false leaves *out_type alone. */
bool gguf_type_of(const struct gguf *gguf, const char *key, enum gguf_type *out_type);

/* Typed values. Errors: STATUS_INVALID with the key in note if it is absent, of another kind, or does not fit.
 * get_u64 takes every integer type that is not negative; get_f64 takes F32 and F64. */
WARN_UNUSED enum status gguf_get_u64(const struct gguf *gguf, const char *key, uint64_t *out, struct status_note *note);
WARN_UNUSED enum status gguf_get_f64(const struct gguf *gguf, const char *key, double *out, struct status_note *note);
WARN_UNUSED enum status gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, struct status_note *note);
WARN_UNUSED enum status gguf_get_text(const struct gguf *gguf, const char *key, struct gguf_text *out,
                                      struct status_note *note);
WARN_UNUSED enum status gguf_get_array(const struct gguf *gguf, const char *key, struct gguf_array *out,
                                       struct status_note *note);

/* A number or boolean of any type as an array of one, for code that shows or copies every kind of value. */
WARN_UNUSED enum status gguf_get_scalar(const struct gguf *gguf, const char *key, struct gguf_array *out,
                                        struct status_note *note);

/* Items of an array: integers of any width, floats, booleans as 0/1. item_idx < n_items, item_type fitting: REQUIREd.
 */
int64_t gguf_array_int(const struct gguf_array *array, uint64_t item_idx);
double gguf_array_real(const struct gguf_array *array, uint64_t item_idx);

/* Texts have no index in the file: an iterator walks them in order. Start with *cursor = 0; false at the end. */
bool gguf_array_next_text(const struct gguf_array *array, size_t *cursor, struct gguf_text *out);

/* Tensors, in file order; find is O(1). NULL if there is none of this name. */
size_t gguf_n_tensors(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t tensor_idx);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name);

/* Gives back the memory that reading up to n_bytes of tensor data took, off bytes after its begin; it can be read
 * again, from the file. Returns the bytes passed, less than n_bytes at the end. */
size_t gguf_release_tensors(const struct gguf *gguf, size_t off, size_t n_bytes);

#endif
