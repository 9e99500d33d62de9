/* gguf_write: a GGUF v3 file, written in one pass: keys, then tensor names and shapes, then their data in that order.
 *
 * Order of calls: create, key_* and tensor in any order, begin_data, data until every tensor is full, finish. The file
 * grows as PATH.part and gets its name at finish, so a broken run leaves no half file under PATH.
 * Thread: one owner.   Memory: keys and the tensor table until begin_data (at most GGUF_WRITE_MAX_HEAD_BYTES); no data.
 * Errors: STATUS_INVALID for a shape that cannot be or calls out of order; STATUS_IO, STATUS_NOMEM, STATUS_LIMIT.
 * Names are judged at finish, by the reader itself. After any error only destroy is useful.   Source: the GGUF
 * specification (ggml docs/gguf.md). */
#ifndef KVICK_WEIGHTS_GGUF_WRITE_H
#define KVICK_WEIGHTS_GGUF_WRITE_H

#include "weights/gguf.h"

#define GGUF_WRITE_MAX_HEAD_BYTES ((size_t)1 << 30)

struct gguf_write;

WARN_UNUSED enum status gguf_write_create(struct gguf_write **out_writer, const char *path, struct status_note *note);

/* Removes PATH.part unless finish has been reached; nulls *writer, takes NULL. */
void gguf_write_destroy(struct gguf_write **writer);

/* type: any integer type; the value must fit (U64 above INT64_MAX: pass its bits). */
WARN_UNUSED enum status gguf_write_key_int(struct gguf_write *writer, const char *key, enum gguf_type type,
                                           int64_t value, struct status_note *note);
/* type: GGUF_F32 (rounded) or GGUF_F64. */
WARN_UNUSED enum status gguf_write_key_real(struct gguf_write *writer, const char *key, enum gguf_type type,
                                            double value, struct status_note *note);
WARN_UNUSED enum status gguf_write_key_bool(struct gguf_write *writer, const char *key, bool value,
                                            struct status_note *note);
WARN_UNUSED enum status gguf_write_key_text(struct gguf_write *writer, const char *key, const char *bytes,
                                            size_t n_bytes, struct status_note *note);

/* items: [n_items] packed values of item_type, any type but TEXT and ARRAY. */
WARN_UNUSED enum status gguf_write_key_array(struct gguf_write *writer, const char *key, enum gguf_type item_type,
                                             const void *items, size_t n_items, struct status_note *note);
WARN_UNUSED enum status gguf_write_key_texts(struct gguf_write *writer, const char *key, const struct gguf_text *texts,
                                             size_t n_texts, struct status_note *note);

/* Announces the next tensor. dims: [n_dims], dims[0] contiguous and a multiple of dtype's block. */
WARN_UNUSED enum status gguf_write_tensor(struct gguf_write *writer, const char *name, enum dtype dtype, int n_dims,
                                          const uint64_t *dims, struct status_note *note);

/* Writes everything before the data. No keys and tensors after it. */
WARN_UNUSED enum status gguf_write_begin_data(struct gguf_write *writer, struct status_note *note);

/* The next bytes of the tensor whose turn it is, all of them or a part; never past its end. Pads between tensors. */
WARN_UNUSED enum status gguf_write_data(struct gguf_write *writer, const void *bytes, size_t n_bytes,
                                        struct status_note *note);

/* Opens PATH.part with gguf_open, which refuses names twice and the like (its status and note are returned), and
 * renames it. Every tensor must be full. The writer is still to be destroyed. */
WARN_UNUSED enum status gguf_write_finish(struct gguf_write *writer, struct status_note *note);

#endif
