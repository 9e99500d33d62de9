/* Any bytes as a GGUF file: open, check, and walk everything that was accepted. */
#include "base/mem.h"
#include "weights/gguf.h"
#include "weights/gguf_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static volatile uint64_t seen; /* keeps the reads from being optimized away */

static void read_all(const void *bytes, size_t n_bytes) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n_bytes; i++) seen += p[i];
}

static void walk_array(const struct gguf_array *array) {
    if (array->item_type == GGUF_TEXT) {
        struct gguf_text text;
        size_t cursor = 0;
        uint64_t n = 0;
        for (; gguf_array_next_text(array, &cursor, &text); n++) read_all(text.ptr, text.n_bytes);
        REQUIRE(n == array->n_items);
        return;
    }
    bool is_real = array->item_type == GGUF_F32 || array->item_type == GGUF_F64;
    for (uint64_t i = 0; i < array->n_items; i++) {
        if (!is_real) seen += (uint64_t)gguf_array_int(array, i);
        double real = gguf_array_real(array, i);
        read_all(&real, sizeof real);
    }
}

static void walk_key(const struct gguf *gguf, const char *key, enum gguf_type type) {
    struct gguf_array array;
    struct gguf_text text;
    struct status_note note;
    enum gguf_type found;
    uint64_t u;
    double real;
    bool truth;
    REQUIRE(gguf_has(gguf, key) && gguf_type_of(gguf, key, &found) && found == type);
    if (gguf_get_array(gguf, key, &array, &note) == STATUS_OK) walk_array(&array);
    if (gguf_get_scalar(gguf, key, &array, &note) == STATUS_OK) walk_array(&array);
    if (gguf_get_text(gguf, key, &text, &note) == STATUS_OK) read_all(text.ptr, text.n_bytes);
    seen += gguf_get_u64(gguf, key, &u, &note) == STATUS_OK;
    seen += gguf_get_f64(gguf, key, &real, &note) == STATUS_OK;
    seen += gguf_get_bool(gguf, key, &truth, &note) == STATUS_OK;
}

static void walk(const struct gguf *gguf) {
    for (size_t i = 0; i < gguf_n_keys(gguf); i++) {
        enum gguf_type type;
        struct gguf_text name = gguf_key(gguf, i, &type);
        char *key = mem_strndup(name.ptr, name.n_bytes);
        if (key) walk_key(gguf, key, type);
        mem_free(key);
    }
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(gguf, i);
        char *name = mem_strndup(t->name.ptr, t->name.n_bytes);
        REQUIRE(!name || gguf_tensor_find(gguf, name) == t);
        mem_free(name);
        read_all(t->bytes, t->n_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    struct gguf *gguf;
    struct status_note note = {0};
    enum status status = gguf_open_bytes(&gguf, bytes, n_bytes, &note);
    REQUIRE((status == STATUS_OK) == (gguf != NULL));
    REQUIRE(status == STATUS_OK || note.text[0]);
    if (!status) {
        walk(gguf);
        note.text[0] = 0;
        REQUIRE(gguf_check_model_keys(gguf, &note) == STATUS_OK || note.text[0]);
        gguf_close(&gguf);
    }
    REQUIRE(mem_n_live() == 0);
    return 0;
}
