/* gguf_digest: tells model files apart without reading all of them.
 *
 * The header as a whole, and of every tensor the first, a middle and the last page: a file that was trained, merged or
 * quantized in another way differs there. A file that was forged need not.
 * Thread: any.   Cost: a few milliseconds for each hundred tensors, more where pages are not in memory. */
#ifndef KVICK_WEIGHTS_GGUF_DIGEST_H
#define KVICK_WEIGHTS_GGUF_DIGEST_H

#include "base/hash.h"
#include "weights/gguf.h"

void gguf_digest(const struct gguf *gguf, uint8_t out[HASH_SHA256_BYTES]);

#endif
