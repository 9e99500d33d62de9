#include "weights/gguf_digest.h"

#include <string.h>

#define PAGE_BYTES ((size_t)4096)

static void mix(uint8_t sum[HASH_SHA256_BYTES], const uint8_t *bytes, size_t n_bytes) {
    hash_sha256(sum, HASH_SHA256_BYTES, bytes, n_bytes, sum);
}

void gguf_digest(const struct gguf *gguf, uint8_t out[HASH_SHA256_BYTES]) {
    const struct gguf_tensor *first = gguf_tensor_at(gguf, 0);
    uint64_t n_file = gguf_file_bytes(gguf);
    hash_sha256(&n_file, sizeof n_file, first->bytes - first->file_off, (size_t)gguf_data_off(gguf), out);
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        size_t n_bytes = (size_t)tensor->n_bytes, n = n_bytes < PAGE_BYTES ? n_bytes : PAGE_BYTES;
        mix(out, tensor->bytes, n);
        mix(out, tensor->bytes + (n_bytes - n) / 2, n);
        mix(out, tensor->bytes + (n_bytes - n), n);
    }
}
