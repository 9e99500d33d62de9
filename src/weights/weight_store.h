/* weight_store: a model's tensors by name, whatever file they come from.
 *
 * A path is a GGUF file (by its first bytes), a .safetensors file, or a folder that holds model.safetensors.
 * Tensor names and shapes stay those of the format; dims are in GGUF's order for both: dims[0] is the contiguous one.
 * Thread: any, const after open.   Memory: the readers' tables; tensors point into their mapping. */
#ifndef KVICK_WEIGHTS_WEIGHT_STORE_H
#define KVICK_WEIGHTS_WEIGHT_STORE_H

#include "weights/gguf.h"
#include "weights/safetensors.h"

#define WEIGHT_STORE_MAX_DIMS 4

struct weight_tensor {
    const char *name; /* NOT terminated: name_bytes long */
    size_t name_bytes;
    enum dtype dtype;
    int n_dims;
    uint64_t dims[WEIGHT_STORE_MAX_DIMS]; /* dims[0] is contiguous; unused ones are 1 */
    const uint8_t *bytes;                 /* GGUF: aligned as the file says; safetensors: any alignment */
    uint64_t n_bytes;
};

struct weight_store;

/* GGUF files also pass gguf_check_model_keys.
 * Errors: STATUS_IO, STATUS_FORMAT, STATUS_NOMEM; the note names the field and value, after "FILE: " where the path is
 * a folder. */
WARN_UNUSED enum status weight_store_open(struct weight_store **out_store, const char *path, struct status_note *note);
void weight_store_close(struct weight_store **store);

/* NULL if the model is not of this format. */
const struct gguf *weight_store_gguf(const struct weight_store *store);
const struct safetensors *weight_store_safetensors(const struct weight_store *store);

size_t weight_store_n_tensors(const struct weight_store *store);

/* Errors: STATUS_INVALID with the tensor in note: find: there is none of this name; both: it has a type that no kernel
 * reads, or more than WEIGHT_STORE_MAX_DIMS dimensions. find is O(1). */
WARN_UNUSED enum status weight_store_at(const struct weight_store *store, size_t tensor_idx, struct weight_tensor *out,
                                        struct status_note *note);
WARN_UNUSED enum status weight_store_find(const struct weight_store *store, const char *name, struct weight_tensor *out,
                                          struct status_note *note);

/* True if there is a tensor of this name, usable or not. */
bool weight_store_has(const struct weight_store *store, const char *name);

#endif
