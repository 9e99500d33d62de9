/* Any bytes as a safetensors file: open, and walk everything that was accepted. */
#include <string.h>

#include "base/mem.h"
#include "weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static volatile uint64_t seen; /* keeps the reads from being optimized away */

static void walk(const struct safetensors *file) {
    uint64_t covered = 0;
    for (size_t i = 0; i < safetensors_n_tensors(file); i++) {
        const struct safetensors_tensor *t = safetensors_tensor_at(file, i);
        REQUIRE(safetensors_tensor_find(file, t->name) == t);
        REQUIRE(t->n_dims >= 0 && t->n_dims <= SAFETENSORS_MAX_DIMS && t->begin == covered);
        for (uint64_t at = 0; at < t->n_bytes; at++) seen += t->bytes[at];
        seen += strlen(t->type);
        covered += t->n_bytes;
    }
    REQUIRE(safetensors_data_off(file) + covered == safetensors_file_bytes(file));
    for (size_t i = 0; i < safetensors_n_metadata(file); i++) {
        const char *key, *text;
        safetensors_metadata_at(file, i, &key, &text);
        seen += strlen(key) + strlen(text);
    }
}

static void try_bytes(const uint8_t *bytes, size_t n_bytes) {
    struct safetensors *file;
    struct status_note note = {0};
    enum status status = safetensors_open_bytes(&file, bytes, n_bytes, &note);
    REQUIRE((status == STATUS_OK) == (file != NULL));
    REQUIRE(status == STATUS_OK || note.text[0]);
    if (!status) walk(file);
    safetensors_close(&file);
    REQUIRE(mem_n_live() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    try_bytes(bytes, n_bytes);
    /* A header length that fits is a needle in 2^64: also take the first two bytes as the header's share of the rest.
     */
    if (n_bytes < 8) return 0;
    uint8_t *fixed = mem_alloc(n_bytes);
    if (!fixed) return 0;
    uint64_t length = (bytes[0] | (uint64_t)bytes[1] << 8) % (n_bytes - 7);
    memcpy(fixed, bytes, n_bytes);
    memcpy(fixed, &length, sizeof length);
    struct safetensors *file;
    struct status_note note = {0};
    if (safetensors_open_bytes(&file, fixed, n_bytes, &note) == STATUS_OK) walk(file);
    safetensors_close(&file);
    mem_free(fixed);
    return 0;
}
