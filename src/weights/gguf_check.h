/* gguf_check: whether a GGUF file's model keys can be meant: kinds, ranges and how they fit together.
 *
 * Looks only at keys that are present, so a vocabulary-only file passes; what a model must have is model_config's
 * question. It answers before anything is sized or divided by these numbers.   Thread: any.   Memory: none. */
#ifndef KVICK_WEIGHTS_GGUF_CHECK_H
#define KVICK_WEIGHTS_GGUF_CHECK_H

#include "weights/gguf.h"

/* Bounds far above known models (largest seen: 126 layers, width 18,432, 256 heads). */
#define GGUF_CHECK_MAX_LAYERS 4096
#define GGUF_CHECK_MAX_HEADS 65536
#define GGUF_CHECK_MAX_WIDTH (1 << 20)
#define GGUF_CHECK_MAX_ARCHITECTURE_BYTES 64

/* Errors: STATUS_FORMAT; the note names the key and its value.   Cost: O(items of per-layer arrays and token types). */
WARN_UNUSED enum status gguf_check_model_keys(const struct gguf *gguf, struct status_note *note);

#endif
