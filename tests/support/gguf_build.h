/* gguf_build: the bytes of a small GGUF file in which every field can be found and overwritten, so that one wrong
 * field reaches the check that is meant for it. It can build what gguf_write would refuse.
 *
 * The file: architecture "llama" with its usual counts, one key of each type, tensors "t" (Q8_0, 32 x 2) and "u"
 * (F32, 4). Thread: one owner.   Memory: all in the struct. */
#ifndef KVICK_TESTS_SUPPORT_GGUF_BUILD_H
#define KVICK_TESTS_SUPPORT_GGUF_BUILD_H

#include <stddef.h>
#include <stdint.h>

#define GGUF_BUILD_MAX_BYTES 8192
#define GGUF_BUILD_MAX_FIELDS 256

struct gguf_build {
    uint8_t bytes[GGUF_BUILD_MAX_BYTES];
    size_t n_bytes;
    struct {
        char name[64];
        size_t off;
    } fields[GGUF_BUILD_MAX_FIELDS];
    int n_fields;
};

/* version: 2 or 3. */
void gguf_build_good(struct gguf_build *build, uint32_t version);

/* Fields: "magic", "version", "n_tensors", "n_keys"; of a key "KEY:name" (its length), "KEY:type", "KEY:value" (of a
 * text its length), "KEY:item_type", "KEY:n_items", "KEY:items"; of a tensor "NAME:name", "NAME:n_dims", "NAME:dim0",
 * "NAME:dim1", "NAME:type", "NAME:offset"; "table_end", "data". An unknown one fails the running test. */
size_t gguf_build_off(const struct gguf_build *build, const char *field);

void gguf_build_patch(struct gguf_build *build, const char *field, const void *bytes, size_t n_bytes);
void gguf_build_patch_u32(struct gguf_build *build, const char *field, uint32_t value);
void gguf_build_patch_u64(struct gguf_build *build, const char *field, uint64_t value);

#endif
