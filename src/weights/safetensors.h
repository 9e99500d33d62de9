/* safetensors: the header of a .safetensors file and where its tensors lie; memory-mapped, checked whole at open.
 *
 * Shape, dtype and byte range are separate claims of the file; all must agree, and the ranges must fill the data
 * without gap or overlap, as the reference library demands. Names are printable UTF-8.
 * Thread: any, const after open.   Memory: two tables, the names and the mapping. The header is cut into its entries
 * first and jansson sees one entry at a time, so neither nesting nor size of the header decides its memory.
 * Source: safetensors format description (README, "Format"). */
#ifndef KVICK_WEIGHTS_SAFETENSORS_H
#define KVICK_WEIGHTS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/dtype.h"

#define SAFETENSORS_MAX_DIMS 8
#define SAFETENSORS_MAX_HEADER_BYTES 100000000 /* of the reference library */
#define SAFETENSORS_MAX_TENSORS 131072
#define SAFETENSORS_MAX_NAME_BYTES 1024

struct safetensors_tensor {
    const char *name; /* NUL-terminated, owned by the file */
    const char *type; /* as in the file: "BF16", "F8_E4M3" */
    bool is_usable;   /* dtype is set: the type is one that kernels know. Others (BOOL, U8, F8_...) are only listed */
    enum dtype dtype;
    int n_dims;                           /* 0 for a scalar */
    uint64_t shape[SAFETENSORS_MAX_DIMS]; /* as in the file: the last one is contiguous; unused ones are 1 */
    const uint8_t *bytes;                 /* in the mapping, of any alignment */
    uint64_t n_bytes;                     /* 0 if a dimension is 0 */
    uint64_t begin;                       /* offset in the data */
};

struct safetensors;

/* Errors: STATUS_IO, STATUS_FORMAT, STATUS_NOMEM; the note names the tensor or field and the bad value. */
WARN_UNUSED enum status safetensors_open(struct safetensors **out_file, const char *path, struct status_note *note);

/* The same checks on bytes of the caller, which must outlive the file; for tests and fuzzing. */
WARN_UNUSED enum status safetensors_open_bytes(struct safetensors **out_file, const uint8_t *bytes, size_t n_bytes,
                                               struct status_note *note);
void safetensors_close(struct safetensors **file);

uint64_t safetensors_file_bytes(const struct safetensors *file);

/* Where tensor data starts in the file. */
uint64_t safetensors_data_off(const struct safetensors *file);

/* Tensors in the order of their data; find is O(1). NULL if there is none of this name. */
size_t safetensors_n_tensors(const struct safetensors *file);
const struct safetensors_tensor *safetensors_tensor_at(const struct safetensors *file, size_t tensor_idx);
const struct safetensors_tensor *safetensors_tensor_find(const struct safetensors *file, const char *name);

/* The texts of "__metadata__", in file order. */
size_t safetensors_n_metadata(const struct safetensors *file);
void safetensors_metadata_at(const struct safetensors *file, size_t metadata_idx, const char **out_key,
                             const char **out_text);

#endif
