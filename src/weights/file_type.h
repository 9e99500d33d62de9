/* file_type: what "Q4_K_M" means: the type of each tensor of a file.
 *
 * Thread: any, const data.   Source: file_types.inc. */
#ifndef KVICK_WEIGHTS_FILE_TYPE_H
#define KVICK_WEIGHTS_FILE_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/dtype.h"

struct file_type {
    const char *name;
    int gguf_id; /* general.file_type */
    enum dtype matrices, output, more_bits;
};

/* Errors: STATUS_INVALID for an unknown name; the note lists the known ones. */
WARN_UNUSED enum status file_type_find(const char *name, struct file_type *out_type, struct status_note *note);

int file_type_n(void);
struct file_type file_type_at(int type_idx);

/* The file that a tensor is in. */
struct file_type_place {
    int n_layers;
    bool is_tied; /* the embedding is the output layer, too, and gets its type */
};

/* Tensors that stay F32 whatever the file's type: vectors, norms, routers, and what is no weight by its name. */
bool file_type_stays_f32(const char *name, size_t name_bytes, int n_dims);

/* Type of a tensor of at least two dims that does not stay F32. Rows that are no multiple of 256 get the nearest type
 * with blocks of 32, rows that are no multiple of 32 F16. */
enum dtype file_type_of(const struct file_type *type, const struct file_type_place *place, const char *name,
                        size_t name_bytes, uint64_t row_elements);

#endif
