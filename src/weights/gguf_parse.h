/* gguf_parse: from the bytes of a GGUF file to its two tables; every check of the container is here.
 *
 * Only gguf.c includes this: the struct behind the opaque name.   Thread: the opener's.   Memory: see gguf.h. */
#ifndef KVICK_WEIGHTS_GGUF_PARSE_H
#define KVICK_WEIGHTS_GGUF_PARSE_H

#include "base/file_map.h"
#include "weights/gguf.h"
#include "weights/name_table.h"

#define GGUF_N_TYPES (GGUF_F64 + 1)

struct gguf_key_value {
    struct gguf_text name;
    enum gguf_type type, item_type;
    uint64_t n_items;     /* of an array */
    const uint8_t *value; /* in the file; of a text its first byte, of an array its first item */
    size_t n_bytes;       /* of the value: inside the file */
};

struct gguf {
    struct file_map map; /* zero when the bytes are the caller's */
    const uint8_t *bytes;
    size_t n_bytes;
    uint32_t version;
    uint64_t alignment_bytes;
    size_t data_off;
    struct gguf_key_value *keys;
    size_t n_keys;
    struct gguf_tensor *tensors;
    size_t n_tensors;
    struct name_table key_table, tensor_table;
};

/* Fills everything behind bytes and n_bytes, which are set, in a zeroed gguf.
 * Errors: STATUS_FORMAT, STATUS_NOMEM with a note; the tables made so far are then still the gguf's, to be freed. */
WARN_UNUSED enum status gguf_parse(struct gguf *gguf, struct status_note *note);

#endif
