#include "support/gguf_build.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"
#include "weights/gguf.h"

static void put(struct gguf_build *b, const void *bytes, size_t n_bytes) {
    assert_true(n_bytes <= sizeof b->bytes - b->n_bytes);
    memcpy(b->bytes + b->n_bytes, bytes, n_bytes);
    b->n_bytes += n_bytes;
}

static void put_u32(struct gguf_build *b, uint32_t value) {
    put(b, &value, sizeof value);
}

static void put_u64(struct gguf_build *b, uint64_t value) {
    put(b, &value, sizeof value);
}

static void put_text(struct gguf_build *b, const char *text) {
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}

/* The next byte is where owner's part begins; owner NULL: the part is a field of its own. */
static void mark(struct gguf_build *b, const char *owner, const char *part) {
    assert_true(b->n_fields < GGUF_BUILD_MAX_FIELDS);
    snprintf(b->fields[b->n_fields].name, sizeof b->fields[0].name, "%s%s%s", owner ? owner : "", owner ? ":" : "",
             part);
    b->fields[b->n_fields++].off = b->n_bytes;
}

static void put_key(struct gguf_build *b, const char *key, uint32_t type) {
    mark(b, key, "name");
    put_text(b, key);
    mark(b, key, "type");
    put_u32(b, type);
    mark(b, key, "value");
}

static void put_key_u32(struct gguf_build *b, const char *key, uint32_t value) {
    put_key(b, key, GGUF_U32);
    put_u32(b, value);
}

static void put_key_text(struct gguf_build *b, const char *key, const char *text) {
    put_key(b, key, GGUF_TEXT);
    put_text(b, text);
}

static void put_array(struct gguf_build *b, const char *key, uint32_t item_type, uint64_t n_items) {
    put_key(b, key, GGUF_ARRAY);
    mark(b, key, "item_type");
    put_u32(b, item_type);
    mark(b, key, "n_items");
    put_u64(b, n_items);
    mark(b, key, "items");
}

static void put_model_keys(struct gguf_build *b) {
    put_key_text(b, "general.architecture", "llama");
    put_key_u32(b, "general.alignment", 32);
    put_key_u32(b, "llama.block_count", 2);
    put_key_u32(b, "llama.context_length", 64);
    put_key_u32(b, "llama.embedding_length", 32);
    put_key_u32(b, "llama.feed_forward_length", 64);
    put_key_u32(b, "llama.attention.head_count", 4);
    put_array(b, "llama.attention.head_count_kv", GGUF_I32, 2);
    put_u32(b, 2);
    put_u32(b, 4);
    put_key(b, "llama.rope.freq_base", GGUF_F32);
    float base = 10000;
    put(b, &base, sizeof base);
    put_key_u32(b, "llama.expert_count", 4);
    put_key_u32(b, "llama.expert_used_count", 2);
    put_array(b, "tokenizer.ggml.tokens", GGUF_TEXT, 3);
    put_text(b, "a");
    put_text(b, "");
    put_text(b, "\xff\x1b[31m");
    put_array(b, "tokenizer.ggml.token_type", GGUF_I32, 3);
    for (uint32_t i = 1; i <= 3; i++) put_u32(b, i);
    put_key_text(b, "tokenizer.chat_template", "{{ x }}\n\x1b[2J");
}

static void put_scalars(struct gguf_build *b) {
    static const struct {
        const char *key;
        uint32_t type;
        int n_bytes;
        int64_t value;
    } scalars[] = {{"x.u8", GGUF_U8, 1, 255},  {"x.i8", GGUF_I8, 1, -1},   {"x.u16", GGUF_U16, 2, 65535},
                   {"x.i16", GGUF_I16, 2, -2}, {"x.i32", GGUF_I32, 4, -3}, {"x.bool", GGUF_BOOL, 1, 1},
                   {"x.u64", GGUF_U64, 8, -1}, {"x.i64", GGUF_I64, 8, -4}};
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) {
        put_key(b, scalars[i].key, scalars[i].type);
        put(b, &scalars[i].value, (size_t)scalars[i].n_bytes);
    }
    put_key(b, "x.f64", GGUF_F64);
    double half = 0.5;
    put(b, &half, sizeof half);
    put_array(b, "x.bools", GGUF_BOOL, 2);
    put(b, "\1\0", 2);
    put_array(b, "x.f32s", GGUF_F32, 1);
    float quarter = 0.25f;
    put(b, &quarter, sizeof quarter);
}

static void put_tensor(struct gguf_build *b, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                       uint64_t offset) {
    mark(b, name, "name");
    put_text(b, name);
    mark(b, name, "n_dims");
    put_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) {
        mark(b, name, i ? "dim1" : "dim0");
        put_u64(b, dims[i]);
    }
    mark(b, name, "type");
    put_u32(b, type);
    mark(b, name, "offset");
    put_u64(b, offset);
}

void gguf_build_good(struct gguf_build *b, uint32_t version) {
    memset(b, 0, sizeof *b);
    mark(b, NULL, "magic");
    put(b, "GGUF", 4);
    mark(b, NULL, "version");
    put_u32(b, version);
    mark(b, NULL, "n_tensors");
    put_u64(b, 2);
    mark(b, NULL, "n_keys");
    size_t n_keys_off = b->n_bytes;
    put_u64(b, 0);
    put_model_keys(b);
    put_scalars(b);
    uint64_t n_keys = 0;
    for (int i = 0; i < b->n_fields; i++) {
        const char *part = strstr(b->fields[i].name, ":name");
        n_keys += part && part[5] == 0;
    }
    memcpy(b->bytes + n_keys_off, &n_keys, sizeof n_keys);
    static const uint64_t t_dims[] = {32, 2}, u_dims[] = {4};
    put_tensor(b, "t", 8, 2, t_dims, 0); /* Q8_0: 2 rows of 34 bytes */
    put_tensor(b, "u", 0, 1, u_dims, 96);
    mark(b, NULL, "table_end");
    b->n_bytes += -b->n_bytes % 32;
    mark(b, NULL, "data");
    b->n_bytes += 96 + 16;
    memset(b->bytes + b->n_bytes - 16, 0x3f, 16);
    assert_true(b->n_bytes <= sizeof b->bytes);
}

size_t gguf_build_off(const struct gguf_build *b, const char *field) {
    for (int i = 0; i < b->n_fields; i++)
        if (strcmp(b->fields[i].name, field) == 0) return b->fields[i].off;
    fail_msg("gguf_build has no field '%s'", field);
    return 0;
}

void gguf_build_patch(struct gguf_build *b, const char *field, const void *bytes, size_t n_bytes) {
    size_t off = gguf_build_off(b, field);
    assert_true(n_bytes <= b->n_bytes - off);
    memcpy(b->bytes + off, bytes, n_bytes);
}

void gguf_build_patch_u32(struct gguf_build *b, const char *field, uint32_t value) {
    gguf_build_patch(b, field, &value, sizeof value);
}

void gguf_build_patch_u64(struct gguf_build *b, const char *field, uint64_t value) {
    gguf_build_patch(b, field, &value, sizeof value);
}
