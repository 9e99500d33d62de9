#include "weights/weight_store.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "weights/gguf_check.h"

#define MAX_PATH_BYTES 4096

struct weight_store {
    struct gguf *gguf; /* exactly one of the two */
    struct safetensors *safetensors;
};

static bool ends_in(const char *text, const char *end) {
    size_t n_text = strlen(text), n_end = strlen(end);
    return n_text >= n_end && strcmp(text + n_text - n_end, end) == 0;
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static enum status open_gguf(struct weight_store *store, const char *path, struct status_note *note) {
    enum status status = gguf_open(&store->gguf, path, note);
    return status ? status : gguf_check_model_keys(store->gguf, note);
}

static enum status open_folder(struct weight_store *store, const char *path, struct status_note *note) {
    char file[MAX_PATH_BYTES];
    static const char name[] = "model.safetensors";
    int n = snprintf(file, sizeof file, "%s/%s", path, name);
    if (n < 0 || n >= (int)sizeof file) return status_fail(note, STATUS_IO, "the path is too long");
    enum status status = safetensors_open(&store->safetensors, file, note);
    if (status) status_note_prefix(note, name);
    return status;
}

enum status weight_store_open(struct weight_store **out_store, const char *path, struct status_note *note) {
    *out_store = NULL;
    struct weight_store *store = mem_alloc(sizeof *store);
    if (!store) return status_fail(note, STATUS_NOMEM, "no memory for a weight store");
    enum status status;
    if (is_folder(path))
        status = open_folder(store, path, note);
    else if (ends_in(path, ".safetensors"))
        status = safetensors_open(&store->safetensors, path, note);
    else
        status = open_gguf(store, path, note);
    if (status)
        weight_store_close(&store);
    else
        *out_store = store;
    return status;
}

void weight_store_close(struct weight_store **store) {
    struct weight_store *s = *store;
    if (!s) return;
    gguf_close(&s->gguf);
    safetensors_close(&s->safetensors);
    mem_free(s);
    *store = NULL;
}

const struct gguf *weight_store_gguf(const struct weight_store *store) {
    return store->gguf;
}

const struct safetensors *weight_store_safetensors(const struct weight_store *store) {
    return store->safetensors;
}

size_t weight_store_n_tensors(const struct weight_store *store) {
    return store->gguf ? gguf_n_tensors(store->gguf) : safetensors_n_tensors(store->safetensors);
}

static struct weight_tensor from_gguf(const struct gguf_tensor *t) {
    struct weight_tensor out = {.name = t->name.ptr,
                                .name_bytes = t->name.n_bytes,
                                .dtype = t->dtype,
                                .n_dims = t->n_dims,
                                .bytes = t->bytes,
                                .n_bytes = t->n_bytes};
    for (int i = 0; i < WEIGHT_STORE_MAX_DIMS; i++) out.dims[i] = t->dims[i];
    return out;
}

static enum status from_safetensors(const struct safetensors_tensor *t, struct weight_tensor *out,
                                    struct status_note *note) {
    if (!t->is_usable)
        return status_fail(note, STATUS_INVALID, "tensor '%s': type %s is not supported", t->name, t->type);
    if (t->n_dims > WEIGHT_STORE_MAX_DIMS)
        return status_fail(note, STATUS_INVALID, "tensor '%s': %d dimensions are more than %d", t->name, t->n_dims,
                           WEIGHT_STORE_MAX_DIMS);
    *out = (struct weight_tensor){.name = t->name,
                                  .name_bytes = strlen(t->name),
                                  .dtype = t->dtype,
                                  .n_dims = t->n_dims,
                                  .bytes = t->bytes,
                                  .n_bytes = t->n_bytes};
    for (int i = 0; i < WEIGHT_STORE_MAX_DIMS; i++) out->dims[i] = i < t->n_dims ? t->shape[t->n_dims - 1 - i] : 1;
    return STATUS_OK;
}

enum status weight_store_at(const struct weight_store *store, size_t tensor_idx, struct weight_tensor *out,
                            struct status_note *note) {
    if (!store->gguf) return from_safetensors(safetensors_tensor_at(store->safetensors, tensor_idx), out, note);
    *out = from_gguf(gguf_tensor_at(store->gguf, tensor_idx));
    return STATUS_OK;
}

enum status weight_store_find(const struct weight_store *store, const char *name, struct weight_tensor *out,
                              struct status_note *note) {
    const struct gguf_tensor *g = store->gguf ? gguf_tensor_find(store->gguf, name) : NULL;
    const struct safetensors_tensor *s = store->gguf ? NULL : safetensors_tensor_find(store->safetensors, name);
    if (!g && !s) return status_fail(note, STATUS_INVALID, "tensor '%s' is missing", name);
    if (s) return from_safetensors(s, out, note);
    *out = from_gguf(g);
    return STATUS_OK;
}

bool weight_store_has(const struct weight_store *store, const char *name) {
    return store->gguf ? gguf_tensor_find(store->gguf, name) != NULL
                       : safetensors_tensor_find(store->safetensors, name) != NULL;
}
